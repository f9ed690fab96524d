"""Ten thousand messages between OrbitMQ and Apache RocketMQ 5.5.0, both ways.

Apache's Java clients with our broker, our clients with Apache's: each message arrives, as it was
sent, in its order where there is one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message
from tests.apache.exchanges import (
    check_content,
    check_placed,
    check_received,
    number_of,
    offsets_by_queue,
    send_all,
    send_batches,
    send_one_by_one,
)
from tests.apache.java_clients import (
    JavaConsumer,
    JavaLitePullConsumer,
    JavaProducer,
    JavaPushConsumer,
    Sent,
)
from tests.apache.python_clients import (
    PythonConsumer,
    PythonLitePullConsumer,
    PythonPushConsumer,
    new_producer,
    numbered,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.apache.cluster import ApacheCluster
    from tests.apache.jars import ApacheRelease
    from tests.apache.orbit import OrbitCluster
    from tests.consumer_program import Received

COUNT = 10_000
QUEUES = 8

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


# Apache's clients, our broker


def test_java_clients_exchange_messages_through_our_broker(
    apache: ApacheRelease, orbit_cluster: OrbitCluster
) -> None:
    server, topic = orbit_cluster.name_server, orbit_cluster.new_topic("java", QUEUES)
    half, tags, shards = COUNT // 2, "A,B,C,D,E", 8
    with (
        JavaProducer(
            apache, server, topic, half, tags=tags, in_flight=64, group="java-async"
        ) as asynchronous,
        JavaProducer(
            apache, server, topic, half, first=half, tags=tags, shards=shards, group="java-sharded"
        ) as sharded,
    ):
        asynchronous.finish()
        sharded.finish()
    rows = [*asynchronous.sent, *sharded.sent]
    check_placed(rows, [f"k{number}" for number in range(COUNT)])
    with (
        JavaPushConsumer(apache, server, topic, "java-push") as push,
        JavaLitePullConsumer(apache, server, topic, "java-lite-pull") as lite_pull,
        JavaPushConsumer(apache, server, topic, "java-orderly", orderly=True, tags="A") as orderly,
    ):
        for consumer in (push, lite_pull):
            consumer.wait_count(COUNT)
            consumer.stop()
            check_received(consumer.messages, rows)
            assert all(row.tag == "ABCDE"[number_of(row) % 5] for row in consumer.messages)
        orderly.wait_count(COUNT // 5)
        orderly.stop()

    check_received(orderly.messages, [row for row in rows if number_of(row) % 5 == 0])
    assert {row.tag for row in orderly.messages} == {"A"}
    for offsets in offsets_by_queue(orderly.messages).values():
        assert offsets == sorted(offsets)
    in_shards = [number for number in map(number_of, orderly.messages) if number >= half]
    for shard in range(shards):
        sent_in_order = [n for n in range(half, COUNT, 5) if n % shards == shard]
        assert [n for n in in_shards if n % shards == shard] == sent_in_order
    check_same_queues_for_shards(orbit_cluster, sharded.sent, shards)


def check_same_queues_for_shards(cluster: OrbitCluster, rows: Sequence[Sent], shards: int) -> None:
    """Our producer sends each sharding key to the queue that Java's sent it to."""
    javas = {number_of(row) % shards: row.queue for row in rows}
    topic = cluster.new_topic("shards", QUEUES)
    with new_producer("python-sharded", cluster.name_server) as producer:
        ours = {
            shard: producer.send(Message(topic, b"x", sharding_key=f"s{shard}")).message_queue
            for shard in range(shards)
        }
    assert {shard: queue.queue_id for shard, queue in ours.items()} == javas


# Refused messages, either way


def test_what_a_listener_refuses_comes_again(
    apache: ApacheRelease, orbit_cluster: OrbitCluster, apache_cluster: ApacheCluster
) -> None:
    few = range(5)
    keys = [f"k{number}" for number in few]
    java_topic = orbit_cluster.new_topic("refused")
    python_topic = apache_cluster.new_topic("refused")
    for cluster, topic in ((orbit_cluster, java_topic), (apache_cluster, python_topic)):
        with new_producer("refused", cluster.name_server) as producer:
            for number in few:
                producer.send(numbered(topic, number))
    with (
        JavaPushConsumer(
            apache, orbit_cluster.name_server, java_topic, "refusing", fail_first=True
        ) as java,
        PythonPushConsumer(
            apache_cluster.name_server,
            python_topic,
            "refusing",
            fail_first=True,
            poll_name_server_interval_ms=1_000,
        ) as python,
    ):
        for consumer in (java, python):
            consumer.wait_count(2 * len(few))
            first, second = by_reconsume_times(consumer.messages)
            assert sorted(row.key for row in first) == sorted(row.key for row in second) == keys
            assert {row.queue for row in second} == {0}
            check_content(consumer.messages)


def by_reconsume_times(rows: Iterable[Received]) -> list[list[Received]]:
    """The first deliveries, then the second ones, and so on."""
    rounds: dict[int, list[Received]] = defaultdict(list)
    for row in rows:
        rounds[row.reconsume_times].append(row)
    return [rounds[times] for times in sorted(rounds)]


# Our clients, Apache's broker


def test_our_clients_exchange_messages_through_apaches_broker(
    apache: ApacheRelease, apache_cluster: ApacheCluster
) -> None:
    server, topic = apache_cluster.name_server, apache_cluster.new_topic("python", QUEUES)
    with (
        JavaLitePullConsumer(apache, server, topic, "java-reads-ours") as java,
        PythonLitePullConsumer(server, topic, "python-lite-pull") as lite_pull,
        PythonPushConsumer(server, topic, "python-push") as push,
        new_producer("python-producers", server) as producer,
    ):
        rows = [
            *send_all(producer, topic, range(5_000)),
            *send_batches(producer, topic, range(5_000, 8_500)),
            *send_one_by_one(producer, topic, range(8_500, COUNT)),
        ]
        check_placed(rows, [f"k{number}" for number in range(COUNT)])
        consumers: tuple[JavaConsumer | PythonConsumer, ...] = (java, lite_pull, push)
        for consumer in consumers:
            consumer.wait_count(COUNT)
            consumer.stop()
            check_received(consumer.messages, rows)
            check_content(consumer.messages)
    assert sorted(lite_pull.messages) == sorted(java.messages)
    for offsets in offsets_by_queue(lite_pull.messages).values():
        assert offsets == list(range(len(offsets)))
