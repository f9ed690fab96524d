"""The route table: its rules one by one, and against a model."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BrokerError
from orbitmq.nameserver.routes import (
    BROKER_TIMEOUT_MS,
    MAX_BROKERS,
    BrokerId,
    Registration,
    RouteTable,
)
from orbitmq.wire.bodies import DataVersion, QueueData, TopicConfig

MANY = [TopicConfig("A", 4, 4), TopicConfig("B", 2, 2)]


def registration(
    address: str = "h:1", name: str = "b", broker_id: int = 0, **fields: object
) -> Registration:
    return Registration(BrokerId("c", address), name, broker_id, **fields)  # type: ignore[arg-type]


def register(
    routes: RouteTable,
    *args: object,
    topics: list[TopicConfig] | None = None,
    version: DataVersion | None = None,
    connection: object = None,
    now_ms: int = 0,
    only_these: bool = False,
    **fields: object,
) -> object:
    return routes.register(
        registration(*args, **fields),  # type: ignore[arg-type]
        MANY if topics is None else topics,
        version or DataVersion(),
        connection,
        now_ms,
        only_these=only_these,
    )


def test_a_broker_brings_its_topics_and_takes_them_along() -> None:
    routes = RouteTable()
    register(routes)
    route = routes.route("A")
    assert route is not None
    assert route.queue_datas == [QueueData("b", 4, 4, 6)]
    assert route.broker_datas[0].broker_addrs == {0: "h:1"}
    changed = [TopicConfig("A", 8, 8), TopicConfig("C", 1, 1)]
    register(routes, topics=changed, version=DataVersion(counter=1))
    assert routes.topics().topic_list == {"A", "B", "C"}
    route = routes.route("A")
    assert route is not None
    assert route.queue_datas[0].read_queue_nums == 8
    routes.unregister(BrokerId("c", "h:1"), "b")
    assert routes.route("A") is None
    assert routes.topics().topic_list == frozenset()
    assert routes.clusters().cluster_addr_table == {}


def test_two_brokers_share_a_topic() -> None:
    routes = RouteTable()
    register(routes)
    register(routes, "h:2", "b2", topics=[TopicConfig("A", 1, 1), TopicConfig("Z", 1, 1)])
    route = routes.route("A")
    assert route is not None
    assert {queues.broker_name for queues in route.queue_datas} == {"b", "b2"}
    assert {broker.master_address for broker in route.broker_datas} == {"h:1", "h:2"}
    assert routes.cluster_topics("c").topic_list == {"A", "B", "Z"}
    assert routes.cluster_topics("unknown").topic_list == frozenset()
    system = routes.system_topics()
    assert system.topic_list == {"c", "b", "b2"}
    assert system.broker_addr == "h:1"
    routes.unregister(BrokerId("c", "h:2"), "b2")
    assert routes.topics().topic_list == {"A", "B"}


def test_a_single_topic_is_taken_only_from_a_known_broker() -> None:
    routes = RouteTable()
    assert register(routes, topics=[TopicConfig("A")]) is None
    assert routes.route("A") is None
    register(routes)
    assert register(routes, topics=[TopicConfig("N", 3, 3)]) is not None
    assert routes.topics().topic_list == {"A", "B", "N"}


def test_a_slave_learns_where_its_master_is_and_adds_no_topics() -> None:
    routes = RouteTable()
    register(routes, ha_address="h:9")
    found = register(routes, "h:2", broker_id=1, topics=[*MANY, TopicConfig("S")])
    assert found == ("h:1", "h:9")
    assert routes.members("b") == {0: "h:1", 1: "h:2"}
    assert "S" not in routes.topics().topic_list
    routes.unregister(BrokerId("c", "h:1"), "b")
    route = routes.route("A")
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {1: "h:2"}


def test_an_acting_master_may_only_be_read() -> None:
    routes = RouteTable()
    register(routes, "h:2", broker_id=1, acting_master=True)
    route = routes.route("A")
    assert route is not None
    assert route.queue_datas[0].perm == 4


def test_a_slave_turned_master_keeps_one_id() -> None:
    routes = RouteTable()
    register(routes, "h:2", broker_id=1)
    register(routes, "h:2", broker_id=0)
    assert routes.members("b") == {0: "h:2"}


def test_of_two_brokers_with_one_id_the_newer_state_holds() -> None:
    routes = RouteTable()
    register(routes, version=DataVersion(state_version=5))
    assert register(routes, "h:2", version=DataVersion(state_version=4)) is None
    assert routes.members("b") == {0: "h:1"}
    assert register(routes, "h:2", version=DataVersion(state_version=6)) is not None
    assert routes.members("b") == {0: "h:2"}


def test_silence_and_lost_connections_end_a_broker() -> None:
    routes = RouteTable()
    register(routes, connection="one")
    register(routes, "h:2", "b2", connection="two", timeout_ms=50)
    assert routes.expire(50) == []
    assert routes.expire(51) == ["two"]
    assert routes.members("b2") == {}
    routes.touch(BrokerId("c", "h:1"), 1_000)
    assert routes.expire(1_000 + BROKER_TIMEOUT_MS) == []
    assert routes.expire(1_001 + BROKER_TIMEOUT_MS) == ["one"]
    register(routes, connection="three")
    routes.disconnected("another")
    assert routes.members("b")
    routes.disconnected("three")
    assert not routes.members("b")


def test_topics_are_registered_and_deleted_one_by_one() -> None:
    routes = RouteTable()
    register(routes)
    routes.register_topic("X", [QueueData("b", 1, 1, 6)])
    routes.register_topic("Y", [QueueData("unknown", 1, 1, 6)])
    assert routes.topics().topic_list == {"A", "B", "X"}
    routes.delete_topic("A", "another cluster")
    assert routes.route("A")
    routes.delete_topic("A", "c")
    routes.delete_topic("X")
    assert routes.topics().topic_list == {"B"}


def test_what_strangers_may_have_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = RouteTable()
    for number in range(MAX_BROKERS):
        register(routes, f"h:{number}", f"b{number}", connection="one")
    register(routes, "h:0", "b0", connection="one")  # one of them again
    with pytest.raises(BrokerError, match="64 brokers are registered over this connection"):
        register(routes, "h:999", "b999", connection="one")
    register(routes, "h:999", "b999", connection="two")
    with pytest.raises(BrokerError, match="255 characters at most"):
        register(routes, name="b" * 256)
    with pytest.raises(BrokerError, match="255 characters at most"):
        register(routes, ha_address="h" * 256)
    topics = [TopicConfig("C" * 256), TopicConfig("D", 65_537, 1), TopicConfig("E", 1, -1)]
    register(routes, topics=[*topics, *MANY])
    routes.register_topic("F" * 256, [QueueData("b", 1, 1, 6)])
    assert routes.topics().topic_list == {"A", "B"}
    monkeypatch.setattr("orbitmq.nameserver.routes.MAX_TOPICS", 3)
    more = [TopicConfig("G"), TopicConfig("H"), TopicConfig("A", 9, 9)]
    register(routes, topics=more, version=DataVersion(counter=1))
    assert routes.topics().topic_list == {"A", "B", "G"}
    route = routes.route("A")
    assert route is not None
    assert 9 in {queues.read_queue_nums for queues in route.queue_datas}


def test_writing_may_be_forbidden_and_allowed_again() -> None:
    routes = RouteTable()
    register(routes)
    for writable, perm in ((False, 4), (True, 6)):
        assert routes.set_writable("b", writable=writable) == 2
        route = routes.route("A")
        assert route is not None
        assert route.queue_datas[0].perm == perm
    assert routes.set_writable("unknown", writable=False) == 0


BROKERS = st.sampled_from(["h:1", "h:2", "h:3"])
STEPS: st.SearchStrategy[tuple[str, str, set[str]]] = st.one_of(
    st.tuples(st.just("register"), BROKERS, st.sets(st.sampled_from("ABC"), min_size=2)),
    st.tuples(st.just("unregister"), BROKERS, st.just(set())),
    st.tuples(st.just("disconnect"), BROKERS, st.just(set())),
    st.tuples(st.just("wait"), st.just(""), st.just(set())),
)


@given(st.lists(STEPS, max_size=30))
def test_routes_are_those_of_the_brokers_that_live(steps: list[tuple[str, str, set[str]]]) -> None:
    routes = RouteTable()
    topics: dict[str, set[str]] = {}  # by broker
    seen: dict[str, int] = {}
    now = 0
    for kind, address, names in steps:
        if kind == "register":
            configs = [TopicConfig(name) for name in names]
            register(routes, address, address, topics=configs, connection=address, now_ms=now)
            topics.setdefault(address, set()).update(names)
            seen[address] = now
        elif kind == "unregister":
            routes.unregister(BrokerId("c", address), address)
            topics.pop(address, None)
        elif kind == "disconnect":
            routes.disconnected(address)
            topics.pop(address, None)
        else:
            now += 70_000
            routes.expire(now)
            topics = {a: t for a, t in topics.items() if now - seen[a] <= BROKER_TIMEOUT_MS}
        for name in "ABC":
            route = routes.route(name)
            found = {queues.broker_name for queues in route.queue_datas} if route else set()
            assert found == {address for address, held in topics.items() if name in held}
        assert set(routes.clusters().broker_addr_table) == set(topics)


def test_what_is_registered_again_unchanged_stays_without_write_permission() -> None:
    routes = RouteTable()
    register(routes)
    assert routes.set_writable("b", writable=False) == len(MANY)
    register(routes, topics=[*MANY, TopicConfig("New")])
    for topic, perm in (("A", 4), ("New", 6)):
        route = routes.route(topic)
        assert route is not None
        assert route.queue_datas[0].perm == perm
    register(routes, version=DataVersion(counter=1))
    route = routes.route("A")
    assert route is not None
    assert route.queue_datas[0].perm == 6


def test_a_registration_of_only_these_takes_the_broker_out_of_other_routes() -> None:
    routes = RouteTable()
    register(routes)
    register(routes, "h:2", "b2")
    register(routes, topics=[TopicConfig("A"), TopicConfig("N")], only_these=True)
    assert routes.topics().topic_list == {"A", "B", "N"}
    route = routes.route("B")
    assert route is not None
    assert [queues.broker_name for queues in route.queue_datas] == ["b2"]
    register(routes, "h:2", "b2", topics=[], only_these=True)
    assert routes.topics().topic_list == {"A", "N"}


def test_topics_of_units_are_listed() -> None:
    routes = RouteTable()
    topics = [TopicConfig(f"F{flag}", topic_sys_flag=flag) for flag in range(4)]
    register(routes, topics=topics)
    assert routes.unit_topics().topic_list == {"F1", "F3"}
    assert routes.unit_sub_topics().topic_list == {"F2", "F3"}
    assert routes.unit_sub_only_topics().topic_list == {"F2"}
