"""``format("rocketmq")`` in a real Spark session: found, read, written, streamed, resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.functions import col, concat, lit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.net.connection import Connection
from orbitmq.spark.source.schema import ALL_COLUMNS, READ_SCHEMA
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.command import RemotingCommand
from tests.spark.fake_cluster import answer, server
from tests.spark.topics import Topic, stored

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]

SECONDS = 60


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


@pytest.fixture
def read(spark: SparkSession, topic: Topic) -> DataFrameReader:
    """A batch reader of ``topic``."""
    reader = spark.read.format("rocketmq").option("nameServer", topic.broker.name_server)
    return reader.option("topic", topic.name)


@pytest.fixture
def read_stream(spark: SparkSession, topic: Topic) -> DataStreamReader:
    """A stream reader of ``topic``, from its first message."""
    reader = spark.readStream.format("rocketmq").option("nameServer", topic.broker.name_server)
    return reader.option("topic", topic.name).option("startingOffsets", "earliest")


def texts(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.body).decode() for row in frame.select("body").collect())


# Reading a batch


def test_every_column_is_read(read: DataFrameReader, topic: Topic) -> None:
    topic.send("a", "b", tags="UA")
    topic.send("c", key="1")
    assert read.load().schema == READ_SCHEMA
    frame = read.option("includeProperties", "true").load()
    assert frame.schema == ALL_COLUMNS
    rows = frame.orderBy("queueId", "queueOffset").collect()
    views = [view for _, queue in sorted(topic.by_queue().items()) for view in queue]
    for row, view in zip(rows, views, strict=True):
        assert row.asDict() | {"bornTimestamp": 0, "storeTimestamp": 0} == {
            "topic": topic.name,
            "brokerName": "broker-a",
            "queueId": view.queue_id,
            "queueOffset": view.queue_offset,
            "msgId": view.message_id,
            "offsetMsgId": view.offset_message_id,
            "flag": 0,
            "tags": view.tags,
            "keys": None,
            "body": view.body,
            "bornTimestamp": 0,
            "storeTimestamp": 0,
            "reconsumeTimes": 0,
            "properties": view.properties,
        }
        assert row.bornTimestamp.timestamp() * 1000 == pytest.approx(view.born_timestamp)
        assert row.storeTimestamp.timestamp() * 1000 == pytest.approx(view.store_timestamp)


def test_a_schema_of_ones_own_reads_fewer_columns(read: DataFrameReader, topic: Topic) -> None:
    topic.send("a", "b", "c")
    frame = read.schema("queueOffset bigint, body binary").load()
    assert frame.columns == ["queueOffset", "body"]
    assert [tuple(row) for row in frame.orderBy("queueOffset").collect()] == [
        (0, b"a"),
        (1, b"b"),
        (2, b"c"),
    ]


def test_tags_and_offsets_choose_what_is_read(read: DataFrameReader, topic: Topic) -> None:
    for number in range(6):
        topic.send(str(number), tags="UA" if number % 2 else "AA")
    some = read.option("startingOffsets", '{"broker-a": {"0": 1}}')
    some = some.option("endingOffsets", '{"broker-a": {"0": 5}}')
    assert texts(some.load()) == ["1", "2", "3", "4"]
    assert texts(some.option("tags", "UA || DL").load()) == ["1", "3"]


def test_an_empty_topic_has_no_rows(read: DataFrameReader) -> None:
    assert read.load().collect() == []


def test_a_topic_is_read_by_sql(spark: SparkSession, topic: Topic) -> None:
    topic.send("a", "b")
    spark.sql(
        f"CREATE OR REPLACE TEMP VIEW messages USING rocketmq "
        f"OPTIONS (nameServer '{topic.broker.name_server}', topic '{topic.name}')"
    )
    found = spark.sql("SELECT max(CAST(body AS STRING)) AS last, count(*) AS n FROM messages")
    assert found.collect()[0].asDict() == {"last": "b", "n": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.option("startingOffset", "x"), "did you mean startingOffsets?"),
        (lambda r: r.option("maxTasks", "none"), "maxTasks='none' is not allowed: a whole number"),
        (lambda r: r.option("topic", "nowhere"), "topic 'nowhere' has no route"),
        (lambda r: r.option("nameServer", "127.0.0.1:0x"), "is not host:port"),
        (lambda r: r.schema("body string"), "body is read as binary; CAST"),
    ],
)
def test_a_wrong_read_says_what_is_wrong(
    read: DataFrameReader, change: Callable[[DataFrameReader], DataFrameReader], message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        change(read).load().collect()
    assert message in str(caught.value)


# Writing a batch


def write(frame: DataFrame, topic: Topic, mode: str = "append") -> None:
    writer = frame.write.format("rocketmq").option("nameServer", topic.broker.name_server)
    writer.option("topic", topic.name).mode(mode).save()


def test_rows_are_written_in_the_order_of_their_keys(spark: SparkSession, topic: Topic) -> None:
    rows = spark.range(0, 3000, 1, 2).select(
        col("id").cast("string").alias("body"),
        concat(lit("key"), col("id") % 7).alias("shardingKey"),
        lit("UA").alias("tags"),
    )
    write(rows, topic)
    assert sorted(map(int, topic.bodies())) == list(range(3000))
    for views in topic.by_queue().values():
        last: dict[tuple[str | None, bool], int] = {}
        for view in views:
            assert view.tags == "UA"
            # Two tasks send at the same time; each keeps its own rows in order.
            task = view.sharding_key, int(view.body) < 1500
            assert int(view.body) > last.get(task, -1)
            last[task] = int(view.body)


def test_rows_choose_their_topics(spark: SparkSession, topic: Topic) -> None:
    made = f"made-by-{topic.name}"
    rows = spark.createDataFrame([(b"a", made), (b"b", None)], "body binary, topic string")
    write(rows, topic)
    assert topic.bodies() == ["b"]
    (view,) = [view for views in stored(topic.broker, made).values() for view in views]
    assert view.body == b"a"


@pytest.mark.parametrize(
    ("columns", "mode", "message"),
    [
        ("'a' AS body", "errorifexists", 'cannot be written in the "ErrorIfExists" mode'),
        ("'a' AS body", "overwrite", '.mode("append")'),
        ("'a' AS value", "append", "a column body is needed"),
        ("1 AS body", "append", "body is written as binary or string"),
        (
            "CAST(NULL AS STRING) AS body",
            "append",
            "RowError: partition 0, row 0: a null or empty body",
        ),
    ],
)
def test_a_wrong_write_says_what_is_wrong(
    spark: SparkSession, topic: Topic, columns: str, mode: str, message: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        write(spark.sql(f"SELECT {columns}"), topic, mode)
    assert message in str(caught.value)
    assert topic.bodies() == []


# Streams


class Batches:
    """A sink that keeps what each batch brought; a batch run again takes its own place."""

    def __init__(self) -> None:
        self.rows: dict[int, list[str]] = {}

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        self.rows[batch_id] = texts(frame)

    @property
    def all(self) -> list[str]:
        return sorted(text for rows in self.rows.values() for text in rows)


def run_now(reader: DataStreamReader, sink: Any, checkpoint: Path) -> None:
    """Read what is there and stop."""
    query = (
        reader.load().writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(SECONDS)


@pytest.fixture
def started() -> Iterator[Callable[[Any], StreamingQuery]]:
    """Starts a streaming query, and stops it after the test."""
    queries: list[StreamingQuery] = []

    def start(writer: Any) -> StreamingQuery:
        queries.append(writer.start())
        return queries[-1]

    yield start
    for query in queries:
        query.stop()


def test_available_now_resumes_exactly_and_replays_exactly(
    read_stream: DataStreamReader, topic: Topic, tmp_path: Path
) -> None:
    limited = read_stream.option("maxOffsetsPerTrigger", "10")
    topic.send(*map(str, range(25)))
    first = Batches()
    run_now(limited, first, tmp_path)
    assert [len(rows) for rows in first.rows.values()] == [10, 10, 5]
    assert sorted(map(int, first.all)) == list(range(25))

    topic.send(*map(str, range(25, 40)), key="1")
    second = Batches()
    run_now(limited, second, tmp_path)
    assert sorted(map(int, second.all)) == list(range(25, 40))

    last = max(second.rows)  # as if the query had died before the batch was committed
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "commits" / name).unlink()
    topic.send("new")
    again = Batches()
    run_now(limited, again, tmp_path)
    assert again.rows[last] == second.rows[last]
    assert again.all == sorted([*second.rows[last], "new"])


def test_latest_loses_nothing_that_comes_while_the_query_is_down(
    read_stream: DataStreamReader,
    topic: Topic,
    tmp_path: Path,
    started: Callable[[Any], StreamingQuery],
) -> None:
    topic.send("before")
    batches = Batches()
    latest = read_stream.option("startingOffsets", "latest").load()
    writer = latest.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path))
    query = started(writer)
    wait_until((tmp_path / "commits" / "0").exists, "batch 0", timeout=SECONDS)
    topic.send("while it runs")
    wait_until(lambda: batches.all == ["while it runs"], "a batch", timeout=SECONDS)
    begin = time.monotonic()
    query.stop()
    assert time.monotonic() - begin < 5
    topic.send("while it is down")
    started(writer)
    wait_until(lambda: "while it is down" in batches.all, "a batch", timeout=SECONDS)
    assert batches.all == ["while it is down", "while it runs"]


def test_an_idle_query_asks_seldom_and_is_woken_by_a_message(
    read_stream: DataStreamReader, topic: Topic, started: Callable[[Any], StreamingQuery]
) -> None:
    asked: list[float] = []

    def route(command: RemotingCommand, connection: Connection) -> None:
        """A name server that notes when it is asked, as it is once for every latestOffset."""
        asked.append(time.monotonic())
        body = TopicRouteData(
            queue_datas=[QueueData("broker-a", 2, 2, 6)],
            broker_datas=[BrokerData("DefaultCluster", "broker-a", {0: topic.broker.address})],
        )
        answer(command, connection, body=body.encode(standard=True))

    topic.send("first")
    batches = Batches()
    with server(route) as name_server:
        frame = read_stream.option("nameServer", name_server).load()
        query = started(frame.writeStream.foreachBatch(batches))
        wait_until(lambda: batches.all == ["first"], "a batch", timeout=SECONDS)
        query.processAllAvailable()
        begin = time.monotonic()
        wait_until(lambda: time.monotonic() > begin + 2.5)
        assert len([moment for moment in asked if moment > begin]) <= 5  # not ninety a second
        topic.send("second")
        sent = time.monotonic()
        wait_until(lambda: asked[-1] > sent, "a wake-up", timeout=SECONDS)
        wait_until(lambda: batches.all == ["first", "second"], "a batch", timeout=SECONDS)
        query.stop()


def test_a_stream_is_written_to_a_topic(
    read_stream: DataStreamReader, topic: Topic, tmp_path: Path
) -> None:
    topic.send("a", "b", tags="UA")
    topic.send("c", key="1")
    out = Topic(topic.broker)
    for bodies in (["a", "b", "c"], ["a", "b", "c", "d"]):
        writer = read_stream.load().select("body", "tags").writeStream.format("rocketmq")
        writer = writer.option("nameServer", out.broker.name_server).option("topic", out.name)
        query = (
            writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(SECONDS)
        assert out.bodies() == bodies
        topic.send("d")
    tags = {view.body: view.tags for views in out.by_queue().values() for view in views}
    assert tags == {b"a": "UA", b"b": "UA", b"c": None, b"d": None}


def test_lost_messages_stop_a_stream_by_name(
    read_stream: DataStreamReader, topic: Topic, tmp_path: Path
) -> None:
    ahead = read_stream.option("startingOffsets", '{"broker-a": {"0": 50}}')
    with pytest.raises(PySparkException) as caught:
        run_now(ahead, Batches(), tmp_path / "strict")
    assert "offset 50 is not there, the queue ends at 0" in str(caught.value)
    assert "failOnDataLoss=false" in str(caught.value)
    topic.send("a")
    batches = Batches()
    run_now(ahead.option("failOnDataLoss", "false"), batches, tmp_path / "lenient")
    assert batches.all == ["a"]


def test_a_stream_with_an_end_is_refused(read_stream: DataStreamReader, tmp_path: Path) -> None:
    with pytest.raises((AnalysisException, PySparkException), match="a stream has no end"):
        run_now(read_stream.option("endingOffsets", "latest"), Batches(), tmp_path)
