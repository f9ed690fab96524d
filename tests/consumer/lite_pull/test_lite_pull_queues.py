"""The queues of lite pull consumers: assigned, paused, changed, and who hears of that."""

from __future__ import annotations

import pytest

from orbitmq import LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.node import Node
from orbitmq.consumer.lite_pull.core import LitePullCore
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import TopicConfig
from tests.consumer.lite_pull.lite_pulling import QUEUES, drain, make, numbers, send


def test_pausing(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    with make(broker, pull_delay_when_paused_ms=600_000) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4)
        consumer.pause([QUEUES[1]])
        send(producer, 4)
        # The pull that the broker holds already still brings one message.
        assert {item.queue_id for item in drain(consumer, 4)} == {0, 1, 2, 3}
        send(producer, 4)
        assert {item.queue_id for item in drain(consumer, 3)} == {0, 2, 3}
        assert consumer.poll(0.2) == []
        consumer.resume([QUEUES[1]])  # which ends the wait of a paused queue
        assert [item.queue_id for item in drain(consumer, 1)] == [1]


def test_assigned_queues_are_taken_whatever_others_do(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 40)
    with make(broker) as one, make(broker) as two:
        one.assign(QUEUES[:2])
        two.assign(QUEUES[1:3])
        assert one.assignment() == set(QUEUES[:2])
        assert {item.queue_id for item in drain(one, 20)} == {0, 1}
        assert {item.queue_id for item in drain(two, 20)} == {1, 2}
        two.assign(QUEUES[3:])
        assert {item.queue_id for item in drain(two, 10)} == {3}
        with pytest.raises(ClientStateError, match="mutually exclusive"):
            two.subscribe("orders")
        with pytest.raises(ConfigError, match="one queue at least"):
            two.assign([])


def test_a_queue_assigned_away_and_back_goes_on_where_it_was(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 40)
    with make(broker) as consumer:
        consumer.assign(QUEUES[:1])
        drain(consumer, 10)
        consumer.poll(0)
        consumer.assign(QUEUES[1:2])
        consumer.assign(QUEUES[:1])
        producer.send(Message("orders", b"40"), queue=QUEUES[0])
        assert numbers(drain(consumer, 1)) == [40]


def test_assigning_may_choose_by_tag(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4, tags="paid")
    send(producer, 4, tags="sent")
    consumer = make(broker)
    consumer.assign(QUEUES, "sent")
    with consumer:
        assert {item.tags for item in drain(consumer, 4)} == {"sent"}


def test_unsubscribing_gives_the_queues_up(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4)
        consumer.poll(0)
        consumer.unsubscribe("orders")
        wait_until(lambda: not consumer.assignment())
        send(producer, 4)
        assert consumer.poll(0.2) == []
        consumer.subscribe("orders")
        assert numbers(drain(consumer, 4)) == [0, 1, 2, 3]


def test_a_listener_hears_of_changed_queues(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    heard: list[tuple[str, int, int]] = []

    def changed(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
        heard.append((topic, len(every), len(mine)))

    consumer = LitePullConsumer("readers", queue_listener=changed, name_server=broker.name_server)
    with consumer:
        consumer.subscribe("orders")
        wait_until(lambda: heard)
    assert heard == [("orders", 4, 4)]


def test_a_listener_of_one_topic_hears_of_its_queues(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 4)
    producer.send(Message("bills", b"1"))
    heard: dict[str, list[MessageQueue]] = {}

    def changed(topic: str, _every: list[MessageQueue], mine: list[MessageQueue]) -> None:
        heard[topic] = mine

    with make(broker) as consumer:
        consumer.subscribe("orders", "*", changed)
        consumer.subscribe("bills")
        wait_until(lambda: heard and len(consumer.assignment()) == 8)
    assert heard == {"orders": QUEUES}


def test_pausing_what_is_just_being_assigned(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 8)
    consumer = make(broker)
    consumer.assign(QUEUES[:2])
    consumer.pause(QUEUES)
    assert consumer.paused() == set(QUEUES[:2])
    with consumer:
        assert consumer.poll(0.2) == []
        consumer.assign(QUEUES[1:3])  # and what came anew is not paused
        assert {item.queue_id for item in drain(consumer, 2)} == {2}
        assert consumer.paused() == {QUEUES[1]}
        consumer.resume(QUEUES)
        assert {item.queue_id for item in drain(consumer, 2)} == {1}
        consumer.assign(QUEUES[:1])
        consumer.pause(QUEUES[:1])
        assert consumer.poll(0.2) == []


def test_a_queue_that_goes_and_comes_back_is_not_paused(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 4)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4)
        consumer.pause(QUEUES)
        consumer.unsubscribe("orders")
        wait_until(lambda: not consumer.assignment())
        assert consumer.paused() == set()


def test_expressions_for_assigned_topics_are_set_before_the_start(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 4, tags="paid")
    send(producer, 4, tags="sent")
    consumer = make(broker)
    with pytest.raises(ConfigError, match="expression"):
        consumer.set_sub_expression_for_assign("orders", "")
    consumer.set_sub_expression_for_assign("orders", "sent")
    with pytest.raises(ClientStateError, match="mutually exclusive"):
        consumer.subscribe("orders")
    consumer.assign(QUEUES[:2])
    with consumer:
        assert {item.tags for item in drain(consumer, 2)} == {"sent"}
        consumer.assign(QUEUES[2:3], "paid")
        assert {item.tags for item in drain(consumer, 1)} == {"paid"}
        consumer.assign(QUEUES[3:])
        assert {item.tags for item in drain(consumer, 1)} == {"sent"}
        with pytest.raises(ClientStateError, match="before start"):
            consumer.set_sub_expression_for_assign("orders", "paid")


def told(broker: EmbeddedBroker) -> dict[str, str]:
    """What the broker knows that the group subscribes to."""

    def look(node: Node) -> dict[str, str]:
        group = node.broker.consumers.groups.get("readers")
        subscriptions = group.subscriptions if group is not None else {}
        return {topic: data.sub_string for topic, data in subscriptions.items()}

    return broker.call(look)


def test_heartbeats_may_tell_of_what_is_assigned(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 4)
    with make(broker) as consumer:
        consumer.assign(QUEUES)
        drain(consumer, 4)
        assert told(broker) == {}
        consumer.build_subscriptions_for_heartbeat({"orders": "paid || sent"})
        wait_until(lambda: told(broker) == {"orders": "paid || sent"})
        consumer.build_subscriptions_for_heartbeat({"orders": "*"})
        wait_until(lambda: told(broker) == {"orders": "*"})
        send(producer, 4)
        drain(consumer, 4)
        assert consumer.assignment() == set(QUEUES)


def resize(broker: EmbeddedBroker, queues: int) -> None:
    topic = TopicConfig("orders", read_queue_nums=queues, write_queue_nums=queues)
    broker.call(lambda node: node.broker.topics.put(topic))


def test_a_listener_hears_when_the_queues_of_a_topic_change(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 4)
    early: list[tuple[str, set[MessageQueue]]] = []
    late: list[tuple[str, set[MessageQueue]]] = []
    consumer = make(broker, topic_metadata_check_interval_ms=20)
    consumer.register_topic_message_queue_change_listener(
        "orders", lambda topic, queues: early.append((topic, queues))
    )
    with consumer:
        consumer.assign(QUEUES)
        drain(consumer, 4)
        assert early == []
        resize(broker, 5)
        wait_until(lambda: early)
        queues = {*QUEUES, MessageQueue("orders", "broker-a", 4)}
        assert early == [("orders", queues)]
        consumer.register_topic_message_queue_change_listener(
            "orders", lambda topic, queues: late.append((topic, queues))
        )
        resize(broker, 4)
        wait_until(lambda: late)
        assert late == [("orders", set(QUEUES))]
        assert early == [("orders", queues)]


def test_a_topic_that_comes_into_being_is_a_change(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[set[MessageQueue]] = []
    with make(broker, topic_metadata_check_interval_ms=20) as consumer:
        consumer.register_topic_message_queue_change_listener(
            "orders", lambda _, queues: heard.append(queues)
        )
        wait_until(lambda: "cannot be looked at now" in caplog.text)
        send(producer, 1)
        wait_until(lambda: heard)
    assert heard == [set(QUEUES)]


def test_brokers_can_tell_subscriptions_made_in_one_millisecond_apart() -> None:
    core = LitePullCore("readers", {"name_server": "127.0.0.1:1"}, clock=ManualClock())
    versions = []
    for expression in ("paid", "sent", "*"):
        core.subscribe("orders", expression)
        core.build_subscriptions_for_heartbeat({"bills": expression})
        versions += [subscription.sub_version for subscription in core.subscriptions()]
    assert len(set(versions)) == 6
