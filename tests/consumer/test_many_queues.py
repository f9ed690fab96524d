"""Ten thousand queues in one consumer: it takes them, serves them, and gives up half."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from orbitmq import Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.message_view import MessageView

COUNT = 10_000
WAIT_SECONDS = 60
"""A deadline for a machine that is busy with other things; otherwise each wait takes a second."""
SERVED = [MessageQueue("wide", "broker-a", number) for number in range(0, COUNT, 100)]
BYTES_A_QUEUE = 40_000
"""Generous: consumer and broker, which are one process here, take some 9 KB."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        topic = TopicConfig("wide", read_queue_nums=COUNT, write_queue_nums=COUNT)
        running.call(lambda node: node.broker.topics.put(topic))
        yield running


class Inbox:
    """Which queues each body came from."""

    def __init__(self) -> None:
        self.queue_ids: dict[bytes, set[int]] = {b"1": set(), b"2": set()}
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[MessageView]) -> None:
        with self._lock:
            for message in messages:
                self.queue_ids[message.body].add(message.queue_id)


def make(broker: EmbeddedBroker, inbox: Inbox, *, orderly: bool) -> PushConsumer:
    consumer = PushConsumer(
        "readers",
        inbox,
        name_server=broker.name_server,
        orderly=orderly,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    consumer.subscribe("wide")
    return consumer


def pulled(consumer: PushConsumer) -> set[int]:
    tasks = list(consumer._core.tasks.values())
    return {
        task.queue.queue_id
        for task in tasks
        if task.queue.topic == "wide" and task.next_offset >= 0 and not task.process_queue.leaving
    }


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrently", "orderly"])
def test_ten_thousand_queues(
    broker: EmbeddedBroker, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first_inbox, second_inbox = Inbox(), Inbox()
    first = make(broker, first_inbox, orderly=orderly)
    second = make(broker, second_inbox, orderly=orderly)
    before = anonymous_bytes()
    with Producer("makers", name_server=broker.name_server) as producer, first:
        wait_until(
            lambda: len(pulled(first)) == COUNT, "all queues are pulled", timeout=WAIT_SECONDS
        )
        wait_until(
            lambda: broker.call(lambda node: len(node.broker.pulling.held)) >= COUNT,
            timeout=WAIT_SECONDS,
        )
        assert anonymous_bytes() - before < COUNT * BYTES_A_QUEUE
        for queue in SERVED:
            producer.send(Message("wide", b"1"), queue=queue)
        numbers = {queue.queue_id for queue in SERVED}
        wait_until(lambda: first_inbox.queue_ids[b"1"] == numbers, timeout=WAIT_SECONDS)

        with second:
            wait_until(
                lambda: len(pulled(second)) == COUNT // 2, "half is pulled", timeout=WAIT_SECONDS
            )
            assert pulled(first).isdisjoint(pulled(second))
            assert len(pulled(first)) == COUNT // 2
            for queue in SERVED:
                producer.send(Message("wide", b"2"), queue=queue)
            # Too busy to hand 5,000 queues over in handover_delay_ms, a machine repeats messages.
            moved = numbers & pulled(second)
            assert len(moved) == len(SERVED) // 2
            wait_until(lambda: second_inbox.queue_ids[b"2"] >= moved, timeout=WAIT_SECONDS)
            wait_until(lambda: first_inbox.queue_ids[b"2"] >= numbers - moved, timeout=WAIT_SECONDS)
        wait_until(
            lambda: len(pulled(first)) == COUNT, "all queues are pulled again", timeout=WAIT_SECONDS
        )
    offsets = broker.call(
        lambda node: [node.broker.offsets.query("readers", "wide", number) for number in numbers]
    )
    assert offsets == [2] * len(SERVED)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
