"""The pull consumer as a member of its group: its share of the queues, and the group's offsets."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from orbitmq import Producer, PullConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.offsets import NO_OFFSET, OffsetStore
from orbitmq.filters.subscription import MessageSelector
from orbitmq.message import MessageQueue, PullStatus
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumeType, SubscriptionData
from tests.consumer.push.pushing import QUEUES, committed, send

Q0, Q1 = QUEUES[:2]


def make(broker: EmbeddedBroker, **settings: Any) -> PullConsumer:
    settings.setdefault("topics", "orders")
    return PullConsumer("readers", name_server=broker.name_server, **settings)


def wait_for_all(consumer: PullConsumer) -> None:
    wait_until(lambda: consumer.fetch_message_queues_in_balance("orders") == QUEUES)


class Changes:
    """A listener that keeps what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, list[MessageQueue], list[MessageQueue]]] = []
        self.threads: set[str] = set()

    def __call__(
        self, topic: str, all_queues: list[MessageQueue], mine: list[MessageQueue]
    ) -> None:
        self.threads.add(threading.current_thread().name)
        self.heard.append((topic, all_queues, mine))


def test_consumers_share_registered_topics_and_hear_of_changes(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    changes = Changes()
    with make(broker, queue_listener=changes) as first:
        wait_for_all(first)
        with make(broker) as second:
            wait_until(
                lambda: (
                    len(first.fetch_message_queues_in_balance("orders"))
                    == len(second.fetch_message_queues_in_balance("orders"))
                    == 2
                )
            )
            mine, others = (
                set(consumer.fetch_message_queues_in_balance("orders"))
                for consumer in (first, second)
            )
            assert mine | others == set(QUEUES)
            elsewhere = min(others)
            assert first.pull(elsewhere, "*", 0, 1).status is PullStatus.FOUND
        wait_for_all(first)
        wait_until(lambda: len(changes.heard) == 3)
    shares = [(topic, sorted(queues), len(mine)) for topic, queues, mine in changes.heard]
    assert shares == [("orders", QUEUES, 4), ("orders", QUEUES, 2), ("orders", QUEUES, 4)]
    assert changes.threads == {"orbitmq-callbacks"}


def test_a_topic_registered_while_it_runs_is_shared_too(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    changes = Changes()
    with make(broker, topics=()) as consumer:
        assert consumer.fetch_message_queues_in_balance("orders") == []
        consumer.register_message_queue_listener("orders", changes)
        wait_for_all(consumer)
        wait_until(lambda: [topic for topic, *_ in changes.heard] == ["orders"])


def test_a_topic_that_is_pulled_is_balanced_without_being_announced(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    with make(broker, topics=()) as consumer:
        consumer.pull(Q0, "*", 0, 1)
        wait_for_all(consumer)
        assert announced(broker) == {}


def announced(broker: EmbeddedBroker) -> dict[str, SubscriptionData]:
    """What the broker knows of the group's subscriptions."""

    def look(node: Any) -> dict[str, SubscriptionData]:
        group = node.broker.consumers.groups["readers"]
        assert group.consume_type is ConsumeType.CONSUME_ACTIVELY
        assert group.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        return dict(group.subscriptions)

    return broker.call(look)


def test_registered_topics_are_announced_with_what_is_wanted_of_them(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    wanted = {"orders": "*", "bills": "due", "parcels": MessageSelector.by_sql("weight > 5")}
    with make(broker, topics=wanted) as consumer:
        wait_for_all(consumer)
        known = announced(broker)
    told = {topic: (data.expression_type, data.sub_string) for topic, data in known.items()}
    assert told == {
        "orders": ("TAG", "*"),
        "bills": ("TAG", "due"),
        "parcels": ("SQL92", "weight > 5"),
    }
    assert known["orders"].sub_version == 0  # no newer than what a filter says
    assert known["bills"].sub_version > 0


def test_without_rebalance_it_has_no_queue_in_balance(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    with make(broker, enable_rebalance=False) as consumer, make(broker) as other:
        assert consumer.pull(Q0, "*", 0, 1).status is PullStatus.FOUND
        wait_until(lambda: len(other.fetch_message_queues_in_balance("orders")) == 2)
        assert consumer.fetch_message_queues_in_balance("orders") == []
        consumer.update_consume_offset(Q0, 1)
        consumer.persist(Q0)
        assert committed(broker)[0] == 1


def test_offsets_are_read_from_memory_or_from_the_broker(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(8))
    with make(broker) as consumer:
        wait_for_all(consumer)
        consumer.update_consume_offset(Q0, 2)
        assert consumer.fetch_consume_offset(Q0) == 2
        assert consumer.fetch_consume_offset(Q0, from_store=True) == 0
        assert consumer.fetch_consume_offset(Q0) == 2  # what was read does not undo what was set
        consumer.persist(Q0)
        assert consumer.fetch_consume_offset(Q0, from_store=True) == 2


def test_a_group_without_an_offset_has_none(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, range(8))  # of a queue whose beginning is still there a broker says 0
    with make(broker, offset_store=Shelf()) as consumer:
        assert consumer.fetch_consume_offset(Q0) == -1
        assert consumer.fetch_consume_offset(Q0, from_store=True) == -1


def test_offsets_of_queues_in_balance_are_saved_by_and_by(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(8))
    with make(broker, persist_offset_delay_ms=20, persist_offset_interval_ms=20) as consumer:
        wait_for_all(consumer)
        consumer.update_consume_offset(Q0, 1)
        wait_until(lambda: committed(broker)[0] == 1)
        consumer.update_consume_offset(Q0, 2)
        wait_until(lambda: committed(broker)[0] == 2)


def test_offsets_of_queues_in_balance_are_saved_at_the_end(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(8))
    with make(broker) as consumer:
        wait_for_all(consumer)
        for queue in QUEUES:
            consumer.update_consume_offset(queue, 1 + queue.queue_id % 2)
    assert committed(broker) == [1, 2, 1, 2]
    with make(broker) as consumer:
        assert [consumer.fetch_consume_offset(queue) for queue in QUEUES] == [1, 2, 1, 2]


def test_an_offset_set_before_the_queue_was_in_balance_is_saved_too(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(8))
    with make(broker, topics=()) as consumer:
        consumer.update_consume_offset(Q0, 2)
        consumer.pull(Q0, "*", 2, 1)
        wait_for_all(consumer)
    assert committed(broker)[0] == 2


def test_a_queue_that_goes_takes_its_offset_along(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(8))
    with make(broker) as first:
        wait_for_all(first)
        for queue in QUEUES:
            first.update_consume_offset(queue, 1)
        with make(broker) as second:
            wait_until(lambda: len(second.fetch_message_queues_in_balance("orders")) == 2)
            taken = second.fetch_message_queues_in_balance("orders")
            wait_until(lambda: {committed(broker)[queue.queue_id] for queue in taken} == {1})
            for queue in taken:
                assert second.fetch_consume_offset(queue) == 1
                assert queue not in first._core.offsets.clone()


def test_under_broadcasting_each_has_all_queues_and_its_own_offsets(
    broker: EmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    send(producer, range(8))
    own: dict[str, Any] = {"message_model": "BROADCASTING", "local_offset_dir": str(tmp_path)}
    with (
        make(broker, instance_name="one", **own) as one,
        make(broker, instance_name="two", **own) as two,
    ):
        wait_for_all(one)
        wait_for_all(two)
        one.update_consume_offset(Q0, 2)
        two.update_consume_offset(Q0, 1)
    with make(broker, instance_name="one", **own) as one:
        assert one.fetch_consume_offset(Q0) == 2
        assert one.fetch_consume_offset(Q0, from_store=True) == 2
        assert one.fetch_consume_offset(Q1) == NO_OFFSET
    assert committed(broker) == [-1] * 4


class Shelf(OffsetStore):
    """A store of a user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.saved: dict[MessageQueue, int] = {}

    async def fetch(self, queue: MessageQueue) -> int:
        return self.saved.get(queue, NO_OFFSET)

    async def save(self, offsets: Mapping[MessageQueue, int], *, confirmed: bool) -> None:
        self.saved.update(offsets)


def test_offsets_may_be_kept_elsewhere(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, range(8))
    shelf = Shelf()
    with make(broker, offset_store=shelf) as consumer:
        wait_for_all(consumer)
        consumer.update_consume_offset(Q1, 2)
    assert shelf.saved == {Q1: 2}
    assert committed(broker) == [-1] * 4


@pytest.mark.parametrize("group", ["", "DEFAULT_CONSUMER", "a b"])
def test_groups_are_checked(broker: EmbeddedBroker, group: str) -> None:
    with pytest.raises(ValueError, match="group"):
        PullConsumer(group, name_server=broker.name_server)
