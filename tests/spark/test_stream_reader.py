"""What Spark calls of a stream, and how a task reads what was planned."""

from __future__ import annotations

import pickle
import time

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from orbitmq import codes
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import DataLossError, NoPermissionError, OrbitMQError, SubscriptionError
from orbitmq.spark import patience
from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.planning import QueueRange
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.schema import READ_SCHEMA
from orbitmq.spark.source.stream_reader import RocketMQStreamReader
from orbitmq.wire.headers import ResetOffsetRequestHeader, UpdateConsumerOffsetRequestHeader
from tests.spark import topics
from tests.spark.fake_cluster import cluster
from tests.spark.planners import FakeTopic, Topic


def read_fake(address: str, *, end: int = 5, tags: str = "*", fail: bool = True) -> int:
    reader = RangeReader("T", "TOOLS_CONSUMER", tags, fail_on_data_loss=fail)
    return len(list(reader.read([QueueRange("T", "broker-0", 0, address, 0, end)])))


@pytest.mark.parametrize(
    "pulls",
    [
        [(codes.PULL_OFFSET_MOVED, 3), (codes.PULL_RETRY_IMMEDIATELY, 5)],
        [(codes.PULL_RETRY_IMMEDIATELY, 4), (codes.PULL_OFFSET_MOVED, 0)],
        [(codes.PULL_NOT_FOUND, 0)] * 8,
    ],
)
def test_messages_that_go_while_a_task_reads_are_a_loss(
    pulls: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    fake = FakeTopic(end=0)
    with cluster(fake, queues=1) as address:
        fake.pulls = [*pulls]
        with pytest.raises(DataLossError, match="T, queue 0 of broker-0: offsets 0 to .* are gone"):
            read_fake(address)
        fake.pulls = [*pulls]
        assert read_fake(address, fail=False) == 0
        assert fake.pulls == []


def test_an_operators_reset_of_the_group_is_no_loss(broker: EmbeddedBroker) -> None:
    topic = Topic(broker, queues=1)
    topic.send("a", "b", "c")
    planner = topic.planner()
    start = planner.latest_offset({"initial": "earliest"})
    (found,) = planner.ranges({"initial": "earliest"}, start)
    first = found._replace(begin=1)
    group = "TOOLS_CONSUMER"
    # A group is known once it has an offset.
    topic.request(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        UpdateConsumerOffsetRequestHeader(
            consumer_group=group, topic=topic.name, queue_id=0, commit_offset=1
        ),
    )
    topic.request(
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        ResetOffsetRequestHeader(topic=topic.name, group=group, timestamp=-1, queue_id=0, offset=3),
    )
    assert [view.body for view in topics.pulled(topic.name, [first])] == [b"b", b"c"]


def test_messages_that_do_not_match_are_no_loss() -> None:
    fake = FakeTopic()
    fake.pulls = [(codes.PULL_RETRY_IMMEDIATELY, 2), (codes.PULL_RETRY_IMMEDIATELY, 7)]
    with cluster(fake, queues=1) as address:
        assert read_fake(address, tags="UA") == 0
    assert fake.asked == [0, 2]


def test_a_task_reads_on_after_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTopic()
    monkeypatch.setattr(time, "sleep", lambda _: setattr(fake, "down", False))
    fake.down = True
    fake.pulls = [
        (codes.PULL_RETRY_IMMEDIATELY, 2), (codes.SYSTEM_BUSY, 0), (codes.PULL_RETRY_IMMEDIATELY, 5)
    ]  # fmt: skip
    with cluster(fake, queues=1) as address:
        assert read_fake(address, tags="UA") == 0
        assert fake.asked == [0, 2, 2]
        fake.pulls = [(codes.NO_PERMISSION, 0)] * patience.REFUSALS
        with pytest.raises(NoPermissionError):
            read_fake(address)
        assert fake.pulls == []
        fake.pulls = [(codes.SUBSCRIPTION_PARSE_FAILED, 0)]
        with pytest.raises(SubscriptionError):
            read_fake(address)


def test_the_reader_spark_calls(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b")
    options = {
        "nameServer": broker.name_server,
        "topic": topic.name,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "1",
    }
    reader = RocketMQStreamReader(READ_SCHEMA, read_options(options, streaming=True))
    assert reader.getDefaultReadLimit() == ReadMaxRows(1)
    assert reader.reportLatestOffset() is None
    start = reader.initialOffset()
    limited = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert limited["topics"][topic.name]["broker-a"]["0"] == 1
    end = reader.latestOffset(limited, ReadAllAvailable())
    for begin, following, body in ((start, limited, b"a"), (limited, end, b"b")):
        (task,) = reader.partitions(begin, following)
        (found,) = pickle.loads(pickle.dumps(reader)).read(task)
        assert found.column("body").to_pylist() == [body]
    assert reader.partitions(end, end) == []
    with pytest.raises(OrbitMQError, match="not a batch"):
        reader.partitions(start, end)
    assert reader.reportLatestOffset() == {
        "topics": {topic.name: {"broker-a": {"0": 2, "1": 0}}},
        "lag": {"messages": 0, "seconds": 0.0},
    }
    reader.stop()


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxBytesPerTrigger": "64m"}, ReadMaxBytes(2**26)),
        ({"maxBytesPerTrigger": "64m", "maxOffsetsPerTrigger": "7"}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": "7"}, ReadMinRows(7)),
        ({"minBytesPerTrigger": "7"}, ReadMinRows(1)),
    ],
)
def test_the_limit_spark_is_told(options: dict[str, str], limit: ReadLimit) -> None:
    least = {"nameServer": "127.0.0.1:9876", "topic": "flights"}
    reader = RocketMQStreamReader(READ_SCHEMA, read_options(least | options, streaming=True))
    assert reader.getDefaultReadLimit() == limit
