"""A stream's offsets: resolved once, resumed exactly, limited, waited for, mirrored to a group."""

from __future__ import annotations

import json
import pickle
import threading
import time
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from orbitmq import codes
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    ConnectError,
    DataLossError,
    NetworkError,
    NoPermissionError,
    OrbitMQError,
    SubscriptionError,
    TopicNotFoundError,
)
from orbitmq.net.connection import Connection
from orbitmq.spark import patience
from orbitmq.spark.options import read_options
from orbitmq.spark.planning import QueueRange
from orbitmq.spark.pulling import RangeReader
from orbitmq.spark.schema import READ_SCHEMA
from orbitmq.spark.stream_reader import RocketMQStreamReader, StreamPlanner
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from tests.spark import topics
from tests.spark.fake_cluster import answer, cluster, server

Offset = dict[str, Any]


class Topic(topics.Topic):
    """A topic with the planners of its queries."""

    def planner(self, clock: Clock = SYSTEM_CLOCK, **options: str) -> StreamPlanner:
        return planner_of(self.broker.name_server, self.name, clock, **options)

    def read(self, start: Offset, end: Offset, tags: str = "*") -> list[str]:
        """What the batch between two offsets reads, as a restarted query would."""
        ranges = self.planner().ranges(start, end)
        return [view.body.decode() for view in topics.pulled(self.name, ranges, tags)]


def planner_of(
    name_server: str, topic: str, clock: Clock = SYSTEM_CLOCK, **options: str
) -> StreamPlanner:
    given = {
        "nameServer": name_server,
        "topic": topic,
        "startingOffsets": "earliest",
        "idleWaitMs": "0",
    }
    return StreamPlanner(read_options(given | options, streaming=True), clock)


def as_spark_keeps(offset: Offset) -> Offset:
    """The offset as it comes back from a checkpoint."""
    kept: Offset = json.loads(json.dumps(offset))
    return kept


def test_batches_join_without_gap_or_overlap(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    planner = topic.planner()
    start: Offset = {"initial": "earliest"}
    seen = []
    for number in range(4):
        topic.send(*(f"{number}.{n}" for n in range(3)), key=str(number))
        end = as_spark_keeps(planner.latest_offset(start, None))
        seen += topic.read(start, end)
        start = end
    assert sorted(seen) == sorted(f"{number}.{n}" for number in range(4) for n in range(3))
    assert planner.latest_offset(start, None) is start
    assert topic.read(start, start) == []


def test_latest_is_resolved_once_and_kept_in_the_first_end(broker: EmbeddedBroker) -> None:
    """Spark keeps no initial offset and asks twice; what comes meanwhile must not be lost."""
    topic = Topic(broker)
    topic.send("before")
    first = topic.planner(startingOffsets="latest")
    initial = {"initial": "latest"}
    pinned = as_spark_keeps(first.latest_offset(initial, None))
    assert topic.read(initial, pinned) == []
    topic.send("after")
    end = as_spark_keeps(first.latest_offset(pinned, None))

    restarted = topic.planner(startingOffsets="latest")
    topic.send("later")
    assert topic.read(initial, pinned) == []  # batch 0 run again
    assert topic.read(pinned, end) == ["after"]
    assert topic.read(end, restarted.latest_offset(end, None)) == ["later"]


def test_a_first_batch_that_crashed_is_read_again_exactly(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b")
    initial = {"initial": "earliest"}
    end = as_spark_keeps(topic.planner().latest_offset(initial, None))
    topic.send("c")
    assert topic.read(initial, end) == ["a", "b"]


def test_given_offsets_begin_where_they_say(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b", "c")
    planner = topic.planner(startingOffsets='{"broker-a": {"0": 1}}')
    end = planner.latest_offset({"initial": {}}, None)
    assert topic.read({"initial": {}}, end) == ["b", "c"]


def test_a_limit_spreads_a_backlog_over_batches(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send(*map(str, range(25)))
    topic.send(*map(str, range(25, 30)), key="1")
    planner = topic.planner()
    start: Offset = {"initial": "earliest"}
    sizes, seen = [], []
    while (end := planner.latest_offset(start, 8)) != start:
        got = topic.read(start, end)
        sizes.append(len(got))
        seen += got
        start = end
    assert sizes == [8, 8, 8, 6]
    assert sorted(map(int, seen)) == list(range(30))


def test_new_queues_are_read_from_their_beginning(broker: EmbeddedBroker) -> None:
    topic = Topic(broker, queues=1)
    topic.send("a")
    planner = topic.planner()
    initial = {"initial": "earliest"}
    first = planner.latest_offset(initial, None)
    topic.resize(3)
    assert planner.latest_offset(first, None) == first
    topic.send("b", key="2")
    second = as_spark_keeps(planner.latest_offset(first, None))
    assert topic.read(first, second) == ["b"]
    topic.send("c", key="2")
    assert topic.read(second, planner.latest_offset(second, None)) == ["c"]


def test_available_now_reads_what_was_there_and_ends(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send(*map(str, range(10)))
    planner = topic.planner()
    planner.prepare_for_available_now()
    topic.send("late")
    topic.resize(3)
    topic.send("late too", key="2")
    start: Offset = {"initial": "earliest"}
    seen = []
    while (end := planner.latest_offset(start, 4)) != start:
        seen += topic.read(start, end)
        start = end
    assert sorted(map(int, seen)) == list(range(10))
    latest = topic.planner(startingOffsets="latest")
    latest.prepare_for_available_now()
    end = latest.latest_offset({"initial": "latest"}, None)
    assert latest.latest_offset(end, None) == end


def test_tags_leave_gaps_that_do_no_harm(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    for number in range(6):
        topic.send(str(number), tags="UA" if number % 3 == 0 else "AA")
    planner = topic.planner(tags="UA || DL")
    initial = {"initial": "earliest"}
    end = planner.latest_offset(initial, None)
    assert topic.read(initial, end, "UA || DL") == ["0", "3"]
    topic.send("6", tags="AA")
    following = planner.latest_offset(end, None)
    assert following != end
    assert topic.read(end, following, "UA || DL") == []


def test_what_is_durably_done_becomes_the_groups_offset(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b")
    planner = topic.planner(group="spark-readers")

    def committed() -> int:
        header = QueryConsumerOffsetRequestHeader(
            consumer_group="spark-readers", topic=topic.name, queue_id=0,
            set_zero_if_not_found=False,
        )  # fmt: skip
        found = topic.request(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return found.header(OffsetResponseHeader).offset

    end = planner.latest_offset({"initial": "earliest"}, None)
    reader = RangeReader(topic.name, "spark-readers", "*", fail_on_data_loss=True)
    list(reader.read(planner.ranges({"initial": "earliest"}, end)))
    planner.latest_offset(end, None)
    assert committed() == 2


def test_an_idle_query_waits_and_a_message_ends_the_wait(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    planner = topic.planner(ManualClock(), idleWaitMs="20000")  # no time passes between its calls
    start = planner.latest_offset({"initial": "earliest"}, None)
    for body in ("a", "b"):
        sending = threading.Timer(0.1, topic.send, [body])
        sending.start()
        begin = time.monotonic()
        end = planner.latest_offset(start, None)
        assert 0.05 < time.monotonic() - begin < 10
        sending.join()
        assert topic.read(start, end) == [body]
        start = end
    planner.close()


def test_an_idle_wait_ends_by_itself_and_follows_no_batch(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    clock = ManualClock()
    planner = topic.planner(clock, idleWaitMs="120")
    start = planner.latest_offset({"initial": "earliest"}, None)
    begin = time.monotonic()
    assert planner.latest_offset(start, None) == start
    assert 0.1 < time.monotonic() - begin < 10
    clock.advance(60)  # longer than Spark lets pass when it polls idly
    begin = time.monotonic()
    assert planner.latest_offset(start, None) == start
    assert time.monotonic() - begin < 0.1
    planner.close()


class FakeTopic:
    """A broker with a queue from ``first`` to ``end``, and ``pulls`` answered as a test says."""

    def __init__(self, first: int = 0, end: int = 5) -> None:
        self.first = first
        self.end = end
        self.down = False
        self.pulls: list[tuple[int, int]] = []
        self.asked: list[int] = []

    def __call__(self, command: RemotingCommand, connection: Connection) -> None:
        if self.down:
            connection.close()
        elif command.code == RequestCode.GET_MIN_OFFSET:
            answer(command, connection, 0, {"offset": str(self.first)})
        elif command.code == RequestCode.GET_MAX_OFFSET:
            answer(command, connection, 0, {"offset": str(self.end)})
        else:
            self.asked.append(command.header(PullMessageRequestHeader).queue_offset)
            code, following = self.pulls.pop(0)
            fields = {
                "nextBeginOffset": str(following),
                "minOffset": str(self.first),
                "maxOffset": str(self.end),
                "suggestWhichBrokerId": "0",
            }
            answer(command, connection, code, fields)


def test_a_broker_that_is_down_holds_its_queues_back_only() -> None:
    fake = FakeTopic()
    with cluster(fake, queues=1) as address:
        planner = planner_of(address, "T", ManualClock(), idleWaitMs="80")
        start = planner.latest_offset({"initial": "earliest"}, None)
        fake.end, fake.down = 9, True
        assert planner.latest_offset(start, None) == start
        with pytest.raises(NetworkError):
            planner.prepare_for_available_now()
        fake.down = False
        end = planner.latest_offset(start, None)
        (found,) = planner.ranges(start, end)
        assert (found.begin, found.end) == (5, 9)
        planner.close()


def test_name_servers_that_go_away_leave_the_last_route() -> None:
    fake = FakeTopic()
    with server(fake) as broker_address:
        with cluster(fake, queues=1, address=broker_address) as name_server:
            planner = planner_of(name_server, "T")
            start = planner.latest_offset({"initial": "earliest"}, None)
        fake.end = 6
        assert planner.latest_offset(start, None) != start
        with pytest.raises(ConnectError, match="check nameServer"):
            planner_of(name_server, "T").latest_offset(start, None)


def test_a_topic_that_does_not_exist_is_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(TopicNotFoundError, match="topic 'nowhere' has no route"):
        planner_of(broker.name_server, "nowhere").latest_offset({"initial": "earliest"}, None)


@pytest.mark.parametrize(("first", "end"), [(3, 9), (0, 1)])
def test_lost_messages_stop_the_query_unless_told_otherwise(first: int, end: int) -> None:
    fake = FakeTopic(first, end)
    start = {"queues": {"broker-0": {"0": 2}}}
    with cluster(fake, queues=1) as address:
        with pytest.raises(DataLossError, match="queue 0 of broker-0: offset 2 .*failOnDataLoss"):
            planner_of(address, "T").latest_offset(start, None)
        planner = planner_of(address, "T", failOnDataLoss="false")
        following = as_spark_keeps(planner.latest_offset(start, None))
        (found,) = planner.ranges(start, following)
        assert (found.begin, found.end) == (first, end)
        assert planner.latest_offset(following, None) is following


def read_fake(address: str, *, end: int = 5, tags: str = "*", fail: bool = True) -> int:
    reader = RangeReader("T", "TOOLS_CONSUMER", tags, fail_on_data_loss=fail)
    return len(list(reader.read([QueueRange("broker-0", 0, address, 0, end)])))


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
        with pytest.raises(DataLossError, match="queue 0 of broker-0: offsets 0 to .* are gone"):
            read_fake(address)
        fake.pulls = [*pulls]
        assert read_fake(address, fail=False) == 0
        assert fake.pulls == []


def test_an_operators_reset_of_the_group_is_no_loss(broker: EmbeddedBroker) -> None:
    topic = Topic(broker, queues=1)
    topic.send("a", "b", "c")
    planner = topic.planner()
    start = planner.latest_offset({"initial": "earliest"}, None)
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
    assert limited["queues"]["broker-a"]["0"] == 1
    end = reader.latestOffset(limited, ReadAllAvailable())
    for begin, following, body in ((start, limited, b"a"), (limited, end, b"b")):
        (task,) = reader.partitions(begin, following)
        (found,) = pickle.loads(pickle.dumps(reader)).read(task)
        assert found.column("body").to_pylist() == [body]
    assert reader.partitions(end, end) == []
    with pytest.raises(OrbitMQError, match="not a batch"):
        reader.partitions(start, end)
    assert reader.reportLatestOffset() == {"queues": {"broker-a": {"0": 2, "1": 0}}}
    reader.stop()
