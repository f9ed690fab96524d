"""What a lite pull consumer can do, on our brokers and on Apache's 4.9.7 and 5.5.0 alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq import LitePullConsumer, MessageQueue
from tests.apache import remoting
from tests.apache.exchanges import check_received, offsets_by_queue, send_messages
from tests.apache.python_clients import PATIENT, new_producer, numbered
from tests.consumer_program import FROM_FIRST, Received, received
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.apache.orbit import Cluster

QUEUES = 4  # at each of two brokers
SECOND = 1_000

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


def poll(consumer: LitePullConsumer, count: int) -> list[Received]:
    """Polls until so many messages have come."""
    rows: list[Received] = []

    def all_came() -> bool:
        rows.extend(received(message) for message in consumer.poll(1))
        return len(rows) >= count

    eventually(all_came, f"{count} messages", lambda: sorted(row[:4] for row in rows))
    return rows


def test_assigned_queues_are_read_from_where_they_are_sought(cluster: Cluster) -> None:
    topic = cluster.new_topic("assigned", QUEUES, brokers=2)
    rows = send_messages(cluster.name_server, topic, range(80))
    with LitePullConsumer(
        f"{topic}-readers", name_server=cluster.name_server, **PATIENT
    ) as consumer:
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
        new_producer(f"{topic}-senders", cluster.name_server) as producer,
        LitePullConsumer(
            f"{topic}-readers", name_server=cluster.name_server, **PATIENT
        ) as consumer,
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
        # What the pull that its broker holds already brings still comes, and no more.
        for number in range(5, 10):
            send([number])
            while (f"k{number}", 1) not in {(row.key, row.queue) for row in seen}:
                seen += poll(consumer, 1)
        assert ("k9", 0) not in {(row.key, row.queue) for row in seen}
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
            **PATIENT,
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
            f"{topic}-readers",
            name_server=cluster.name_server,
            consume_from_where=FROM_FIRST,
            **PATIENT,
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
        **PATIENT,
    ) as consumer:
        consumer.subscribe(topic)
        check_received(poll(consumer, 80), rows)

        def commits() -> list[int]:
            return [
                remoting.committed(broker.address, f"{topic}-readers", topic, queue)
                for broker in cluster.brokers
                for queue in range(QUEUES)
            ]

        def all_committed() -> bool:
            assert not consumer.poll(0.1)
            return set(commits()) == {10}

        eventually(all_committed, "all to be committed", commits)
