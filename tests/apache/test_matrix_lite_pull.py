"""What a lite pull consumer can do, on our brokers and on Apache's 4.9.7 and 5.5.0 alike."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from orbitmq import LitePullConsumer, MessageQueue, Producer
from orbitmq.testing.wait import wait_until
from tests.apache import remoting
from tests.apache.exchanges import check_received, offsets_by_queue, send_messages
from tests.apache.python_clients import numbered
from tests.consumer_program import FROM_FIRST, Received, received

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.apache.orbit import Cluster

QUEUES = 4  # at each of two brokers
SECOND = 1_000

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def poll(consumer: LitePullConsumer, count: int, timeout: float = 30) -> list[Received]:
    """Polls until so many messages have come, or the time is over."""
    deadline = time.monotonic() + timeout
    rows: list[Received] = []
    while len(rows) < count and time.monotonic() < deadline:
        rows += [received(message) for message in consumer.poll(1)]
    return rows


def test_assigned_queues_are_read_from_where_they_are_sought(cluster: Cluster) -> None:
    topic = cluster.new_topic("assigned", QUEUES, brokers=2)
    rows = send_messages(cluster.name_server, topic, range(80))
    with LitePullConsumer(f"{topic}-readers", name_server=cluster.name_server) as consumer:
        queues = consumer.fetch_message_queues(topic)
        assert len(queues) == 2 * QUEUES
        mine = [queue for queue in queues if queue.queue_id % 2]
        places = {(queue.broker_name, queue.queue_id) for queue in mine}
        consumer.assign(mine)
        assert consumer.assignment() == set(mine)

        for queue in mine:
            consumer.seek_to_begin(queue)
        wanted = [row for row in rows if (row.broker, row.queue) in places]
        check_received(poll(consumer, len(wanted)), wanted)

        for queue in mine:
            consumer.seek(queue, 3)
        wanted = [row for row in wanted if row.offset >= 3]
        again = poll(consumer, len(wanted))
        check_received(again, wanted)
        for offsets in offsets_by_queue(again).values():
            assert offsets == sorted(offsets)

        for queue in mine:
            consumer.seek_to_end(queue)
        rows = send_messages(cluster.name_server, topic, range(80, 160))
        wanted = [row for row in rows if (row.broker, row.queue) in places]
        check_received(poll(consumer, len(wanted)), wanted)


def test_a_paused_queue_waits_until_it_is_resumed(cluster: Cluster) -> None:
    topic = cluster.new_topic("paused", QUEUES)
    paused, other = queues = [MessageQueue(topic, "broker-a", number) for number in (0, 1)]
    with (
        Producer(f"{topic}-senders", name_server=cluster.name_server) as producer,
        LitePullConsumer(f"{topic}-readers", name_server=cluster.name_server) as consumer,
    ):

        def send(numbers: Collection[int]) -> None:
            for number in numbers:
                for queue in queues:
                    producer.send(numbered(topic, number), queue=queue)

        consumer.assign(queues)
        for queue in queues:
            consumer.seek_to_begin(queue)
        send(range(5))
        seen = poll(consumer, 10)
        consumer.pause([paused])
        # What the broker held of it already still comes.
        send([5])
        while ("k5", 1) not in {(row.key, row.queue) for row in seen}:
            seen += poll(consumer, 1)
        send(range(6, 10))
        while ("k9", 1) not in {(row.key, row.queue) for row in seen}:
            seen += poll(consumer, 1)
        assert not {row.key for row in seen if row.queue == 0} & {"k6", "k7", "k8", "k9"}
        consumer.resume([paused])
        seen += poll(consumer, 20 - len(seen))
    for queue in (paused, other):
        assert [row.key for row in seen if row.queue == queue.queue_id] == [
            f"k{number}" for number in range(10)
        ]


def test_a_group_goes_on_where_it_committed(cluster: Cluster) -> None:
    topic = cluster.new_topic("committed", QUEUES, brokers=2)
    rows = send_messages(cluster.name_server, topic, range(80))

    def member() -> LitePullConsumer:
        consumer = LitePullConsumer(
            f"{topic}-readers",
            name_server=cluster.name_server,
            consume_from_where=FROM_FIRST,
            auto_commit=False,
        )
        consumer.subscribe(topic)
        return consumer

    with member() as consumer:
        check_received(poll(consumer, 80), rows)
        queues = consumer.assignment()
        assert len(queues) == 2 * QUEUES
        consumer.commit_sync()
        offsets = offsets_by_queue(rows)
        for queue in queues:
            ends = offsets[queue.broker_name, queue.queue_id]
            assert consumer.committed(queue) == max(ends) + 1
        more = send_messages(cluster.name_server, topic, range(80, 160))
        check_received(poll(consumer, 80), more)
    with member() as consumer:  # what was polled last was not committed
        check_received(poll(consumer, 80), more)
        consumer.commit_sync(dict.fromkeys(queues, 7))
    with member() as consumer:
        wanted = [row for row in [*rows, *more] if row.offset >= 7]
        check_received(poll(consumer, len(wanted)), wanted)


def test_what_a_later_poll_settled_is_committed_at_the_end(cluster: Cluster) -> None:
    topic = cluster.new_topic("automatic", QUEUES, brokers=2)

    def member() -> LitePullConsumer:
        consumer = LitePullConsumer(
            f"{topic}-readers", name_server=cluster.name_server, consume_from_where=FROM_FIRST
        )
        consumer.subscribe(topic)
        return consumer

    for first in (0, 40, 80):
        rows = send_messages(cluster.name_server, topic, range(first, first + 40))
        with member() as consumer:
            check_received(poll(consumer, 40), rows)
            assert not consumer.poll(0)


def test_what_was_polled_is_committed_while_it_goes_on(cluster: Cluster) -> None:
    topic = cluster.new_topic("interval", QUEUES, brokers=2)
    rows = send_messages(cluster.name_server, topic, range(80))
    with LitePullConsumer(
        f"{topic}-readers",
        name_server=cluster.name_server,
        consume_from_where=FROM_FIRST,
        auto_commit_interval_ms=SECOND,
        persist_offset_delay_ms=SECOND,
        persist_offset_interval_ms=SECOND,
    ) as consumer:
        consumer.subscribe(topic)
        check_received(poll(consumer, 80), rows)

        def all_committed() -> bool:
            assert not consumer.poll(0.1)
            return all(
                remoting.committed(broker.address, f"{topic}-readers", topic, queue) == 10
                for broker in cluster.brokers
                for queue in range(QUEUES)
            )

        wait_until(all_committed, timeout=20)
