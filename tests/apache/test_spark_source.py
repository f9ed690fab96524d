"""What the Spark data source does, on Apache's broker: plan, pull, wait, commit and send.

Spark itself is not needed for it: these are the parts that speak to brokers.
"""

from __future__ import annotations

import threading
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.codes import RequestCode
from orbitmq.net.blocking import BlockingConnection
from orbitmq.spark.sink import sending
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.source.columns import ColumnDecoder
from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.planner import StreamPlanner
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.headers import OffsetResponseHeader, QueryConsumerOffsetRequestHeader
from orbitmq.wire.ids import create_unique_id
from orbitmq.wire.properties import encode_properties
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from orbitmq.clock import Clock
    from tests.apache.cluster import ApacheCluster

COUNT = 10_000
EARLIEST: dict[str, Any] = {"initial": "earliest"}
SCHEMA = pa.schema([("queueId", pa.int32()), ("tags", pa.string()), ("body", pa.binary())])

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender waits for a broker that must itself wait for the processor."""
    monkeypatch.setattr(sending, "SEND_TIMEOUT_SECONDS", PATIENCE_SECONDS)


def send(cluster: ApacheCluster, topic: str, numbers: range) -> None:
    with closing(Sender((cluster.name_server,), "spark")) as sender:
        for number in numbers:
            tags = "even" if number % 2 == 0 else "odd"
            properties = {"TAGS": tags, "UNIQ_KEY": create_unique_id()}
            key = f"key{number % 97}" if number % 3 else None
            sender.add(topic, Outgoing(b"%d" % number, encode_properties(properties), key))
        sender.finish()


def planner_of(
    cluster: ApacheCluster, topic: str, clock: Clock = SYSTEM_CLOCK, **options: str
) -> StreamPlanner:
    given = {"nameServer": cluster.name_server, "topic": topic, "startingOffsets": "earliest"}
    return StreamPlanner(read_options(given | options, streaming=True), clock)


def end_of(planner: StreamPlanner, topic: str, count: int) -> dict[str, Any]:
    """The end of a first batch of ``count``. Apache shows messages a little after it acks."""

    def reached() -> bool:
        end.update(planner.latest_offset(EARLIEST))
        return sum(sum(ends.values()) for ends in end["topics"][topic].values()) == count

    end: dict[str, Any] = {}
    eventually(reached, f"{count} messages", lambda: end)
    return end


def read(
    planner: StreamPlanner, topic: str, start: dict[str, Any], end: dict[str, Any], tags: str = "*"
) -> list[tuple[int, str, int]]:
    """Queue, tag and number of each message in the batch between two offsets."""
    reader = RangeReader(topic, "spark", tags, fail_on_data_loss=True)
    decoder = ColumnDecoder(SCHEMA, topic)
    return [
        (row["queueId"], row["tags"], int(row["body"]))
        for name, data in reader.read(planner.ranges(start, end))
        for row in decoder.decode(bytes(data), name).to_pylist()
    ]


@pytest.fixture(params=["old_apache_cluster", "apache_cluster"], ids=["4.9.7", "5.5.0"])
def apaches(request: pytest.FixtureRequest) -> ApacheCluster:
    cluster: ApacheCluster = request.getfixturevalue(request.param)
    return cluster


def test_ten_thousand_messages_are_sent_and_read_in_batches(apaches: ApacheCluster) -> None:
    topic = apaches.new_topic("spark")
    send(apaches, topic, range(COUNT))
    planner = planner_of(apaches, topic, group="spark", idleWaitMs="0", maxOffsetsPerTrigger="3000")
    start = EARLIEST
    seen: list[tuple[int, str, int]] = []
    while len(seen) < COUNT:
        end = planner.latest_offset(start)
        seen += read(planner, topic, start, end)
        start = end
    assert planner.latest_offset(start) == start
    assert sorted(number for _, _, number in seen) == list(range(COUNT))
    last: dict[int, tuple[int, int]] = {}
    for queue, _, number in seen:
        if number % 3:  # a key has one queue and keeps its order
            before = last.get(number % 97, (queue, -1))
            assert before[0] == queue
            assert before[1] < number
            last[number % 97] = queue, number

    with closing(BlockingConnection(apaches.broker.address)) as connection:
        for queue_id, offset in start["topics"][topic]["broker-a"].items():
            header = QueryConsumerOffsetRequestHeader(
                consumer_group="spark", topic=topic, queue_id=int(queue_id)
            )
            found = connection.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
            assert found.header(OffsetResponseHeader).offset == offset


def test_the_broker_filters_by_tag(apaches: ApacheCluster) -> None:
    topic = apaches.new_topic("spark")
    send(apaches, topic, range(1000))
    planner = planner_of(apaches, topic)
    seen = read(planner, topic, EARLIEST, end_of(planner, topic, 1000), "odd || other")
    assert sorted(number for _, _, number in seen) == list(range(1, 1000, 2))


def test_an_idle_query_is_woken_by_the_broker(apaches: ApacheCluster) -> None:
    topic = apaches.new_topic("spark")
    planner = planner_of(apaches, topic, ManualClock(), idleWaitMs="14000")
    start = planner.latest_offset(EARLIEST)
    later = threading.Timer(0.3, send, [apaches, topic, range(1)])
    later.start()
    end = planner.latest_offset(start)
    later.join()
    assert [number for _, _, number in read(planner, topic, start, end)] == [0]
    planner.close()


def test_a_topic_is_made_by_the_first_message(apaches: ApacheCluster) -> None:
    topic = f"made-{create_unique_id()}"
    send(apaches, topic, range(100))
    planner = planner_of(apaches, topic)
    assert len(read(planner, topic, EARLIEST, end_of(planner, topic, 100))) == 100
