"""What tests of push consumers share: listeners that keep what they get, looks at the broker."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from orbitmq import AsyncPushConsumer, LitePullConsumer, Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.push.listeners import ConsumeStatus
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView

LISTENERS_THREAD = "orbitmq-listeners-readers"
QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


class Inbox:
    """A listener that keeps what it gets, and fails where it is told to."""

    def __init__(self) -> None:
        self.messages: list[MessageView] = []
        self.batches: list[int] = []
        self.fail: set[bytes] = set()
        self.times: Counter[bytes] = Counter()
        self.threads: set[str] = set()
        self.lock = threading.Lock()

    def __call__(self, messages: Sequence[MessageView]) -> ConsumeStatus:
        with self.lock:
            self.threads.add(threading.current_thread().name)
            self.batches.append(len(messages))
            for message in messages:
                self.times[message.body] += 1
                if message.body in self.fail:
                    return ConsumeStatus.RECONSUME_LATER
            self.messages += messages
            return ConsumeStatus.SUCCESS

    def numbers(self) -> list[int]:
        with self.lock:
            return sorted(int(message.body) for message in self.messages)

    def wait(self, count: int) -> list[int]:
        wait_until(lambda: len(self.messages) >= count, f"{count} messages, {self.numbers()}")
        return self.numbers()


def make(broker: EmbeddedBroker, listener: Any = None, **settings: Any) -> PushConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    group = settings.pop("group", "readers")
    return PushConsumer(group, listener, name_server=broker.name_server, **settings)


def make_async(broker: EmbeddedBroker, listener: Any = None, **settings: Any) -> AsyncPushConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    return AsyncPushConsumer("readers", listener, name_server=broker.name_server, **settings)


async def consume(inbox: Inbox, messages: Sequence[MessageView]) -> None:
    await asyncio.sleep(0)
    inbox(messages)


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def send(
    producer: Producer, numbers: Sequence[int], *, tags: str = "t", queue: int | None = None
) -> None:
    for number in numbers:
        target = QUEUES[number % 4 if queue is None else queue]
        producer.send(Message("orders", b"%d" % number, tags=tags), queue=target)


def committed(broker: EmbeddedBroker, topic: str = "orders", group: str = "readers") -> list[int]:
    """The offsets the broker has of the group, by queue."""
    offsets = broker.call(
        lambda node: [node.broker.offsets.query(group, topic, number) for number in range(4)]
    )
    return [-1 if offset is None else offset for offset in offsets]


def move(broker: EmbeddedBroker, clock: ManualClock, seconds: int) -> None:
    clock.advance(seconds * 1000)
    broker.run_due()


def delayed(broker: EmbeddedBroker) -> int:
    """Messages that wait in the delay queues."""
    store_queues = range(18)
    return broker.call(
        lambda node: sum(
            node.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", number) for number in store_queues
        )
    )


def dead_letters(broker: EmbeddedBroker) -> list[bytes]:
    with LitePullConsumer(
        "undertakers",
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        auto_commit=False,
    ) as consumer:
        consumer.assign([MessageQueue("%DLQ%readers", "broker-a", 0)])
        return [message.body for message in consumer.poll(0.3)]


def by_queue(messages: Sequence[MessageView]) -> dict[int, list[int]]:
    queues: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(message.queue_offset)
    return dict(queues)
