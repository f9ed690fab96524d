"""Consuming in order, against our broker: locks, hand-overs, commits, and messages that fail."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.push.listeners import ConsumeOrderlyContext, ConsumeStatus
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import (
    QUEUES,
    Inbox,
    by_queue,
    committed,
    dead_letters,
    make,
    move,
    send,
)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_queue_is_consumed_in_order_by_one_at_a_time(
    broker: EmbeddedBroker, producer: Producer, asynchronous: bool
) -> None:
    inbox = Inbox()
    inbox.fail = {b"5", b"22"}
    busy: set[int] = set()
    together: list[int] = []

    def listener(messages: Sequence[MessageView]) -> ConsumeStatus:
        if messages[0].queue_id in busy:
            together.append(messages[0].queue_id)
        busy.add(messages[0].queue_id)
        status = inbox(messages)
        if status is not ConsumeStatus.SUCCESS and inbox.times[messages[0].body] == 3:
            inbox.fail.discard(messages[0].body)
        busy.discard(messages[0].queue_id)
        return status

    async def later(messages: Sequence[MessageView]) -> ConsumeStatus:
        await asyncio.sleep(0)
        return listener(messages)

    send(producer, range(80))
    with make(
        broker,
        later if asynchronous else listener,
        orderly=True,
        suspend_current_queue_time_ms=20,
    ) as consumer:
        consumer.subscribe("orders")
        inbox.wait(80)
    assert not together
    assert by_queue(inbox.messages) == {number: list(range(20)) for number in range(4)}
    assert inbox.times[b"5"] == inbox.times[b"22"] == 4
    assert committed(broker) == [20] * 4


def test_orderly_queues_move_without_a_message_twice_or_out_of_order(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox = Inbox()
    send(producer, range(40))
    first = make(broker, inbox, orderly=True)
    second = make(broker, inbox, orderly=True)
    for consumer in (first, second):
        consumer.subscribe("orders")
    with first:
        inbox.wait(40)
        with second:
            wait_until(lambda: sum(q.topic == "orders" for q in second._core.tasks) == 2)
            held = [q for c in (first, second) for q in c._core.tasks if q.topic == "orders"]
            assert len(held) == len(set(held)) == 4
            send(producer, range(40, 80))
            inbox.wait(80)
        send(producer, range(80, 120))
        inbox.wait(120)
    assert by_queue(inbox.messages) == {number: list(range(30)) for number in range(4)}


def test_a_queue_in_the_middle_of_a_batch_is_handed_over_when_it_ends(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    begun, release = threading.Event(), threading.Event()
    inbox = Inbox()

    def slow(messages: Sequence[MessageView]) -> None:
        if messages[0].queue_id == 3:
            begun.set()
            assert release.wait(20)
        inbox(messages)

    other = Inbox()
    first, second = make(broker, slow, orderly=True), make(broker, other, orderly=True)
    for consumer in (first, second):
        consumer.subscribe("orders")
    send(producer, range(40))
    with first:
        assert begun.wait(10)
        inbox.wait(30)
        with second:
            wait_until(
                lambda: (task := first._core.tasks.get(QUEUES[3])) and task.process_queue.leaving
            )
            assert QUEUES[3] not in second._core.tasks
            wait_until(lambda: first._core.tasks[QUEUES[3]].process_queue.try_unlock_times == 1)
            release.set()
            other.wait(9)
    assert by_queue(inbox.messages)[3] == [0]
    assert by_queue(other.messages)[3] == list(range(1, 10))


def test_committing_and_rolling_back_by_hand(broker: EmbeddedBroker, producer: Producer) -> None:
    seen: list[int] = []
    rolled_back = False

    def listener(messages: Sequence[MessageView], context: ConsumeOrderlyContext) -> ConsumeStatus:
        nonlocal rolled_back
        context.auto_commit = False
        context.suspend_current_queue_time_ms = 10
        number = int(messages[0].body)
        seen.append(number)
        if number == 2:
            return ConsumeStatus.COMMIT
        if number == 5 and not rolled_back:
            rolled_back = True
            return ConsumeStatus.ROLLBACK
        return ConsumeStatus.SUCCESS

    send(producer, range(7), queue=1)
    with make(broker, listener, orderly=True) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: len(seen) == 10)
        wait_until(lambda: not consumer._core.tasks[QUEUES[1]].process_queue.running)
    assert seen == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    assert committed(broker)[1] == 3


def test_an_orderly_message_that_fails_too_often_gives_way(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    inbox = Inbox()
    inbox.fail = {b"1"}
    send(producer, range(3), queue=1)
    with make(
        broker, inbox, orderly=True, max_reconsume_times=2, suspend_current_queue_time_ms=10
    ) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(2) == [0, 2]
        wait_until(lambda: inbox.times[b"1"] >= 3)
        move(broker, clock, 60)
        assert wait_until(lambda: dead_letters(broker)) == [b"1"]
    assert inbox.times[b"1"] == 3
    assert committed(broker)[1] == 3


def test_a_lost_lock_stops_the_queue_until_it_is_won_back(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    with make(broker, inbox, orderly=True) as consumer:
        consumer.subscribe("orders")
        send(producer, range(4))
        inbox.wait(4)
        core = consumer._core

        def steal(node: Any) -> None:
            node.broker.locks.unlock("readers", [QUEUES[1]], core.instance.client_id)
            node.broker.locks.lock("readers", [QUEUES[1]], "thief", node.broker.clock.now_ms())

        broker.call(steal)
        core.thread.run(core.lock_all())
        assert not core.tasks[QUEUES[1]].process_queue.locked
        assert "locked for another consumer" in caplog.text
        send(producer, [9, 8])
        assert inbox.wait(5) == [0, 1, 2, 3, 8]
        broker.call(lambda node: node.broker.locks.unlock("readers", [QUEUES[1]], "thief"))
        core.thread.run(core.lock_all())
        inbox.wait(6)
    assert by_queue(inbox.messages)[1] == [0, 1]


def test_orderly_without_sharing_needs_no_locks(
    broker: EmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    inbox = Inbox()
    send(producer, range(20))
    with make(
        broker,
        inbox,
        orderly=True,
        message_model="BROADCASTING",
        local_offset_dir=str(tmp_path),
    ) as consumer:
        consumer.subscribe("orders")
        inbox.wait(20)
    assert by_queue(inbox.messages) == {number: list(range(5)) for number in range(4)}
