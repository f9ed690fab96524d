"""What tests of lite pull consumers share: making, feeding and draining them."""

from __future__ import annotations

import time
from typing import Any

from orbitmq import LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.node import Node
from orbitmq.message import Message, MessageQueue
from orbitmq.wire.message_view import MessageView

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


def make(broker: EmbeddedBroker, group: str = "readers", **settings: Any) -> LitePullConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    return LitePullConsumer(group, name_server=broker.name_server, **settings)


def send(
    producer: Producer, count: int, *, tags: str | None = None, queue: int | None = None
) -> None:
    for number in range(count):
        target = QUEUES[number % 4 if queue is None else queue]
        producer.send(Message("orders", b"%d" % number, tags=tags), queue=target)


def drain(consumer: LitePullConsumer, count: int) -> list[MessageView]:
    """Poll until ``count`` messages came."""
    messages: list[MessageView] = []
    deadline = time.monotonic() + 30
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.poll(1)
    assert len(messages) == count
    return messages


def numbers(messages: list[MessageView]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def committed(broker: EmbeddedBroker, group: str = "readers") -> dict[MessageQueue, int]:
    """The offsets the broker has of ``orders``, -1 for none."""

    def query(node: Node) -> list[int | None]:
        offsets = node.broker.offsets
        return [offsets.query(group, queue.topic, queue.queue_id) for queue in QUEUES]

    known = zip(QUEUES, broker.call(query), strict=True)
    return {queue: -1 if offset is None else offset for queue, offset in known}
