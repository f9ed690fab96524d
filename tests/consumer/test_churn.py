"""Consumers of one group come and go while messages flow: nothing is lost, and order holds."""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Protocol

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, MessageView, PushConsumer
from orbitmq.testing.wait import wait_until
from tests.consumer.churn import MOST_CONSUMERS, TOPIC, Feed, flowing

ROUNDS = 16
SEEDS = [1, 2]
GROUP = "readers"


class Service(Protocol):
    def shutdown(self) -> None: ...


class Ledger:
    """What the group consumed, by queue, in the order it was consumed."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.lock = threading.Lock()
        self.queues: dict[int, list[int]] = defaultdict(list)
        self.bodies: set[bytes] = set()
        self.after_commit: list[str] = []
        self._offsets = broker.call(lambda node: node.broker.offsets.table)

    def add(self, messages: Sequence[MessageView]) -> None:
        with self.lock:
            committed = self._offsets.get(f"{TOPIC}@{GROUP}", {})
            for message in messages:
                queue, offset = message.queue_id, message.queue_offset
                self.queues[queue].append(offset)
                self.bodies.add(message.body)
                if offset < committed.get(queue, 0):
                    self.after_commit.append(f"{message}, committed up to {committed[queue]}")

    def reached(self, count: int) -> bool:
        return len(self.bodies) >= count


def come_and_go(seed: int, start: Callable[[Feed, Ledger], Service]) -> Ledger:
    """Has one to eight consumers at a time, until all that was sent is consumed."""
    choose = random.Random(seed)
    with flowing() as feed, ExitStack() as stack:
        ledger = Ledger(feed.broker)
        running: list[Service] = []
        stack.callback(lambda: leave(running))
        for _ in range(ROUNDS):
            goal = len(ledger.bodies) + 50
            joins = len(running) < 2 or (len(running) < MOST_CONSUMERS and choose.random() < 0.6)
            if joins:
                running.append(start(feed, ledger))
            else:
                running.pop(choose.randrange(len(running))).shutdown()
            wait_until(partial(ledger.reached, goal), f"{goal} messages, seed {seed}")
        feed.done.set()
        wait_until(lambda: ledger.reached(feed.sent + 1), f"all, seed {seed}", timeout=90)
    assert not ledger.after_commit
    return ledger


def leave(running: Sequence[Service]) -> None:
    for consumer in running:
        consumer.shutdown()


def start_push(feed: Feed, ledger: Ledger, **settings: Any) -> PushConsumer:
    consumer = PushConsumer(
        GROUP,
        ledger.add,
        name_server=feed.broker.name_server,
        consume_batch_size=3,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        **settings,
    )
    consumer.subscribe(TOPIC)
    consumer.start()
    return consumer


@pytest.mark.parametrize("seed", SEEDS)
def test_orderly_consumers_that_come_and_go_consume_each_message_once_and_in_order(
    seed: int,
) -> None:
    ledger = come_and_go(seed, partial(start_push, orderly=True))
    for offsets in ledger.queues.values():
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("seed", SEEDS)
def test_concurrent_consumers_that_come_and_go_lose_nothing(seed: int) -> None:
    """What was consumed before its turn may come again, where an earlier message was not yet."""
    ledger = come_and_go(seed, start_push)
    for offsets in ledger.queues.values():
        assert set(offsets) == set(range(max(offsets) + 1))


class Poller(threading.Thread):
    """A lite pull consumer and the thread that polls it."""

    def __init__(self, feed: Feed, ledger: Ledger) -> None:
        super().__init__()
        self._feed = feed
        self._ledger = ledger
        self._left = threading.Event()
        self.start()

    def run(self) -> None:
        with LitePullConsumer(
            GROUP,
            name_server=self._feed.broker.name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        ) as consumer:
            consumer.subscribe(TOPIC)
            while not self._left.is_set():
                self._ledger.add(consumer.poll(0.01))

    def shutdown(self) -> None:
        self._left.set()
        self.join()


@pytest.mark.parametrize("seed", SEEDS)
def test_lite_pull_consumers_that_come_and_go_lose_nothing(seed: int) -> None:
    """Only the messages of the poll a consumer was at when it lost a queue may come again."""
    ledger = come_and_go(seed, Poller)
    twice = sum(len(offsets) - len(set(offsets)) for offsets in ledger.queues.values())
    assert twice <= ROUNDS * MOST_CONSUMERS * 10
