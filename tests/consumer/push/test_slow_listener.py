"""A listener that blocks for long costs its consumer neither its heartbeats nor its locks."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack

import pytest

from orbitmq import EmbeddedBroker, Message, MessageQueue, MessageView, Producer, PushConsumer
from orbitmq.broker.locks import LOCK_LIFETIME_MS, QueueLocks
from orbitmq.consumer.process_queue import LOCK_INTERVAL_MS
from orbitmq.consumer.push import consume_orderly
from orbitmq.testing.wait import wait_until

TOPIC = "orders"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]
HASTE = 4
"""Locks are renewed, and run out, so many times sooner than they do."""
LIFETIME_MS = LOCK_LIFETIME_MS // HASTE
SLOW_SECONDS = LIFETIME_MS / 1000 + 2
ROUNDS = 3


class Slow:
    """Notes what it consumes, and stays with the first message of the first queue."""

    def __init__(self) -> None:
        self.seen: dict[int, list[int]] = {queue.queue_id: [] for queue in QUEUES}
        self.entered = threading.Event()
        self.left = threading.Event()

    def is_done(self) -> bool:
        return sum(map(len, self.seen.values())) == 1 + len(QUEUES) * ROUNDS

    def listen(self, messages: Sequence[MessageView]) -> None:
        (message,) = messages
        self.seen[message.queue_id].append(message.queue_offset)
        if (message.queue_id, message.queue_offset) == (0, 0):
            self.entered.set()
            time.sleep(SLOW_SECONDS)
            self.left.set()

    async def listen_on_loop(self, messages: Sequence[MessageView]) -> None:
        """Blocks the loop of the listeners, as nobody should but somebody will."""
        self.listen(messages)


@pytest.mark.slow
def test_a_listener_blocks_for_longer_than_a_lock_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_orderly, "LOCK_INTERVAL_MS", LOCK_INTERVAL_MS // HASTE)
    listeners = {"threads": Slow(), "loop": Slow(), "concurrent": Slow()}
    with ExitStack() as stack:
        # Whoever misses a few heartbeats is hung up on.
        broker = stack.enter_context(EmbeddedBroker(client_timeout_ms=5_000, scan_interval_ms=500))
        broker.call(lambda node: setattr(node.broker, "locks", QueueLocks(LIFETIME_MS)))
        producer = stack.enter_context(Producer("makers", name_server=broker.name_server))
        producer.send(Message(TOPIC, b"first"), queue=QUEUES[0])

        def members() -> list[list[str]]:
            return broker.call(
                lambda node: [node.broker.consumers.groups[name].client_ids for name in listeners]
            )

        def lockable(group: str) -> list[MessageQueue]:
            """The queues that another client would get."""
            return broker.call(
                lambda node: node.broker.locks.lock(group, QUEUES, "rival", node.broker.now_ms())
            )

        for group, listener in listeners.items():
            consumer = PushConsumer(
                group,
                listener.listen_on_loop if group == "loop" else listener.listen,
                name_server=broker.name_server,
                heartbeat_interval_ms=1_000,
                orderly=group != "concurrent",
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            )
            consumer.subscribe(TOPIC)
            stack.enter_context(consumer)
        for listener in listeners.values():
            assert listener.entered.wait(10)
        for _ in range(ROUNDS):
            for queue in QUEUES:
                producer.send(Message(TOPIC, b"next"), queue=queue)
        first = members()
        assert [len(client_ids) for client_ids in first] == [1, 1, 1]

        while not all(listener.left.wait(0.5) for listener in listeners.values()):
            assert members() == first
            assert not lockable("threads")
            assert not lockable("loop")

        for listener in listeners.values():
            wait_until(listener.is_done)
    for group, listener in listeners.items():
        for number, offsets in listener.seen.items():
            wanted = list(range(ROUNDS + (number == 0)))
            assert (sorted(offsets) if group == "concurrent" else offsets) == wanted
