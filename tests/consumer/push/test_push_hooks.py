"""Hooks around listeners, and in front of them, with the statuses and props of Java."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client.namespace import Namespace
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.consumer.hooks import (
    CONSUME_CONTEXT_TYPE,
    ConsumeHooks,
    ConsumeMessageContext,
    FilterHooks,
    FilterMessageContext,
)
from orbitmq.consumer.push.listeners import ConsumeOrderlyContext, ConsumeStatus
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import CONSUME_START_TIME
from tests.consumer.push.pushing import QUEUES, Inbox, committed, delayed, make, send
from tests.consumer.records import messages, offsets

QUEUE = MessageQueue("orders", "broker-a", 0)


class Recorder:
    """A hook that writes down what it is told."""

    def __init__(self) -> None:
        self.before: list[tuple[Any, ...]] = []
        self.after: dict[bytes, tuple[str | None, bool, str]] = {}

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        (message,) = context.message_list
        assert (context.status, context.success, context.props) == (None, False, {})
        context.trace_context = self
        self.before.append((context.consumer_group, context.message_queue.topic, message.topic))

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        (message,) = context.message_list
        assert context.trace_context is self
        kind = context.props[CONSUME_CONTEXT_TYPE]
        self.after[message.body] = (context.status, context.success, kind)


def test_hooks_learn_how_messages_are_consumed(broker: EmbeddedBroker, producer: Producer) -> None:
    stamps: dict[bytes, str | None] = {}

    def listener(received: Sequence[MessageView]) -> bool:
        (message,) = received
        stamps[message.body] = message.property(CONSUME_START_TIME)
        if message.body == b"1":
            raise ValueError("no such account")
        return message.body != b"2"

    recorder = Recorder()
    consumer = make(broker, listener, consume_threads=1)
    consumer.register_consume_message_hook(recorder)
    began = SYSTEM_CLOCK.now_ms()
    with consumer:
        consumer.subscribe("orders")
        send(producer, range(3), queue=0)
        wait_until(lambda: len(recorder.after) == 3)
    assert recorder.before == [("readers", "orders", "orders")] * 3
    assert recorder.after == {
        b"0": ("CONSUME_SUCCESS", True, "SUCCESS"),
        b"1": ("RECONSUME_LATER", False, "EXCEPTION"),
        b"2": ("RECONSUME_LATER", False, "FAILED"),
    }
    now = SYSTEM_CLOCK.now_ms()
    assert all(began <= int(stamp or 0) <= now for stamp in stamps.values())


def test_orderly_statuses_have_their_own_names(broker: EmbeddedBroker, producer: Producer) -> None:
    answers = {
        b"0": ConsumeStatus.SUCCESS,
        b"1": ConsumeStatus.COMMIT,
        b"2": ConsumeStatus.ROLLBACK,
        b"3": ConsumeStatus.RECONSUME_LATER,
    }

    async def listener(
        received: Sequence[MessageView], context: ConsumeOrderlyContext
    ) -> ConsumeStatus:
        context.auto_commit = False
        return answers[received[0].body]

    recorder = Recorder()
    with make(broker, listener, orderly=True) as consumer:
        consumer.register_consume_message_hook(recorder)
        consumer.subscribe("orders")
        send(producer, range(4))
        wait_until(lambda: len(recorder.after) == 4)
    assert recorder.after == {
        b"0": ("SUCCESS", True, "SUCCESS"),
        b"1": ("COMMIT", True, "SUCCESS"),
        b"2": ("ROLLBACK", False, "SUCCESS"),
        b"3": ("SUSPEND_CURRENT_QUEUE_A_MOMENT", False, "FAILED"),
    }


def test_messages_that_come_again_are_seen_with_their_topic_and_their_queue(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    inbox, recorder = Inbox(), Recorder()
    inbox.fail = {b"0"}
    consumer = make(broker, inbox)
    consumer.register_consume_message_hook(recorder)
    with consumer:
        consumer.subscribe("orders")
        send(producer, [0])
        wait_until(lambda: delayed(broker) == 1)
        inbox.fail.clear()
        clock.advance(11_000)
        broker.run_due()
        inbox.wait(1)
        wait_until(lambda: recorder.after[b"0"][1])
    assert recorder.before[1] == ("readers", "%RETRY%readers", "orders")


def test_filter_hooks_take_messages_out_and_the_offset_passes_over_them(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    class OnlyEven:
        def filter_message(self, context: FilterMessageContext) -> None:
            assert (context.consumer_group, context.unit_mode) == ("readers", False)
            context.message_list[:] = [
                message for message in context.message_list if int(message.body) % 2 == 0
            ]

    inbox = Inbox()
    consumer = make(broker, inbox)
    consumer.register_filter_message_hook(OnlyEven())
    with consumer:
        consumer.subscribe("orders")
        send(producer, range(10), queue=2)
        assert inbox.wait(5) == [0, 2, 4, 6, 8]
        wait_until(lambda: consumer._core.offsets.get(QUEUES[2]) == 10)
    assert committed(broker)[2] == 10


def test_tags_are_compared_again_here(broker: EmbeddedBroker, producer: Producer) -> None:
    """Tags with the same hash code pass the broker: "Aa" and "BB" have one."""
    inbox = Inbox()
    for number, tags in enumerate(("Aa", "BB", "Aa")):
        producer.send(Message("orders", b"%d" % number, tags=tags), queue=QUEUES[0])
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders", "Aa")
        assert inbox.wait(2) == [0, 2]
        wait_until(lambda: consumer._core.offsets.get(QUEUES[0]) == 3)


def test_a_hook_that_fails_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            raise ValueError("broken before")

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            raise ValueError("broken after")

        def filter_message(self, context: FilterMessageContext) -> None:
            raise ValueError("broken filter")

    seen: list[str | None] = []

    class Seeing:
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            seen.append(context.status)

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            seen.append(context.status)

    hooks, filters = ConsumeHooks("readers", Namespace(None)), FilterHooks("readers")
    assert not hooks
    assert not filters
    hooks.register(Broken())
    hooks.register(Seeing())
    filters.register(Broken())
    hooks.polled(QUEUE, messages([1]))
    assert seen == [None, "CONSUME_SUCCESS"]
    assert offsets(filters.filter(QUEUE, messages([1, 2]))) == [1, 2]
    for what in ("before", "after", "filter"):
        assert f"broken {what}" in caplog.text
