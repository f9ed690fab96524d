"""Consumers of one group come and go while messages flow: nothing is lost, and order holds."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Protocol

import pytest

from orbitmq import LitePullConsumer, Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView

QUEUES = 8
ROUNDS = 6
SEEDS = [1, 2]


class Service(Protocol):
    def shutdown(self) -> None: ...


class Ledger:
    """What the group consumed, by queue, in the order it was consumed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.queues: dict[int, list[int]] = defaultdict(list)
        self.bodies: set[bytes] = set()

    def add(self, messages: Sequence[MessageView]) -> None:
        with self.lock:
            for message in messages:
                self.queues[message.queue_id].append(message.queue_offset)
                self.bodies.add(message.body)

    def reached(self, count: int) -> bool:
        return len(self.bodies) >= count

    def twice(self) -> int:
        return sum(len(offsets) - len(set(offsets)) for offsets in self.queues.values())


class Feed:
    """A producer that sends until the test has seen enough."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.sent = 0
        self.done = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        queues = [MessageQueue("orders", "broker-a", number) for number in range(QUEUES)]
        try:
            with Producer("makers", name_server=self.broker.name_server) as producer:
                while not self.done.wait(0.001):
                    queue = queues[self.sent % QUEUES]
                    producer.send(Message("orders", b"%d" % self.sent), queue=queue)
                    self.sent += 1
        except BaseException as error:
            self.failure = error
            raise


@contextmanager
def flowing(broker: EmbeddedBroker) -> Iterator[Feed]:
    """Messages are being sent to all queues."""
    feed = Feed(broker)
    thread = threading.Thread(target=feed.run)
    thread.start()
    try:
        wait_until(lambda: feed.sent > QUEUES or feed.failure)
        yield feed
    finally:
        feed.done.set()
        thread.join()
    assert feed.failure is None


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        with Producer(
            "makers", name_server=running.name_server, default_topic_queue_nums=QUEUES
        ) as producer:
            producer.send(Message("orders", b"first"))
        yield running


def leave(running: Sequence[Service]) -> None:
    for consumer in running:
        consumer.shutdown()


def settled(seen: Ledger, feed: Feed) -> None:
    feed.done.set()
    wait_until(lambda: len(seen.bodies) >= feed.sent + 1, f"{feed.sent + 1} messages", timeout=20)


@pytest.mark.parametrize("seed", SEEDS)
def test_orderly_consumers_that_come_and_go_consume_each_message_once_and_in_order(
    broker: EmbeddedBroker, seed: int
) -> None:
    choose = random.Random(seed)
    ledger = Ledger()

    def start() -> PushConsumer:
        consumer = PushConsumer(
            "readers",
            ledger.add,
            name_server=broker.name_server,
            orderly=True,
            consume_batch_size=3,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.subscribe("orders")
        consumer.start()
        return consumer

    with flowing(broker) as feed, ExitStack() as stack:
        running = [start()]
        stack.callback(lambda: leave(running))
        for _ in range(ROUNDS):
            goal = len(ledger.bodies) + 50
            if len(running) > 1 and choose.random() < 0.5:
                running.pop(choose.randrange(len(running))).shutdown()
            else:
                running.append(start())
            wait_until(partial(ledger.reached, goal))
        settled(ledger, feed)
    for number in range(QUEUES):
        assert ledger.queues[number] == list(range(len(ledger.queues[number])))


@pytest.mark.parametrize("seed", SEEDS)
def test_lite_pull_consumers_that_come_and_go_lose_nothing(
    broker: EmbeddedBroker, seed: int
) -> None:
    choose = random.Random(seed)
    ledger = Ledger()

    class Reader(threading.Thread):
        """A consumer and the thread that polls it."""

        def __init__(self) -> None:
            super().__init__()
            self.leave = threading.Event()
            self.start()

        def run(self) -> None:
            with LitePullConsumer(
                "readers",
                name_server=broker.name_server,
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            ) as consumer:
                consumer.subscribe("orders")
                while not self.leave.is_set():
                    ledger.add(consumer.poll(0.01))

        def shutdown(self) -> None:
            self.leave.set()
            self.join()

    with flowing(broker) as feed, ExitStack() as stack:
        running = [Reader()]
        stack.callback(lambda: leave(running))
        for _ in range(ROUNDS):
            goal = len(ledger.bodies) + 50
            if len(running) > 1 and choose.random() < 0.5:
                running.pop(choose.randrange(len(running))).shutdown()
            else:
                running.append(Reader())
            wait_until(partial(ledger.reached, goal))
        settled(ledger, feed)
    # Only the messages of the poll a consumer was at when it lost a queue may come again.
    assert ledger.twice() <= ROUNDS * QUEUES * 10
