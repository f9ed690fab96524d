"""Whatever listeners do, however often consumers begin and end: no message is skipped or lost.

Each message has a fate: so many times it fails, each time in a way of its own, before it succeeds.
Consumers of the group live one after the other, and are shut down while listeners are at work.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.push.listeners import (
    ConsumeConcurrentlyContext,
    ConsumeContext,
    ConsumeStatus,
)
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import committed, dead_letters, make, move, send

MESSAGES = 60
MOST_FAILURES = 3
FAILURES: list[type[BaseException] | ConsumeStatus | bool | str] = [
    ValueError,
    SystemExit,
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    BaseException,
    ConsumeStatus.RECONSUME_LATER,
    ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
    False,
    "an answer that is none",
]


class World:
    """What a run of consumers does to the messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.fails = {number: self.random.randint(0, MOST_FAILURES) for number in range(MESSAGES)}
        self.had: set[int] = set()
        self.failed: Counter[int] = Counter()
        self.consumed: Counter[int] = Counter()
        self.order: dict[int, list[int]] = defaultdict(list)

    def fate(self, messages: Sequence[MessageView]) -> Any:
        """What becomes of a batch: what the listener answers, or raises."""
        with self.lock:
            numbers = [int(message.body) for message in messages]
            self.had.update(numbers)
            failing = [n for n in numbers if self.failed[n] < self.fails[n]]
            if failing:
                self.failed.update(failing)
                return self.random.choice(FAILURES)
            self.consumed.update(numbers)
            for message in messages:
                self.order[message.queue_id].append(int(message.body))
            return self.random.choice([None, True, ConsumeStatus.SUCCESS])

    def pause(self) -> float:
        with self.lock:
            return self.random.choice([0, 0, 0.001, 0.005])

    def listener(self, kind: str) -> Callable[..., Any]:
        pause = threading.Event()

        def plain(messages: Sequence[MessageView], context: ConsumeContext) -> Any:
            pause.wait(self.pause())
            return act(self.fate(messages), context)

        async def coroutine(messages: Sequence[MessageView], context: ConsumeContext) -> Any:
            await asyncio.sleep(self.pause())
            return act(self.fate(messages), context)

        def awaitable(messages: Sequence[MessageView], context: ConsumeContext) -> Awaitable[Any]:
            return coroutine(messages, context)

        kinds: dict[str, Callable[..., Any]] = {
            "plain": plain, "coroutine": coroutine, "awaitable": awaitable
        }  # fmt: skip
        return kinds[kind]


def act(fate: Any, context: ConsumeContext) -> Any:
    if isinstance(context, ConsumeConcurrentlyContext):
        context.delay_level_when_next_consume = 1  # which is a second
    if isinstance(fate, type):
        raise fate("failed")
    return fate


def settled(broker: EmbeddedBroker, world: World) -> None:
    """No offset is committed past a message that no listener ever had."""
    for queue, offset in enumerate(committed(broker)):
        for number in range(queue, 4 * offset, 4):
            assert number in world.had, f"{number} was skipped"


@pytest.mark.parametrize("kind", ["plain", "coroutine", "awaitable"])
@pytest.mark.parametrize("seed", range(3))
def test_concurrently(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock, seed: int, kind: str
) -> None:
    world = World(seed)
    send(producer, range(MESSAGES))
    for _ in range(100):
        consumer = make(
            broker,
            world.listener(kind),
            consume_threads=world.random.choice([1, 3, 20]),
            consume_batch_size=world.random.choice([1, 4]),
            heartbeat_interval_ms=50,  # for the broker's clock runs fast
        )
        consumer.subscribe("orders")
        with consumer:
            goal = min(MESSAGES, len(world.consumed) + world.random.randint(1, 40))
            wait_until(lambda goal=goal: reached(world, goal, broker, clock))  # type: ignore[misc]
            consumer.shutdown(timeout=world.random.choice([0, 0.01, 10]))
        settled(broker, world)
        if len(world.consumed) == MESSAGES:
            break
    assert len(world.consumed) == MESSAGES
    assert dead_letters(broker) == []


def reached(world: World, goal: int, broker: EmbeddedBroker, clock: ManualClock) -> bool:
    move(broker, clock, 1)
    return len(world.consumed) >= goal


@pytest.mark.parametrize("kind", ["plain", "coroutine", "awaitable"])
@pytest.mark.parametrize("seed", range(3))
def test_in_order(broker: EmbeddedBroker, producer: Producer, seed: int, kind: str) -> None:
    world = World(seed)
    send(producer, range(MESSAGES))
    for _ in range(100):
        consumer = make(
            broker,
            world.listener(kind),
            orderly=True,
            consume_threads=world.random.choice([1, 3, 20]),
            consume_batch_size=world.random.choice([1, 4]),
            suspend_current_queue_time_ms=10,
        )
        consumer.subscribe("orders")
        with consumer:
            goal = min(MESSAGES, len(world.consumed) + world.random.randint(1, 40))
            wait_until(lambda goal=goal: len(world.consumed) >= goal)  # type: ignore[misc]
            consumer.shutdown(timeout=world.random.choice([0, 0.01, 10]))
        for queue, offset in enumerate(committed(broker)):
            assert all(world.consumed[number] for number in range(queue, 4 * offset, 4))
        if len(world.consumed) == MESSAGES:
            break
    assert len(world.consumed) == MESSAGES
    for queue, numbers in world.order.items():
        firsts = list(dict.fromkeys(numbers))  # later ones came again after a shutdown
        assert firsts == list(range(queue, MESSAGES, 4))
