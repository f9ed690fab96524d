"""Clients in a namespace, against our broker: wrapped on the wire, un-wrapped for users."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    ConsumeConcurrentlyContext,
    ConsumeMessageContext,
    ConsumeStatus,
    FilterMessageContext,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PullConsumer,
    PushConsumer,
)
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.node import Node
from orbitmq.errors import IllegalNameError
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from tests.consumer.lite_pull.lite_pulling import QUEUES, drain


def settings(broker: EmbeddedBroker) -> dict[str, Any]:
    return {"name_server": broker.name_server, "namespace": "ns"}


def consuming(broker: EmbeddedBroker) -> dict[str, Any]:
    return {**settings(broker), "consume_from_where": "CONSUME_FROM_FIRST_OFFSET"}


def send(broker: EmbeddedBroker, count: int, tags: str = "t") -> None:
    with Producer("makers", **settings(broker)) as producer:
        for number in range(count):
            producer.send(Message("orders", b"%d" % number, tags=tags), queue=QUEUES[number % 4])


def committed(broker: EmbeddedBroker, group: str, topic: str = "ns%orders") -> list[int | None]:
    def query(node: Node) -> list[int | None]:
        return [node.broker.offsets.query(group, topic, number) for number in range(4)]

    return broker.call(query)


def topics(broker: EmbeddedBroker) -> set[str]:
    return broker.call(lambda node: {name for name in node.broker.topics.topics if "%" in name})


def test_a_producer_sends_to_topics_of_its_namespace(broker: EmbeddedBroker) -> None:
    shown: list[MessageQueue] = []

    def select(queues: Sequence[MessageQueue], message: Message, arg: int) -> MessageQueue:
        assert message.topic == "orders"
        shown.extend(queues)
        return queues[arg]

    message = Message("orders", b"1")
    with Producer("makers", **settings(broker)) as producer:
        assert producer.send(message, selector=select, arg=2).message_queue == QUEUES[2]
        assert producer.send(message, queue=QUEUES[1]).message_queue == QUEUES[1]
        assert producer.send([message, message]).message_queue in QUEUES
        assert producer.send_async(message, queue=QUEUES[3]).result(5).message_queue == QUEUES[3]
        assert producer.publish_queues("orders") == QUEUES
        assert producer.publish_queues("ns%orders") == QUEUES  # in it already
    assert shown == QUEUES
    assert message.topic == "orders"
    assert topics(broker) == {"ns%orders"}
    # Who is not in the namespace sees it as it is.
    with LitePullConsumer("outsiders", name_server=broker.name_server) as consumer:
        (queue, *_) = consumer.fetch_message_queues("ns%orders")
        assert queue == MessageQueue("ns%orders", "broker-a", 0)
        consumer.assign(consumer.fetch_message_queues("ns%orders"))
        for queue in consumer.assignment():
            consumer.seek_to_begin(queue)
        messages = drain(consumer, 5)
    assert {item.topic for item in messages} == {"ns%orders"}
    assert [item.property("INSTANCE_ID") for item in messages].count("ns") == 3


def test_a_lite_pull_consumer_shares_topics_of_its_namespace(broker: EmbeddedBroker) -> None:
    send(broker, 8)
    heard: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []
    told: list[ConsumeMessageContext | FilterMessageContext] = []
    filtered: set[str] = set()

    class Hook:
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            told.append(context)

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            """Nothing more."""

        def filter_message(self, context: FilterMessageContext) -> None:
            filtered.update(message.topic for message in context.message_list)
            told.append(context)

    consumer = LitePullConsumer(
        "readers", queue_listener=lambda *args: heard.append(args), **consuming(broker)
    )
    with consumer:
        consumer.register_consume_message_hook(Hook())
        consumer.register_filter_message_hook(Hook())
        consumer.subscribe("orders", "t", lambda *args: heard.append(args))
        messages = drain(consumer, 8)
        assert {item.topic for item in messages} == {"orders"}
        assert {item.message_queue for item in messages} == set(QUEUES)
        assert consumer.assignment() == set(QUEUES)
        assert consumer.fetch_message_queues("orders") == QUEUES
        wait_until(lambda: len(heard) == 2)
        assert heard == [("orders", QUEUES, QUEUES)] * 2
        assert filtered == {"orders"}
        assert {item.consumer_group for item in told} == {"readers"}
        assert {getattr(item, "namespace", "") for item in told} == {"ns", ""}
        assert {item.message_queue for item in told} == set(QUEUES)
        consumer.seek(messages[0].message_queue, 1)
        assert consumer.poll(5)[0].queue_offset == 1
        consumer.pause(QUEUES[:1])
        assert consumer.paused() == {QUEUES[0]}
        consumer.resume(QUEUES)
        consumer.commit_sync({QUEUES[0]: 1})
        assert consumer.committed(QUEUES[0]) == 1
        assert committed(broker, "ns%readers")[0] == 1
        consumer.commit_sync(QUEUES[1:])
        assert consumer.offset_for_timestamp(QUEUES[0], 0) == 0
        assert consumer.poll(0) == []  # done with the message before
        consumer.unsubscribe("orders")
        wait_until(lambda: not consumer.assignment())
    assert committed(broker, "ns%readers") == [2, 2, 2, 2]


def test_assigning_queues_of_a_namespace(broker: EmbeddedBroker) -> None:
    send(broker, 4, "paid")
    send(broker, 4, "sent")
    consumer = LitePullConsumer("readers", **consuming(broker))
    consumer.set_sub_expression_for_assign("orders", "sent")
    changed: list[tuple[str, set[MessageQueue]]] = []
    consumer.build_subscriptions_for_heartbeat({"orders": "sent"})
    consumer.register_topic_message_queue_change_listener(
        "orders", lambda *args: changed.append(args)
    )
    consumer.assign(QUEUES[:2])
    with consumer:
        messages = [*consumer.poll(5), *consumer.poll(5)]
        assert {(item.topic, item.tags) for item in messages} == {("orders", "sent")}
        subscribed = {"ns%orders": "sent"}

        def told(node: Node) -> dict[str, str]:
            group = node.broker.consumers.groups["ns%readers"]
            return {name: data.sub_string for name, data in group.subscriptions.items()}

        wait_until(lambda: broker.call(told) == subscribed)
    assert changed == []


def test_a_push_consumer_retries_within_its_namespace(
    broker: EmbeddedBroker, clock: ManualClock
) -> None:
    send(broker, 1)
    seen: list[tuple[str, MessageQueue, int]] = []

    def listen(
        messages: Sequence[MessageView], context: ConsumeConcurrentlyContext
    ) -> ConsumeStatus:
        (message,) = messages
        seen.append((message.topic, context.message_queue, message.reconsume_times))
        return ConsumeStatus.RECONSUME_LATER

    consumer = PushConsumer("readers", max_reconsume_times=1, **consuming(broker))
    with consumer:
        consumer.subscribe("orders", "t", listen)
        wait_until(lambda: len(seen) == 1)
        wait_until(lambda: "ns%orders" in topics(broker))
        again = MessageQueue("%RETRY%readers", "broker-a", 0)

        def come_again() -> bool:
            clock.advance(10_000)
            broker.run_due()
            return len(seen) == 2

        wait_until(come_again)
        wait_until(lambda: "%DLQ%ns%readers" in topics(broker))
    assert seen == [("orders", QUEUES[0], 0), ("orders", again, 1)]
    assert topics(broker) == {"ns%orders", "%RETRY%ns%readers", "%DLQ%ns%readers"}
    with LitePullConsumer("undertakers", **consuming(broker)) as consumer_of_dead:
        consumer_of_dead.assign([MessageQueue("%DLQ%readers", "broker-a", 0)])
        (dead,) = consumer_of_dead.poll(5)
    assert (dead.topic, dead.body) == ("%DLQ%readers", b"0")


def test_a_pull_consumer_pulls_from_its_namespace(broker: EmbeddedBroker) -> None:
    send(broker, 4)
    with PullConsumer("readers", **settings(broker)) as consumer:
        assert consumer.fetch_subscribe_message_queues("orders") == QUEUES
        result = consumer.pull(QUEUES[1], "*", 0, 10)
        assert [(item.topic, item.message_queue) for item in result.messages] == [
            ("orders", QUEUES[1])
        ]


def test_coroutines_in_a_namespace(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        async with (
            AsyncProducer("makers", **settings(broker)) as producer,
            AsyncLitePullConsumer("readers", **consuming(broker)) as consumer,
        ):
            result = await producer.send(Message("orders", b"1"), selector=lambda qs, *_: qs[2])
            assert result.message_queue == QUEUES[2]
            assert await producer.publish_queues("orders") == QUEUES
            consumer.subscribe("orders")
            async for message in consumer:
                assert (message.topic, message.message_queue) == ("orders", QUEUES[2])
                break

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_names_are_checked_with_their_namespace(broker: EmbeddedBroker) -> None:
    for namespace in "n" * 120, "no spaces":
        with pytest.raises(IllegalNameError):
            LitePullConsumer("readers", name_server=broker.name_server, namespace=namespace)
        with pytest.raises(IllegalNameError):
            Producer("makers", name_server=broker.name_server, namespace=namespace)
