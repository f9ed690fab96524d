"""What a Spark source asks Apache's brokers to know what to read, 4.9.7 and 5.5.0."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.codes import RequestCode
from orbitmq.errors import DataLossError
from orbitmq.net.blocking import BlockingConnection
from orbitmq.spark.sink import sending
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.planner import StreamPlanner
from orbitmq.spark.source.reader import RocketMQReader
from orbitmq.spark.source.schema import READ_SCHEMA
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire.headers import (
    CreateTopicRequestHeader,
    TopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.wire.ids import create_unique_id
from orbitmq.wire.properties import encode_properties
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from tests.apache.cluster import ApacheCluster

EARLIEST: dict[str, Any] = {"initial": "earliest"}

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender waits for a broker that must itself wait for the processor."""
    monkeypatch.setattr(sending, "SEND_TIMEOUT_SECONDS", PATIENCE_SECONDS)


@pytest.fixture(params=["old_apache_cluster", "apache_cluster"], ids=["4.9.7", "5.5.0"])
def apaches(request: pytest.FixtureRequest) -> ApacheCluster:
    cluster: ApacheCluster = request.getfixturevalue(request.param)
    return cluster


class Topic:
    """A topic with one queue on the first broker."""

    def __init__(self, cluster: ApacheCluster) -> None:
        self.cluster = cluster
        self.name = cluster.new_topic("spark-choosing", queues=1)
        self._sent = 0

    def send(self, count: int) -> int:
        """Send numbers, the even ones tagged so, wait until they can be read; the last's time."""
        with closing(Sender((self.cluster.name_server,), "spark")) as sender:
            for number in range(self._sent, self._sent + count):
                tags = "odd" if number % 2 else "even"
                pairs = {"TAGS": tags, "UNIQ_KEY": create_unique_id(), "number": str(number)}
                sender.add(self.name, Outgoing(b"%d" % number, encode_properties(pairs)))
            sender.finish()
        self._sent += count
        client = TopicClient((self.cluster.name_server,), self.name)

        def readable() -> int:
            client.refresh()
            return sum(bound.end for bound in client.bounds(all_brokers=True).values())

        eventually(lambda: readable() == self._sent, f"{self._sent} messages", readable)
        return max(client.stored.values())

    def make_anew(self) -> None:
        """Delete the topic and create it."""
        address = self.cluster.broker.address
        create = CreateTopicRequestHeader(
            topic=self.name, default_topic="TBW102", read_queue_nums=1, write_queue_nums=1, perm=6,
            topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        with closing(BlockingConnection(address)) as broker:
            broker.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(self.name))
            broker.request(RequestCode.UPDATE_AND_CREATE_TOPIC, create)
        self._sent = 0

    def numbers(self, **options: str) -> list[int]:
        """What a batch reads."""
        given = {"nameServer": self.cluster.name_server} | options
        if not given.keys() & {"subscribePattern", "assign"}:
            given["topic"] = self.name
        reader = RocketMQReader(READ_SCHEMA, read_options(given, streaming=False))
        return sorted(
            int(row["body"])
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for row in batch.to_pylist()
        )

    def planner(self, **options: str) -> StreamPlanner:
        given = {"nameServer": self.cluster.name_server, "topic": self.name, "idleWaitMs": "0"}
        given["startingOffsets"] = "earliest"
        return StreamPlanner(read_options(given | options, streaming=True))


def test_topics_queues_filters_and_times(apaches: ApacheCluster) -> None:
    topic = Topic(apaches)
    before = SYSTEM_CLOCK.now_ms()
    last = topic.send(10)
    every = [*range(10)]
    assert topic.numbers(subscribePattern=f"{topic.name}|nothing") == every
    assert topic.numbers(assign=f'{{"{topic.name}": [0]}}') == every
    assert topic.numbers(sql="number BETWEEN 3 AND 5") == [3, 4, 5]
    assert topic.numbers(sql="TAGS = 'odd'", startingOffsets="-3") == [7, 9]
    assert topic.numbers(startingTimestamp=str(last + 1)) == []
    assert topic.numbers(endingTimestamp=str(last + 1)) == every
    assert topic.numbers(startingTimestamp=str(before - 60_000)) == every
    assert 9 in topic.numbers(startingTimestamp=str(last))
    with closing(BlockingConnection(apaches.broker.address)) as broker:
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group="TOOLS_CONSUMER", topic=topic.name, queue_id=0, commit_offset=6
        )
        assert topic.numbers(group="TOOLS_CONSUMER", startingOffsets="group") == every
        broker.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    assert topic.numbers(group="TOOLS_CONSUMER", startingOffsets="group") == [6, 7, 8, 9]


def test_a_topic_made_anew_is_noticed(apaches: ApacheCluster) -> None:
    topic = Topic(apaches)
    topic.send(3)
    end = topic.planner().latest_offset(EARLIEST)
    topic.make_anew()
    topic.send(8)
    with pytest.raises(DataLossError, match="offset 3 was of the old one"):
        topic.planner().latest_offset(end)
    planner = topic.planner(failOnDataLoss="false")
    (found,) = planner.ranges(end, planner.latest_offset(end))
    assert (found.begin, found.end) == (0, 8)
