"""Ten thousand messages between OrbitMQ and Apache RocketMQ 5.5.0, in every pairing.

Apache's Java clients with our broker, our clients with Apache's, and a consumer of each in one
group, on either broker: each message arrives, as it was sent, in its order where there is one.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

import pytest

from orbitmq import Message, Producer, SendStatus
from orbitmq.testing.wait import wait_until
from tests.apache.cluster import ApacheCluster
from tests.apache.java_clients import (
    JavaConsumer,
    JavaLitePullConsumer,
    JavaProducer,
    JavaPushConsumer,
    Received,
    Sent,
    body_of,
)
from tests.apache.orbit import (
    TAGS,
    OrbitCluster,
    PythonConsumer,
    PythonLitePullConsumer,
    PythonPushConsumer,
    numbered,
    sent,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orbitmq import SendResult
    from tests.apache.jars import ApacheRelease

COUNT = 10_000
QUEUES = 8
ALL_QUEUES = set(range(QUEUES))
SECONDS = 90

Cluster: TypeAlias = OrbitCluster | ApacheCluster
Consumer: TypeAlias = JavaConsumer | PythonConsumer

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


@pytest.fixture(scope="module")
def orbit_cluster(apache: ApacheRelease) -> Iterator[OrbitCluster]:
    """Our name server and broker, shared by the tests here; only where Apache can judge it."""
    with OrbitCluster() as cluster:
        yield cluster


@pytest.fixture(params=["orbit", "apache"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Our name server and broker, then Apache's."""
    found: Cluster = request.getfixturevalue(f"{request.param}_cluster")
    return found


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
            consumer.wait_count(COUNT, SECONDS)
            consumer.stop()
            check_received(consumer.messages, rows)
            assert all(row.tag == "ABCDE"[number_of(row) % 5] for row in consumer.messages)
        orderly.wait_count(COUNT // 5, SECONDS)
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
    with Producer("python-sharded", name_server=cluster.name_server) as producer:
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
        with Producer("refused", name_server=cluster.name_server) as producer:
            for number in few:
                producer.send(numbered(topic, number))
    with (
        JavaPushConsumer(
            apache, orbit_cluster.name_server, java_topic, "refusing", fail_first=True
        ) as java,
        PythonPushConsumer(
            apache_cluster.name_server, python_topic, "refusing", fail_first=True
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
        Producer("python-producers", name_server=server) as producer,
    ):
        rows = [
            *send_all(producer, topic, range(5_000)),
            *send_batches(producer, topic, range(5_000, 8_500)),
            *send_one_by_one(producer, topic, range(8_500, COUNT)),
        ]
        check_placed(rows, [f"k{number}" for number in range(COUNT)])
        consumers: tuple[Consumer, ...] = (java, lite_pull, push)
        for consumer in consumers:
            consumer.wait_count(COUNT, SECONDS)
            consumer.stop()
            check_received(consumer.messages, rows)
            check_content(consumer.messages)
    assert sorted(lite_pull.messages) == sorted(java.messages)
    for offsets in offsets_by_queue(lite_pull.messages).values():
        assert offsets == list(range(len(offsets)))


def send_all(producer: Producer, topic: str, numbers: Iterable[int]) -> list[Sent]:
    """Sends without waiting for one before the next."""
    under_way = [(f"k{n}", producer.send_async(numbered(topic, n))) for n in numbers]
    return [row for key, future in under_way for row in stored([key], future.result(SECONDS))]


def send_batches(producer: Producer, topic: str, numbers: range, size: int = 32) -> list[Sent]:
    """Sends so many messages at once."""
    rows: list[Sent] = []
    for first in range(numbers.start, numbers.stop, size):
        batch = [numbered(topic, n) for n in range(first, min(first + size, numbers.stop))]
        rows += stored([message.keys or "" for message in batch], producer.send(batch))
    return rows


def send_one_by_one(producer: Producer, topic: str, numbers: Iterable[int]) -> list[Sent]:
    """Sends each when the one before is stored."""
    return [row for n in numbers for row in stored([f"k{n}"], producer.send(numbered(topic, n)))]


def stored(keys: Sequence[str], result: SendResult) -> list[Sent]:
    """Where the messages are, once the broker said that it has them."""
    assert result.status is SendStatus.SEND_OK
    return sent(keys, result)


# One group, both languages


@pytest.mark.parametrize(
    ("java_type", "python_type"),
    [
        pytest.param(JavaLitePullConsumer, PythonLitePullConsumer, id="lite-pull"),
        pytest.param(JavaPushConsumer, PythonPushConsumer, id="push"),
    ],
)
def test_java_and_python_share_a_group(
    apache: ApacheRelease,
    cluster: Cluster,
    java_type: type[JavaLitePullConsumer | JavaPushConsumer],
    python_type: type[PythonLitePullConsumer | PythonPushConsumer],
) -> None:
    server, topic = cluster.name_server, cluster.new_topic("shared", QUEUES)
    group = f"sharing-{java_type.__name__}"
    with (
        Producer("sharing", name_server=server) as producer,
        ThreadPoolExecutor(1) as sender,
        java_type(apache, server, topic, group) as java,
    ):

        def send_while_leaving(numbers: range, leaver: Consumer) -> list[Sent]:
            seen, middle = leaver.count, len(numbers) // 2
            stored_before = send_one_by_one(producer, topic, numbers[:middle])
            leaver.wait_count(seen + 1)
            sending = sender.submit(send_one_by_one, producer, topic, numbers[middle:])
            leaver.stop()
            return stored_before + sending.result(SECONDS)

        with python_type(server, topic, group) as python:
            wait_shared(java, python)
            rows = send_all(producer, topic, range(4_000))
            wait_received(rows, java, python)
            check_received([*java.messages, *python.messages], rows)
            for consumer in (java, python):
                assert set(offsets_by_queue(consumer.messages)) == consumer.queues

            rows += send_while_leaving(range(4_000, 7_000), python)
        wait_received(rows, java, python)
        # Ours saved how far it was before it left, so nothing came twice.
        check_received([*java.messages, *python.messages], rows)
        java.wait_until(lambda: java.queues == ALL_QUEUES, "all queues")

        with python_type(server, topic, group) as successor:
            wait_shared(java, successor)
            rows += send_while_leaving(range(7_000, COUNT), java)
            wait_received(rows, java, python, successor)
            wait_until(lambda: successor.queues == ALL_QUEUES, "all queues")
    check_placed(rows, [f"k{number}" for number in range(COUNT)])
    deliveries = [*java.messages, *python.messages, *successor.messages]
    check_content(deliveries)
    # Java's may leave a queue with messages that it consumed since it last saved its offsets.
    check_received(set(deliveries), rows)


def wait_shared(java: JavaConsumer, python: PythonConsumer) -> None:
    """Waits until each has half the queues, and together they have them all."""

    def balanced() -> bool:
        halves = len(java.queues) == len(python.queues) == QUEUES // 2
        return halves and java.queues | python.queues == ALL_QUEUES

    wait_until(balanced, "a fair share for both", timeout=SECONDS)


def wait_received(rows: Sequence[Sent], *consumers: Consumer) -> None:
    """Waits until each message has come to one of them at least."""
    wanted = {row.key for row in rows}

    def missing() -> set[str]:
        if sum(consumer.count for consumer in consumers) < len(wanted):
            return wanted
        return wanted - {row.key for consumer in consumers for row in consumer.messages}

    with suppress(TimeoutError):
        wait_until(lambda: not missing(), timeout=SECONDS)
    never = sorted(wanted - {row.key for consumer in consumers for row in consumer.messages})
    assert not never, f"{len(never)} of {len(rows)} messages never came, such as {never[:5]}"


# What must hold


def check_placed(rows: Sequence[Sent], keys: Sequence[str]) -> None:
    """Each message was stored once, and each queue has them with no gap."""
    assert sorted(row.key for row in rows) == sorted(keys)
    for offsets in offsets_by_queue(rows).values():
        assert sorted(offsets) == list(range(len(offsets)))


def check_received(deliveries: Iterable[Received], rows: Iterable[Sent]) -> None:
    """Each message came once, from where it was stored, and with its body."""
    deliveries = list(deliveries)
    assert sorted(delivery[:4] for delivery in deliveries) == sorted(rows)
    assert all(zlib.crc32(body_of(delivery.key)) == delivery.crc for delivery in deliveries)


def check_content(deliveries: Iterable[Received]) -> None:
    """Messages made by `numbered` came as they were made."""
    for delivery in deliveries:
        assert delivery.crc == zlib.crc32(body_of(delivery.key))
        assert delivery.tag == TAGS[number_of(delivery) % len(TAGS)]


def number_of(row: Received | Sent) -> int:
    """The number in the message's key."""
    return int(row.key[1:])


def offsets_by_queue(rows: Iterable[Received] | Iterable[Sent]) -> dict[int, list[int]]:
    """The offsets of each queue, in the order of the rows."""
    offsets: dict[int, list[int]] = defaultdict(list)
    for row in rows:
        offsets[row.queue].append(row.offset)
    return offsets
