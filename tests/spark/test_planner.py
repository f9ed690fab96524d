"""A stream's offsets: resolved once, resumed exactly, limited, waited for, mirrored to a group."""

from __future__ import annotations

import threading
import time

import pytest

from orbitmq import codes
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import ConnectError, DataLossError, NetworkError, TopicNotFoundError
from orbitmq.net.blocking import BlockingConnection
from orbitmq.net.connection import Connection
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.signing import Fields
from tests.spark.fake_cluster import answer, cluster, server
from tests.spark.planners import FakeTopic, Offset, Topic, as_spark_keeps, planner_of


def test_batches_join_without_gap_or_overlap(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    planner = topic.planner()
    start: Offset = {"initial": "earliest"}
    seen = []
    for number in range(4):
        topic.send(*(f"{number}.{n}" for n in range(3)), key=str(number))
        end = as_spark_keeps(planner.latest_offset(start))
        seen += topic.read(start, end)
        start = end
    assert sorted(seen) == sorted(f"{number}.{n}" for number in range(4) for n in range(3))
    assert planner.latest_offset(start) is start
    assert topic.read(start, start) == []


def test_latest_is_resolved_once_and_kept_in_the_first_end(broker: EmbeddedBroker) -> None:
    """Spark keeps no initial offset and asks twice; what comes meanwhile must not be lost."""
    topic = Topic(broker)
    topic.send("before")
    first = topic.planner(startingOffsets="latest")
    initial = {"initial": "latest"}
    pinned = as_spark_keeps(first.latest_offset(initial))
    assert topic.read(initial, pinned) == []
    topic.send("after")
    end = as_spark_keeps(first.latest_offset(pinned))

    restarted = topic.planner(startingOffsets="latest")
    topic.send("later")
    assert topic.read(initial, pinned) == []  # batch 0 run again
    assert topic.read(pinned, end) == ["after"]
    assert topic.read(end, restarted.latest_offset(end)) == ["later"]


def test_a_first_batch_that_crashed_is_read_again_exactly(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b")
    initial = {"initial": "earliest"}
    end = as_spark_keeps(topic.planner().latest_offset(initial))
    topic.send("c")
    assert topic.read(initial, end) == ["a", "b"]


def test_given_offsets_begin_where_they_say(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send("a", "b", "c")
    planner = topic.planner(startingOffsets='{"broker-a": {"0": 1}}')
    end = planner.latest_offset({"initial": {}})
    assert topic.read({"initial": {}}, end) == ["b", "c"]


def test_a_limit_spreads_a_backlog_over_batches(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send(*map(str, range(25)))
    topic.send(*map(str, range(25, 30)), key="1")
    planner = topic.planner(maxOffsetsPerTrigger="8")
    start: Offset = {"initial": "earliest"}
    sizes, seen = [], []
    while (end := planner.latest_offset(start)) != start:
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
    first = planner.latest_offset(initial)
    topic.resize(3)
    assert planner.latest_offset(first) == first
    topic.send("b", key="2")
    second = as_spark_keeps(planner.latest_offset(first))
    assert topic.read(first, second) == ["b"]
    topic.send("c", key="2")
    assert topic.read(second, planner.latest_offset(second)) == ["c"]


def test_available_now_reads_what_was_there_and_ends(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    topic.send(*map(str, range(10)))
    planner = topic.planner(maxOffsetsPerTrigger="4")
    planner.prepare_for_available_now()
    topic.send("late")
    topic.resize(3)
    topic.send("late too", key="2")
    start: Offset = {"initial": "earliest"}
    seen = []
    while (end := planner.latest_offset(start)) != start:
        seen += topic.read(start, end)
        start = end
    assert sorted(map(int, seen)) == list(range(10))
    latest = topic.planner(startingOffsets="latest")
    latest.prepare_for_available_now()
    end = latest.latest_offset({"initial": "latest"})
    assert latest.latest_offset(end) == end


def test_tags_leave_gaps_that_do_no_harm(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    for number in range(6):
        topic.send(str(number), tags="UA" if number % 3 == 0 else "AA")
    planner = topic.planner(tags="UA || DL")
    initial = {"initial": "earliest"}
    end = planner.latest_offset(initial)
    assert topic.read(initial, end, "UA || DL") == ["0", "3"]
    topic.send("6", tags="AA")
    following = planner.latest_offset(end)
    assert following != end
    assert topic.read(end, following, "UA || DL") == []


def test_an_idle_query_waits_and_a_message_ends_the_wait(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    planner = topic.planner(ManualClock(), idleWaitMs="20000")  # no time passes between its calls
    start = planner.latest_offset({"initial": "earliest"})
    for body in ("a", "b"):
        sending = threading.Timer(0.1, topic.send, [body])
        sending.start()
        begin = time.monotonic()
        end = planner.latest_offset(start)
        assert 0.05 < time.monotonic() - begin < 10
        sending.join()
        assert topic.read(start, end) == [body]
        start = end
    planner.close()


def test_an_idle_wait_ends_by_itself_and_follows_no_batch(broker: EmbeddedBroker) -> None:
    topic = Topic(broker)
    clock = ManualClock()
    planner = topic.planner(clock, idleWaitMs="120")
    start = planner.latest_offset({"initial": "earliest"})
    begin = time.monotonic()
    assert planner.latest_offset(start) == start
    assert 0.1 < time.monotonic() - begin < 10
    planner.close()
    patient = topic.planner(clock, idleWaitMs="60000")
    patient.latest_offset({"initial": "earliest"})
    clock.advance(60)  # longer than Spark lets pass when it polls idly
    begin = time.monotonic()
    assert patient.latest_offset(start) == start
    assert time.monotonic() - begin < 30
    patient.close()


def test_a_broker_that_is_down_holds_its_queues_back_only() -> None:
    fake = FakeTopic()
    with cluster(fake, queues=1) as address:
        planner = planner_of(address, "T", ManualClock(), idleWaitMs="80", brokerWaitMs="0")
        start = planner.latest_offset({"initial": "earliest"})
        fake.end, fake.down = 9, True
        assert planner.latest_offset(start) == start
        with pytest.raises(NetworkError):
            planner.prepare_for_available_now()
        fake.down = False
        end = planner.latest_offset(start)
        (found,) = planner.ranges(start, end)
        assert (found.begin, found.end) == (5, 9)
        planner.close()


def test_name_servers_that_go_away_leave_the_last_route() -> None:
    fake = FakeTopic()
    with server(fake) as broker_address:
        with cluster(fake, queues=1, address=broker_address) as name_server:
            planner = planner_of(name_server, "T")
            start = planner.latest_offset({"initial": "earliest"})
        fake.end = 6
        assert planner.latest_offset(start) != start
        with pytest.raises(ConnectError, match="check nameServer"):
            planner_of(name_server, "T", brokerWaitMs="0").latest_offset(start)


def test_a_topic_that_does_not_exist_is_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(TopicNotFoundError, match="topic 'nowhere' has no route"):
        planner_of(broker.name_server, "nowhere").latest_offset({"initial": "earliest"})


@pytest.mark.parametrize(("first", "end"), [(3, 9), (0, 1)])
def test_lost_messages_stop_the_query_unless_told_otherwise(first: int, end: int) -> None:
    fake = FakeTopic(first, end)
    start = {"queues": {"broker-0": {"0": 2}}}
    with cluster(fake, queues=1) as address:
        with pytest.raises(DataLossError, match="queue 0 of broker-0: offset 2 .*failOnDataLoss"):
            planner_of(address, "T").latest_offset(start)
        planner = planner_of(address, "T", failOnDataLoss="false")
        following = as_spark_keeps(planner.latest_offset(start))
        (found,) = planner.ranges(start, following)
        assert (found.begin, found.end) == (first, end)
        assert planner.latest_offset(following) is following


def test_a_checkpoint_of_before_there_were_several_topics_is_gone_on_with() -> None:
    fake = FakeTopic(end=9)
    start = {"queues": {"broker-0": {"0": 2}}, "since": {"broker-0": {"0": 1}}}
    with cluster(fake, queues=1) as address:
        planner = planner_of(address, "T")
        (before,) = planner.ranges({"initial": "latest"}, start)
        assert (before.begin, before.end) == (1, 2)
        (found,) = planner.ranges(start, as_spark_keeps(planner.latest_offset(start)))
        assert (found.begin, found.end) == (2, 9)


def test_who_may_not_ask_for_statistics_asks_queue_by_queue() -> None:
    fake = FakeTopic(first=1, end=9)
    fake.tells_stats = False
    with cluster(fake, queues=1) as address:
        planner = planner_of(address, "T")
        start = planner.latest_offset({"initial": "earliest"})
        (found,) = planner.ranges({"initial": "earliest"}, start)
        assert (found.begin, found.end) == (1, 9)
        fake.end = 12
        (found,) = planner.ranges(start, planner.latest_offset(start))
        assert (found.begin, found.end) == (9, 12)
    assert fake.requests.count(RequestCode.GET_TOPIC_STATS_INFO) == 1


def test_a_topic_made_anew_while_a_query_runs_or_is_stopped_is_a_loss() -> None:
    fake = FakeTopic(end=5)
    with cluster(fake, queues=1) as address:
        planner = planner_of(address, "T", failOnDataLoss="false")
        start = planner.latest_offset({"initial": "earliest"})
        fake.end = 7
        start = as_spark_keeps(planner.latest_offset(start))
        fake.stored, fake.end = 90_000, 20
        with pytest.raises(DataLossError, match="offset 7 was of the old one.*failOnDataLoss"):
            planner_of(address, "T").latest_offset(start)
        end = planner.latest_offset(start)
        (found,) = planner.ranges(start, end)
        assert (found.begin, found.end) == (0, 20)
        fake.end = 21
        (found,) = planner.ranges(end, planner.latest_offset(end))
        assert (found.begin, found.end) == (20, 21)


def test_a_topic_that_is_deleted_is_a_loss_told_once(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeTopic(end=5)
    with cluster(fake, queues=1) as address:
        strict, lenient = planner_of(address, "T"), planner_of(address, "T", failOnDataLoss="false")
        start = strict.latest_offset({"initial": "earliest"})
        fake.deleted = True
        with pytest.raises(DataLossError, match="T was deleted from broker-0"):
            strict.latest_offset(start)
        for _ in range(3):
            assert lenient.latest_offset(start) is start
        assert [text for text in caplog.messages if "was deleted" in text] == [
            "data loss: T was deleted from broker-0"
        ]


def test_however_many_queues_have_nothing_new_a_plan_takes_two_requests(
    broker: EmbeddedBroker,
) -> None:
    asked: list[int] = []
    ask = BlockingConnection.exchange

    def exchange(
        self: BlockingConnection, requests: list[tuple[int, Fields, bytes]], **how: int
    ) -> list[RemotingCommand]:
        asked.extend(code for code, _, _ in requests)
        return ask(self, requests, **how)

    topic = Topic(broker, queues=500)
    topic.send("a")
    planner = topic.planner()
    start = planner.latest_offset({"initial": "earliest"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockingConnection, "exchange", exchange)
        assert planner.latest_offset(start) is start
    assert asked == [RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_TOPIC_STATS_INFO]


def test_the_first_batch_waits_for_a_broker_that_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeTopic(end=5)
    fake.down = True
    monkeypatch.setattr(time, "sleep", lambda _: setattr(fake, "down", False))
    with cluster(fake, queues=1) as address:
        planner = planner_of(address, "T")
        end = planner.latest_offset({"initial": "earliest"})
        assert [item.end for item in planner.ranges({"initial": "earliest"}, end)] == [5]


def test_a_query_that_is_started_again_waits_for_a_broker_nobody_knows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its last batch is planned by the checkpoint, and the name server has forgotten its topic."""
    start, end = ({"topics": {"T": {"broker-0": {"0": offset}}}} for offset in (2, 5))
    known = False

    def back(_seconds: float) -> None:
        nonlocal known
        known = True

    monkeypatch.setattr(time, "sleep", back)
    with cluster(FakeTopic(end=5), queues=1) as address:

        def forgetful(command: RemotingCommand, connection: Connection) -> None:
            if not known:
                answer(command, connection, codes.TOPIC_NOT_EXIST)
                return
            queues = [QueueData("broker-0", 1, 1, 6)]
            route = TopicRouteData(queues, [BrokerData("c", "broker-0", {0: address})])
            answer(command, connection, body=route.encode(standard=True))

        with server(forgetful) as name_server:
            (found,) = planner_of(name_server, "T").ranges(start, end)
            assert (found.begin, found.end, found.address) == (2, 5, address)
            known = False
            planner = planner_of(name_server, "T")
            assert planner.latest_offset(end) is end
            assert known
            known = False
            with pytest.raises(ConnectError, match="topic 'T' has no route"):
                planner_of(name_server, "T", brokerWaitMs="0").ranges(start, end)


def test_available_now_waits_for_a_broker_that_is_forgotten_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As name servers do with a broker that dies; they still tell of the topic's other one."""
    both = ["broker-0", "broker-1"]
    known = both
    monkeypatch.setattr(time, "sleep", lambda _seconds: known.extend(both[1:]))
    with cluster(FakeTopic(end=5), queues=1) as address:

        def forgetful(command: RemotingCommand, connection: Connection) -> None:
            queues = [QueueData(name, 1, 1, 6) for name in known]
            brokers = [BrokerData("c", name, {0: address}) for name in known]
            route = TopicRouteData(queues, brokers)
            answer(command, connection, body=route.encode(standard=True))

        with server(forgetful) as name_server:
            planner = planner_of(name_server, "T", maxOffsetsPerTrigger="8")
            planner.prepare_for_available_now()
            start = planner.latest_offset({"initial": "earliest"})
            known = both[:1]
            end = planner.latest_offset(start)
            assert sorted(item.end for item in planner.ranges(start, end)) == [5, 5]
            assert known == both
            known = both[:1]
            assert planner.latest_offset(end) is end  # all is read: nobody is waited for
            assert known == both[:1]
            planner = planner_of(name_server, "T", brokerWaitMs="0")
            known = [*both]
            planner.prepare_for_available_now()
            known = both[:1]
            with pytest.raises(ConnectError, match="the name server knows no master of broker-1"):
                planner.latest_offset({"initial": "earliest"})


def test_a_batch_waits_for_enough_messages_and_is_cut_to_size(broker: EmbeddedBroker) -> None:
    topic = Topic(broker, queues=1)
    clock = ManualClock()
    planner = topic.planner(
        clock, minOffsetsPerTrigger="3", maxTriggerDelay="10m", maxBytesPerTrigger="2k"
    )
    topic.send("a")
    start = planner.latest_offset({"initial": "earliest"})
    topic.send("b")
    assert planner.latest_offset(start) is start
    assert planner.latest_offset(start, limited=False) is not start  # Trigger.Once
    clock.advance(600_000)
    end = planner.latest_offset(start)
    assert topic.read(start, end) == ["b"]
    clock.advance(600_000)
    topic.send(*["c" * 1000] * 10)
    assert topic.read(end, planner.latest_offset(end)) == ["c" * 1000]
