"""Two sources and sinks under one Spark session: ours, and Spark's own for Kafka."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from benchmarks.brokers import orbitmq_broker
from benchmarks.kafka_broker import KafkaRelease, find_kafka, kafka_broker
from benchmarks.load import create_topic
from benchmarks.plan import Outcome
from benchmarks.processes import ProcessTree
from orbitmq.spark import local_session

DEFAULT = "default columns"
ALL = "all columns"
OFFSET_AND_BODY = "offset and body"


class Side(Protocol):
    """A broker and how Spark reads and writes its topics; topics' rows have a ``body`` each."""

    address: str

    def make_topic(self, topic: str, queues: int) -> None:
        """Make a topic."""

    def read(self, topic: str, columns: str = DEFAULT, *, tasks: int | None = None) -> DataFrame:
        """All there is; by so many tasks, if that is said."""

    def write(self, bodies: DataFrame, topic: str) -> None:
        """Write the column ``body``."""

    def read_stream(self, topic: str, **options: object) -> DataFrame:
        """A stream of the column ``body``, from the earliest message on."""


@dataclass
class OrbitMQ:
    """Our broker and our source and sink."""

    spark: SparkSession
    name_server: str
    address: str

    def make_topic(self, topic: str, queues: int) -> None:
        """Make a topic."""
        create_topic(self.address, topic, queues)

    def read(self, topic: str, columns: str = DEFAULT, *, tasks: int | None = None) -> DataFrame:
        """See Side."""
        reader = self.spark.read.format("rocketmq").option("nameServer", self.name_server)
        if tasks is not None:
            reader = reader.option("maxTasks", tasks)
        if columns == OFFSET_AND_BODY:
            reader = reader.schema("queueOffset bigint, body binary")
        return reader.option("includeProperties", columns == ALL).option("topic", topic).load()

    def write(self, bodies: DataFrame, topic: str) -> None:
        """See Side."""
        writer = bodies.write.format("rocketmq").option("nameServer", self.name_server)
        writer.option("topic", topic).mode("append").save()

    def read_stream(self, topic: str, **options: object) -> DataFrame:
        """See Side."""
        reader = self.spark.readStream.format("rocketmq").option("nameServer", self.name_server)
        reader = reader.option("startingOffsets", "earliest").schema("body binary")
        return reader.options(**texts(options)).option("topic", topic).load()


@dataclass
class Kafka:
    """Spark's Kafka source and sink; ``settings`` are options of the source."""

    spark: SparkSession
    address: str
    settings: dict[str, str] = field(default_factory=dict)

    def make_topic(self, topic: str, queues: int) -> None:
        """Make a topic."""
        java: Any = self.spark._jvm
        properties = java.java.util.Properties()
        properties.put("bootstrap.servers", self.address)
        admin = java.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            new = java.org.apache.kafka.clients.admin.NewTopic(topic, queues, 1)
            topics = java.java.util.Collections.singletonList(new)
            admin.createTopics(topics).all().get()
        finally:
            admin.close()

    def read(self, topic: str, columns: str = DEFAULT, *, tasks: int | None = None) -> DataFrame:
        """See Side."""
        reader = self.spark.read.format("kafka").options(**self._settings(topic))
        if tasks is not None:
            reader = reader.option("minPartitions", tasks)
        frame = reader.option("includeHeaders", columns == ALL).load()
        return frame.select("offset", "value") if columns == OFFSET_AND_BODY else frame

    def write(self, bodies: DataFrame, topic: str) -> None:
        """See Side."""
        writer = bodies.withColumnRenamed("body", "value").write.format("kafka")
        writer.option("kafka.bootstrap.servers", self.address).option("topic", topic).save()

    def read_stream(self, topic: str, **options: object) -> DataFrame:
        """See Side."""
        reader = self.spark.readStream.format("kafka").options(**self._settings(topic))
        frame = reader.option("startingOffsets", "earliest").options(**texts(options)).load()
        return frame.withColumnRenamed("value", "body").select("body")

    def _settings(self, topic: str) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self.address,
            "subscribe": topic,
            **self.settings,
        }


@dataclass
class Bench:
    """Both sides, and what Spark's processes cost."""

    spark: SparkSession
    processes: ProcessTree
    kafka_release: KafkaRelease
    orbitmq: OrbitMQ
    kafka: Kafka
    tuned: Kafka
    """Kafka's with as many messages a poll as our pulls bring."""

    @property
    def pair(self) -> list[Side]:
        """Ours and Kafka's."""
        return [self.orbitmq, self.kafka]

    def cpu_seconds(self) -> float:
        """The processor time of the driver's JVM and all Python workers, up to now."""
        return self.processes.cpu_seconds()

    def outcome(self, rows: int, work: Callable[[], object]) -> Outcome:
        """How long ``work`` with so many rows takes, and what it costs Spark."""
        cpu, began = self.cpu_seconds(), time.perf_counter()
        work()
        took = time.perf_counter() - began
        return Outcome(rows, took, self.cpu_seconds() - cpu)


@contextmanager
def bench() -> Iterator[Bench]:
    """A session with two cores and both brokers. Raises ApacheMissingError."""
    release = find_kafka()
    quiet = {
        "spark.driver.extraClassPath": release.source_classpath,
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
    }
    with ExitStack() as stack:
        ours = stack.enter_context(orbitmq_broker("async"))
        kafka = stack.enter_context(kafka_broker(release))
        spark = stack.enter_context(local_session("bench", master="local[2]", config=quiet))
        context: Any = spark.sparkContext
        yield Bench(
            spark,
            ProcessTree(context._gateway.proc.pid),
            release,
            OrbitMQ(spark, ours.name_server, ours.address),
            Kafka(spark, kafka),
            Kafka(spark, kafka, {"kafka.max.poll.records": "8000"}),
        )


def bodies(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """So many rows of two partitions with a body of ``size`` bytes that do not compress."""
    text = os.urandom(size).hex().upper()
    return spark.range(0, rows, 1, 2).selectExpr(f"X'{text}' AS body")


def drain(frame: DataFrame) -> None:
    """Read all of a frame and drop it."""
    frame.write.format("noop").mode("overwrite").save()


def texts(options: dict[str, object]) -> dict[str, str]:
    """Options as Spark takes them."""
    return {name: str(value) for name, value in options.items()}
