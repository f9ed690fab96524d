"""Spark itself on Apache's brokers: what every guarantee writes, and what groups have read.

The parts of it have tests of their own, without Spark: test_spark_source.py, test_spark_sink.py.
"""

from __future__ import annotations

import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from orbitmq import Admin
from orbitmq.spark.sink import sending
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire.properties import encode_properties
from tests.apache.java_clients import JavaLitePullConsumer
from tests.apache.mqadmin import Mqadmin
from tests.patience import PATIENCE_SECONDS, eventually
from tests.spark.conftest import spark  # noqa: F401 - a fixture
from tests.spark.crashes.counting import bodies

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.apache.cluster import ApacheCluster

pytestmark = [pytest.mark.apache, pytest.mark.spark, pytest.mark.xdist_group("jvm")]

ONCE = ("idempotent", "exactly_once")
GUARANTEES = ("at_least_once", *ONCE)


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender waits for a broker that must itself wait for the processor."""
    monkeypatch.setattr(sending, "SEND_TIMEOUT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture
def copies(
    spark: SparkSession,  # noqa: F811
    old_apache_cluster: ApacheCluster,
    apache_cluster: ApacheCluster,
    tmp_path: Path,
) -> list[Copies]:
    """Of both versions, for what takes its time and can be waited for once."""
    return [Copies(spark, one, tmp_path) for one in (old_apache_cluster, apache_cluster)]


def ends_of(cluster: ApacheCluster, topic: str) -> dict[tuple[str, int], int]:
    """Where the queues of ``topic`` end, by broker and number."""
    client = TopicClient((cluster.name_server,), topic)
    client.refresh()
    return {queue[1:]: bound.end for queue, bound in client.bounds(all_brokers=True).items()}


class Copies:
    """Copies of a topic of one cluster, one for each guarantee; all topics are on two brokers."""

    def __init__(self, session: SparkSession, cluster: ApacheCluster, home: Path) -> None:
        self.cluster = cluster
        self.sent: Counter[str] = Counter()
        self.source = cluster.new_topic("spark-source", queues=2, brokers=2)
        self.sinks = {
            guarantee: cluster.new_topic(f"spark-{guarantee}", queues=2, brokers=2)
            for guarantee in GUARANTEES
        }
        self._session = session
        self._home = home / cluster.release.version

    def send(self, *bodies: str) -> None:
        """Send to the source, and wait until it can be read."""
        with closing(Sender((self.cluster.name_server,), "spark")) as sender:
            for number, body in enumerate(bodies):
                properties = encode_properties({"TAGS": "UA"})
                sender.add(self.source, Outgoing(body.encode(), properties, str(number % 5)))
            sender.finish()
        self.sent.update(bodies)
        self.wait_for(self.source, self.sent.total())

    def wait_for(self, topic: str, count: int) -> None:
        """Apache shows messages a little after it acknowledged them."""

        def readable() -> int:
            return sum(ends_of(self.cluster, topic).values())

        eventually(lambda: readable() >= count, f"{count} messages of {topic}", readable)

    def start(self, guarantee: str, **options: str) -> StreamingQuery:
        """Copies what is there now; returns when its planner has begun."""
        frame = (
            self._session.readStream.format("rocketmq")
            .options(nameServer=self.cluster.name_server, topic=self.source)
            .options(startingOffsets="earliest", group=group_of(guarantee), **options)
            .load()
        )
        query = (
            frame.select("body", "tags").writeStream.format("rocketmq")
            .options(**self._sink(guarantee))
            .option("checkpointLocation", str(self._home / guarantee))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        # Spark gives a planner's Python ten seconds to start: not many at once.
        eventually(
            lambda: not query.isActive or "Initializing" not in query.status["message"],
            "a planner",
            lambda: query.status,
        )
        return query

    def write_batch(self, guarantee: str, *bodies: str) -> None:
        """Write a batch, under a name by which it is known when it is written again."""
        frame = self._session.createDataFrame([(body.encode(),) for body in bodies], "body BINARY")
        named = {"writeId": "nightly"} if guarantee in ONCE else {}
        writer = frame.repartition(2).write.format("rocketmq").mode("append")
        writer.options(**self._sink(guarantee), **named).save()

    def _sink(self, guarantee: str) -> dict[str, str]:
        return {
            "nameServer": self.cluster.name_server,
            "topic": self.sinks[guarantee],
            "deliveryGuarantee": guarantee,
        }

    def forget_last(self, guarantee: str) -> None:
        """As if Spark had been killed between the sink's last commit and its own."""
        commits = self._home / guarantee / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / f"{last}").unlink()
        (commits / f".{last}.crc").unlink()

    def check_sinks(self, expected: Counter[str], guarantees: tuple[str, ...]) -> None:
        """All is there, as often as is promised."""
        for guarantee in guarantees:
            self.wait_for(self.sinks[guarantee], expected.total())
            found = bodies(self.cluster.name_server, self.sinks[guarantee])
            where = f"{guarantee}, {self.cluster.release.version}"
            assert not expected - found, where
            assert guarantee == "at_least_once" or found == expected, where

    def check_groups(self, guarantees: tuple[str, ...]) -> None:
        """The groups have read all of the source, which brokers know before a query ends."""
        with Admin(name_server=self.cluster.name_server) as admin:
            for guarantee in guarantees:
                progress = admin.consumer_progress(group_of(guarantee), self.source)
                read = {one.queue[1:]: one.consumer_offset for one in progress.queues}
                assert read == ends_of(self.cluster, self.source), guarantee


def group_of(guarantee: str) -> str:
    return f"spark-{guarantee}"


def kill_and_start(clusters: list[ApacheCluster]) -> None:
    """One broker of each, all at one time."""
    for cluster in clusters:
        cluster.broker.kill()
    with ThreadPoolExecutor(len(clusters)) as starting:
        for started in [starting.submit(cluster.broker.start) for cluster in clusters]:
            started.result()


def test_streams_through_a_killed_broker_and_batches_that_are_run_again(
    copies: list[Copies],
) -> None:
    for one in copies:
        one.send(*[f"{number % 800}" for number in range(1500)])
    limit = {"maxOffsetsPerTrigger": "600"}
    running = [one.start(guarantee, **limit) for guarantee in GUARANTEES for one in copies]
    kill_and_start([one.cluster for one in copies])
    for query in running:
        assert query.awaitTermination(int(PATIENCE_SECONDS))
    for one in copies:
        one.check_sinks(one.sent, GUARANTEES)
        # What a group has read, a broker that is killed may forget; the next batch tells it again.
        one.send(*[f"{number % 30}" for number in range(100)])
        for guarantee in ONCE:
            one.forget_last(guarantee)
            assert one.start(guarantee).awaitTermination(int(PATIENCE_SECONDS))
        one.check_sinks(one.sent, ONCE)
        one.check_groups(ONCE)
    check_with_java(copies)


def check_with_java(copies: list[Copies]) -> None:
    """Apache's own programs see plain messages, and where the groups are."""
    with ExitStack() as opened:
        consumers = [
            opened.enter_context(java_consumer(one.cluster, one.sinks["exactly_once"]))
            for one in copies
        ]
        newest = copies[-1].cluster
        mqadmin = opened.enter_context(Mqadmin(newest.release, newest.name_server))
        for one, consumer in zip(copies, consumers, strict=True):
            count = one.sent.total()
            consumer.wait_until(lambda: consumer.count >= count, f"{count} messages")  # noqa: B023
            crcs = Counter(zlib.crc32(body.encode()) for body in one.sent.elements())
            assert Counter(message.crc for message in consumer.messages) == crcs
            assert {message.tag for message in consumer.messages} == {"UA"}
            name_server, group = one.cluster.name_server, group_of("exactly_once")
            shown = mqadmin.run(
                "consumerProgress", "-n", name_server, "-g", group, "-t", one.source
            )
            assert "Consume Diff Total: 0\n" in shown
            assert shown.count(one.source) == len(ends_of(one.cluster, one.source))


def java_consumer(cluster: ApacheCluster, topic: str) -> JavaLitePullConsumer:
    name_server = cluster.name_server
    return JavaLitePullConsumer(cluster.release, name_server, topic, "java", assign=True)


def test_batches_that_are_written_again(copies: list[Copies]) -> None:
    rows = [f"{number % 20}" for number in range(30)]
    for one in copies:
        one.write_batch("at_least_once", *rows)
        for guarantee in ONCE:
            one.write_batch(guarantee, *rows)
            one.write_batch(guarantee, *rows)
        one.check_sinks(Counter(rows), GUARANTEES)
