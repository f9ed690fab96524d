"""Streams whose broker is killed, and whose topics change while they are stopped."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.store.config import StoreConfig
from orbitmq.wire.headers import TopicRequestHeader
from tests.cli.test_broker import Started, started
from tests.patience import PATIENCE_SECONDS, eventually
from tests.spark.crashes.campaign import LeapingClock
from tests.spark.crashes.counting import bodies
from tests.spark.topics import Topic, stored

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

GUARANTEES = ("at_least_once", "idempotent", "exactly_once")
HOUR_MS = 3_600_000


class Query:
    """A query that copies ``source`` to ``sink``, as often as it is run."""

    def __init__(
        self, spark: SparkSession, source: Topic, sink: Topic, guarantee: str, checkpoint: Path
    ) -> None:
        self._spark = spark
        self._source = source
        self._sink = sink
        self._guarantee = guarantee
        self._checkpoint = checkpoint

    def start(self, **options: str) -> StreamingQuery:
        """Copies what is there now."""
        name_server = self._source.broker.name_server
        frame = (
            self._spark.readStream.format("rocketmq")
            .options(nameServer=name_server, topic=self._source.name, startingOffsets="earliest")
            .options(**options)
            .load()
        )
        return (
            frame.select("body").writeStream.format("rocketmq")
            .options(nameServer=name_server, topic=self._sink.name)
            .options(deliveryGuarantee=self._guarantee)
            .option("checkpointLocation", str(self._checkpoint))
            .trigger(availableNow=True).start()
        )  # fmt: skip

    def run(self, **options: str) -> None:
        """Copies it, and waits for the end."""
        assert self.start(**options).awaitTermination(int(PATIENCE_SECONDS))


def test_a_broker_that_is_killed_and_started_again(spark: SparkSession, tmp_path: Path) -> None:
    where = ("--store", str(tmp_path / "store"))
    rows = [f"{number % 800}" for number in range(6000)]
    running: list[StreamingQuery] = []
    with started(*where) as broker:
        like_embedded = cast("EmbeddedBroker", broker)
        source = Topic(like_embedded)
        source.send(*rows, key=None)
        sinks = {guarantee: Topic(like_embedded, 3) for guarantee in GUARANTEES}
        for guarantee, sink in sinks.items():
            query = Query(spark, source, sink, guarantee, tmp_path / guarantee)
            running.append(query.start(maxOffsetsPerTrigger="2000"))
        # One that has not planned yet knows no queue: it fails where no name server answers.
        plans = [tmp_path / guarantee / "offsets" / "0" for guarantee in GUARANTEES]
        eventually(lambda: all(plan.exists() for plan in plans), "a plan of each")
        eventually(lambda: count_of(sinks["idempotent"]) > 0, "the first rows")
        broker.process.kill()
        broker.process.wait()
        ports = ("--port", port_of(broker.address), "--name-server-port", name_port_of(broker))
        with started(*where, *ports):
            for one in running:
                assert one.awaitTermination(int(PATIENCE_SECONDS))
            found = {name: bodies(broker.name_server, sink.name) for name, sink in sinks.items()}
    expected = Counter(rows)
    assert found["idempotent"] == expected
    assert found["exactly_once"] == expected
    assert not expected - found["at_least_once"]


def count_of(topic: Topic) -> int:
    """How many messages ``topic`` has."""
    return sum(len(views) for views in stored(topic.broker, topic.name).values())


def port_of(address: str) -> str:
    return address.rpartition(":")[2]


def name_port_of(broker: Started) -> str:
    return port_of(broker.name_server)


def test_a_topic_deleted_and_made_again_while_the_query_is_stopped(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    source, sink = Topic(broker, 1), Topic(broker)
    query = Query(spark, source, sink, "idempotent", tmp_path)
    source.send("a", "b")
    query.run()
    source.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(source.name))
    source.resize(1)
    source.send("c", "d", "e", "f")
    with pytest.raises(PySparkException, match="offset 2 was of the old one"):
        query.run()
    query.run(failOnDataLoss="false")
    assert sink.bodies() == ["a", "b", "c", "d", "e", "f"]


def test_messages_that_are_deleted_before_they_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    clock = LeapingClock()
    hours = ";".join(f"{hour:02}" for hour in range(24))
    config = StoreConfig(mapped_file_size=64 * 1024, delete_when=hours)
    with EmbeddedBroker(clock=clock, store_config=config) as broker:
        source, sink = Topic(broker, 1), Topic(broker)
        query = Query(spark, source, sink, "idempotent", tmp_path)
        source.send("a", "b")
        query.run()
        source.send(*["x" * 5000] * 40)
        clock.leap(73 * HOUR_MS)
        source.send("new")
        broker.call(lambda node: node.broker.store.cleaner.clean())
        left = Counter(source.bodies())
        assert left["a"] == 0
        assert left["new"] == 1
        with pytest.raises(PySparkException, match="offset 2 "):
            query.run()
        query.run(failOnDataLoss="false")
        # What the first run wrote is as old as what it read.
        assert Counter(sink.bodies()) - Counter(["a", "b"]) == left
