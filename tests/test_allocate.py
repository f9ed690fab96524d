"""The allocation strategies give what the Java classes give, and give every queue once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.allocate import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    allocate_all,
    java_order,
)
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue


def queues_of(
    count: int, topic: str = "topic", broker_name: str = "brokerName"
) -> list[MessageQueue]:
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(count)]


def clients_of(count: int) -> list[str]:
    return [f"CID_PREFIX{index}" for index in range(count)]


def shares(
    strategy: AllocateStrategy, queues: Sequence[MessageQueue], client_ids: Sequence[str]
) -> list[str]:
    """Each client's queue ids as digits, in the order of the clients."""
    return [
        "".join(str(queue.queue_id) for queue in strategy("group", client, queues, client_ids))
        for client in client_ids
    ]


def room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.partition("-")[0]


def room_of_client(client_id: str) -> str:
    return client_id.partition("-")[0]


NEARBY = AllocateMachineRoomNearby(room_of_queue, room_of_client)

# The expected shares are what the Java classes return for the same lists.


@pytest.mark.parametrize(
    ("queues", "clients", "expected"),
    [
        (10, 4, ["012", "345", "67", "89"]),
        (3, 4, ["0", "1", "2", ""]),
        (4, 4, ["0", "1", "2", "3"]),
        (5, 1, ["01234"]),
    ],
)
def test_averagely(queues: int, clients: int, expected: list[str]) -> None:
    assert shares(AllocateAveragely(), queues_of(queues), clients_of(clients)) == expected


@pytest.mark.parametrize(
    ("queues", "clients", "expected"),
    [(10, 4, ["048", "159", "26", "37"]), (3, 4, ["0", "1", "2", ""])],
)
def test_averagely_by_circle(queues: int, clients: int, expected: list[str]) -> None:
    assert shares(AllocateAveragelyByCircle(), queues_of(queues), clients_of(clients)) == expected


def test_by_config_ignores_the_lists() -> None:
    fixed = queues_of(2)
    assert AllocateByConfig(fixed)("group", "", [], []) == fixed


def test_by_machine_room() -> None:
    first = queues_of(5, broker_name="room1@broker-a")
    second = [MessageQueue("topic", "room2@broker-b", queue_id) for queue_id in (5, 6, 7, 8, 9)]
    elsewhere = queues_of(3, broker_name="broker-c") + queues_of(3, broker_name="room3@broker-d")
    one_room = AllocateByMachineRoom({"room1"})
    both = AllocateByMachineRoom({"room1", "room2"})
    assert shares(one_room, first + second + elsewhere, clients_of(2)) == ["014", "23"]
    assert shares(both, first + second + elsewhere, clients_of(3)) == ["0129", "345", "678"]
    assert shares(AllocateByMachineRoom(set()), first, clients_of(2)) == ["", ""]


@pytest.mark.parametrize(
    ("broker_name", "counts"),
    [("room1@a", True), ("room1@a@", True), ("room1@", False), ("room1@a@b", False), ("", False)],
)
def test_the_form_of_a_broker_name_with_a_room(broker_name: str, counts: bool) -> None:
    queues = queues_of(1, broker_name=broker_name)
    strategy = AllocateByMachineRoom({"room1", ""})
    assert strategy("group", "c", queues, ["c"]) == (queues if counts else [])


def test_machine_room_nearby() -> None:
    queues = [
        MessageQueue("topic", f"IDC{room}-broker", queue_id)
        for room, count in ((1, 4), (2, 4), (3, 3))
        for queue_id in range(count)
    ]
    clients = ["IDC1-c0", "IDC1-c1", "IDC2-c0"]
    taken = [
        [(room_of_queue(queue)[-1], queue.queue_id) for queue in NEARBY("g", c, queues, clients)]
        for c in clients
    ]
    assert taken == [
        [("1", 0), ("1", 1), ("3", 0)],
        [("1", 2), ("1", 3), ("3", 1)],
        [("2", 0), ("2", 1), ("2", 2), ("2", 3), ("3", 2)],
    ]


def test_machine_room_nearby_needs_a_room_for_all() -> None:
    nowhere = AllocateMachineRoomNearby(lambda _: "", room_of_client)
    with pytest.raises(ConfigError, match="machine room"):
        nowhere("group", "a-0", queues_of(1), ["a-0"])


@pytest.mark.parametrize(
    ("strategy", "queues", "clients", "expected"),
    [
        (AllocateByConsistentHash(), queues_of(10), clients_of(4), ["16789", "03", "25", "4"]),
        (
            AllocateByConsistentHash(),
            queues_of(8, "TopicTest", "broker-a"),
            ["192.168.0.1@A", "192.168.0.2@B", "192.168.0.3@C"],
            ["037", "125", "46"],
        ),
        (
            AllocateByConsistentHash(3),
            queues_of(6, "topic_test", "brokerName"),
            clients_of(2),
            ["14", "0235"],
        ),
        (AllocateByConsistentHash(0), queues_of(4), clients_of(2), ["", ""]),
    ],
)
def test_by_consistent_hash(
    strategy: AllocateStrategy,
    queues: list[MessageQueue],
    clients: list[str],
    expected: list[str],
) -> None:
    assert shares(strategy, queues, clients) == expected


def test_consistent_hash_places_points_by_its_own_function() -> None:
    strategy = AllocateByConsistentHash(1, hash_function=lambda key: int(key[-1] == "]"))
    # Both clients land on point 0, the later one keeps it; queues hash to 1 and wrap around to it.
    assert shares(strategy, queues_of(3), clients_of(2)) == ["", "012"]


def test_a_client_that_comes_twice_gets_further_points() -> None:
    # Of each point its last owner; "b" lost one to "a", so its second go adds b-1 and b-2.
    points = {"a-0": 10, "a-1": 20, "b-0": 20, "b-1": 30, "b-2": 40, "a-2": 50, "a-3": 60}
    at = {queue: number * 10 - 5 for number, queue in enumerate(map(str, queues_of(8)))}
    strategy = AllocateByConsistentHash(2, hash_function=lambda key: (points | at)[key])
    assert shares(strategy, queues_of(8), ["b", "a", "b"]) == ["34", "012567", "34"]


def test_negative_virtual_nodes_are_refused() -> None:
    with pytest.raises(ConfigError, match="virtual_nodes=-1"):
        AllocateByConsistentHash(-1)


def test_names_are_those_of_java() -> None:
    names = [strategy.name for strategy in CHECKING]
    assert names == [
        "AVG",
        "AVG_BY_CIRCLE",
        "MACHINE_ROOM",
        "MACHINE_ROOM_NEARBY-AVG",
        "CONSISTENT_HASH",
    ]
    assert AllocateByConfig([]).name == "CONFIG"


CHECKING: list[AllocateStrategy] = [
    AllocateAveragely(),
    AllocateAveragelyByCircle(),
    AllocateByMachineRoom({"room1"}),
    NEARBY,
    AllocateByConsistentHash(),
]


@pytest.mark.parametrize("strategy", CHECKING, ids=lambda strategy: strategy.name)
class TestArguments:
    def test_an_unknown_client_gets_nothing(self, strategy: AllocateStrategy) -> None:
        assert strategy("group", "stranger-0", queues_of(4), clients_of(2)) == []

    def test_empty_arguments_are_refused(self, strategy: AllocateStrategy) -> None:
        with pytest.raises(ConfigError, match="client_id"):
            strategy("group", "", queues_of(4), clients_of(2))
        with pytest.raises(ConfigError, match="queues"):
            strategy("group", "c", [], ["c"])
        with pytest.raises(ConfigError, match="client_ids"):
            strategy("group", "c", queues_of(4), [])


class ByHand:
    """A strategy of the user's own."""

    name = "BY_HAND"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        return list(queues) if client_id == client_ids[-1] else []


rooms = st.sampled_from(["IDC1", "IDC2", "IDC3"])
queue_lists = st.lists(
    st.builds(
        MessageQueue,
        st.sampled_from(["flights", "orders"]),
        st.builds("{}-{}".format, rooms, st.sampled_from("ab")),
        st.integers(0, 20),
    ),
    min_size=1,
    max_size=40,
    unique=True,
).map(sorted)
client_lists = st.lists(
    st.builds("{}-{}".format, rooms, st.integers(0, 50)), min_size=1, max_size=12, unique=True
).map(sorted)


@pytest.mark.parametrize(
    "strategy",
    [AllocateAveragely(), AllocateAveragelyByCircle(), NEARBY, AllocateByConsistentHash()],
    ids=lambda strategy: strategy.name,
)
@given(queues=queue_lists, clients=client_lists)
def test_every_queue_goes_to_exactly_one_client(
    strategy: AllocateStrategy, queues: list[MessageQueue], clients: list[str]
) -> None:
    taken = [queue for client in clients for queue in strategy("group", client, queues, clients)]
    assert sorted(taken) == queues


@pytest.mark.parametrize("strategy", [AllocateAveragely(), AllocateAveragelyByCircle()])
@given(queues=queue_lists, clients=client_lists)
def test_shares_differ_by_one_queue_at_most(
    strategy: AllocateStrategy, queues: list[MessageQueue], clients: list[str]
) -> None:
    sizes = {len(strategy("group", client, queues, clients)) for client in clients}
    assert max(sizes) - min(sizes) <= 1


@given(queues=queue_lists, clients=client_lists, near=st.sets(rooms))
def test_by_machine_room_shares_the_near_queues_once(
    queues: list[MessageQueue], clients: list[str], near: set[str]
) -> None:
    queues = [queue._replace(broker_name=queue.broker_name.replace("-", "@")) for queue in queues]
    strategy = AllocateByMachineRoom(near)
    taken = [queue for client in clients for queue in strategy("group", client, queues, clients)]
    assert sorted(taken) == [q for q in queues if q.broker_name.partition("@")[0] in near]


@given(queues=queue_lists, clients=client_lists, leaver=st.integers(0))
def test_consistent_hash_moves_only_the_queues_of_who_left(
    queues: list[MessageQueue], clients: list[str], leaver: int
) -> None:
    strategy = AllocateByConsistentHash()
    gone = clients[leaver % len(clients)]
    rest = [client for client in clients if client != gone]
    for client in rest:
        before = strategy("group", client, queues, clients)
        assert set(before) <= set(strategy("group", client, queues, rest))


@pytest.mark.parametrize(
    "strategy",
    [
        *CHECKING,
        AllocateByConfig(queues_of(3)),
        AllocateByMachineRoom({"IDC1", "IDC2"}),
        AllocateMachineRoomNearby(room_of_queue, room_of_client, AllocateByConsistentHash(3)),
        AllocateMachineRoomNearby(room_of_queue, room_of_client, ByHand()),
        ByHand(),
    ],
    ids=lambda strategy: strategy.name,
)
@given(queues=queue_lists, clients=client_lists, twice=st.lists(st.integers(0, 11), max_size=2))
def test_all_shares_at_once_are_those_given_one_by_one(
    strategy: AllocateStrategy, queues: list[MessageQueue], clients: list[str], twice: list[int]
) -> None:
    clients += [clients[index % len(clients)] for index in twice]
    assert allocate_all(strategy, "group", queues, clients) == {
        client: strategy("group", client, queues, clients) for client in clients
    }


@pytest.mark.parametrize(("queues", "clients"), [([], ["c"]), (queues_of(2), [])])
def test_all_shares_of_empty_lists_are_refused(
    queues: list[MessageQueue], clients: list[str]
) -> None:
    with pytest.raises(ConfigError):
        allocate_all(AllocateAveragely(), "group", queues, clients)


def test_text_sorts_as_in_java() -> None:
    assert sorted(["\ufb01", "b", "\U0001f600", "a"], key=java_order) == [
        *("a", "b", "\U0001f600", "\ufb01")
    ]
