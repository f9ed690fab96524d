"""Options that Spark itself has a part in: several topics, tasks, filters, names of queries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import spark_partition_id

from orbitmq.broker.embedded import EmbeddedBroker
from tests.spark.topics import Topic

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]

SECONDS = 60


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


def test_a_long_queue_is_read_by_several_tasks(spark: SparkSession, topic: Topic) -> None:
    other = Topic(topic.broker)
    topic.send(*map(str, range(10)))
    other.send("a", "b")
    reader = spark.read.format("rocketmq").option("nameServer", topic.broker.name_server)
    reader = reader.option("topics", f"{topic.name},{other.name}")
    frame = reader.option("maxRecordsPerPartition", 5).load()
    rows = frame.select("topic", "queueOffset", spark_partition_id().alias("task")).collect()
    assert sorted((row.topic, row.queueOffset) for row in rows) == sorted(
        [(topic.name, offset) for offset in range(10)] + [(other.name, 0), (other.name, 1)]
    )
    assert len({row.task for row in rows}) == 3


def test_sparks_filters_decide_what_is_read(spark: SparkSession, topic: Topic) -> None:
    topic.send(*map(str, range(10)), tags="UA")
    topic.send("other queue", key="1", tags="UA")
    topic.send("other tag", tags="AA")
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        reader = spark.read.format("rocketmq").option("nameServer", topic.broker.name_server)
        frame = reader.option("topic", topic.name).option("pushFilters", "true").load()
        chosen = frame.where(
            "queueId = 0 AND queueOffset >= 4 AND tags = 'UA' "
            "AND storeTimestamp > timestamp '2020-01-01 00:00:00' "
            "AND cast(cast(body AS string) AS int) % 2 = 0"
        )
        assert [bytes(row.body) for row in chosen.orderBy("queueOffset").collect()] == [
            b"4",
            b"6",
            b"8",
        ]
        whole = frame.where("queueId = 1 AND queueOffset >= 0")
        assert [bytes(row.body) for row in whole.collect()] == [b"other queue"]
        plan = whole._jdf.queryExecution().executedPlan().toString()
    finally:
        spark.conf.unset(setting)
    assert "Filter (" not in plan  # nothing of it is left to Spark


def test_a_named_query_copies_topics_that_match_a_pattern(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send("a", "b")
    out = Topic(topic.broker)
    reader = spark.readStream.format("rocketmq").option("nameServer", topic.broker.name_server)
    reader = reader.option("subscribePattern", f"{topic.name}(-.*)?").option("minPartitions", 2)
    for bodies in (["a", "b"], ["a", "b", "c", "d"]):
        frame = reader.option("startingOffsets", "earliest").load().select("body")
        writer = frame.writeStream.queryName("copied").format("rocketmq")
        writer = writer.option("nameServer", topic.broker.name_server).option("topic", out.name)
        writer = writer.option("checkpointLocation", str(tmp_path))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
        assert out.bodies() == bodies
        topic.send("c")
        found = Topic(topic.broker)
        found.name = f"{topic.name}-new"
        found.resize(1)
        found.send("d")
