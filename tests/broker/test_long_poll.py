"""The long-poll table against a simple model, and its rules one by one."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.filtering import MessageFilter
from orbitmq.broker.long_poll import HeldPull, LongPollTable

QUEUES = [("A", 0), ("A", 1), ("B", 0)]
STEPS = st.one_of(
    st.tuples(
        st.just("hold"),
        st.sampled_from(QUEUES),
        st.integers(0, 4),
        st.integers(1, 20),
        st.sampled_from(
            [
                MessageFilter(None),
                MessageFilter(frozenset({1})),
                MessageFilter(frozenset({1, 2})),
                MessageFilter(by_properties=b"2".__eq__, key="2"),
            ]
        ),
        st.sampled_from("xyz"),
    ),
    st.tuples(st.just("arrive"), st.sampled_from(QUEUES), st.lists(st.integers(1, 3), min_size=1)),
    st.tuples(st.just("sweep"), st.integers(0, 15)),
    st.tuples(st.just("drop"), st.sampled_from("xyz")),
    st.tuples(st.just("take")),
)


def wants(wanted: MessageFilter, tag: int, properties: bytes) -> bool:
    if wanted.by_properties is not None:
        return wanted.by_properties(properties)
    return wanted.codes is None or tag in wanted.codes


@given(st.lists(STEPS, max_size=60))
def test_every_pull_is_readied_exactly_when_the_rules_say(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    table: LongPollTable[int] = LongPollTable(lambda place: b"%d" % place)
    waiting: list[HeldPull[int]] = []
    ready: list[HeldPull[int]] = []
    ends = dict.fromkeys(QUEUES, 0)
    now = 0
    for number, (kind, *step) in enumerate(steps):
        if kind == "hold":
            (topic, queue_id), offset, patience, wanted, owner = step
            pull = HeldPull(
                topic, queue_id, offset, deadline_ms=now + patience,
                wanted=wanted, owner=owner, request=number,
            )  # fmt: skip
            table.hold(pull)
            waiting.append(pull)
        elif kind == "arrive":
            queue, tags = step
            messages = [(ends[queue] + n, tag, tag) for n, tag in enumerate(tags, 1)]
            ends[queue] += len(tags)
            table.arrived(queue[0], queue[1], messages)
            woken = [
                pull
                for pull in waiting
                if (pull.topic, pull.queue_id) == queue
                and any(
                    end > pull.offset and wants(pull.wanted, tag, b"%d" % tag)
                    for end, tag, _ in messages
                )
            ]
            ready += woken
            waiting = [pull for pull in waiting if pull not in woken]
        elif kind == "sweep":
            now += step[0]
            table.sweep(now, lambda topic, queue_id: ends[topic, queue_id])
            woken = [
                pull
                for pull in waiting
                if pull.deadline_ms <= now or ends[pull.topic, pull.queue_id] > pull.offset
            ]
            ready += woken
            waiting = [pull for pull in waiting if pull not in woken]
        elif kind == "drop":
            table.drop(step[0])
            waiting = [pull for pull in waiting if pull.owner != step[0]]
            ready = [pull for pull in ready if pull.owner != step[0]]
        else:
            assert {pull.request for pull in table.take_ready()} == {pull.request for pull in ready}
            ready = []
        assert len(table) == len(waiting)


def test_those_who_waited_longer_are_readied_first() -> None:
    table: LongPollTable[int] = LongPollTable(lambda place: b"%d" % place)
    for number in range(5):
        table.hold(HeldPull("T", 0, 0, deadline_ms=9, owner=number, request=number))
    table.arrived("T", 0, [(1, 0, 0)])
    assert [pull.request for pull in table.take_ready()] == [0, 1, 2, 3, 4]
    assert table.take_ready() == []


def test_a_message_costs_those_that_want_it_and_a_look_at_each_test() -> None:
    table: LongPollTable[int] = LongPollTable(lambda place: b"%d" % place)
    looks = 0

    def test(properties: bytes) -> bool:
        nonlocal looks
        looks += 1
        return properties == b"7"

    class Codes(frozenset[int]):
        def __contains__(self, code: object) -> bool:
            nonlocal looks
            looks += 1
            return super().__contains__(code)

    for number in range(500):
        by_test = MessageFilter(by_properties=test, key="a > 1")
        by_tag = MessageFilter(Codes({number, number + 1}))
        for wanted in (by_test, by_tag):
            table.hold(
                HeldPull("T", 0, 0, deadline_ms=9, wanted=wanted, owner=number, request=number)
            )
    for offset in range(1, 11):
        table.arrived("T", 0, [(offset, -1, 0)])
    assert (looks, table.take_ready()) == (10, [])
    table.arrived("T", 0, [(11, 300, 0)])
    assert [pull.request for pull in table.take_ready()] == [299, 300]
    table.arrived("T", 0, [(12, -1, 7)])
    assert [pull.request for pull in table.take_ready()] == list(range(500))
    assert looks == 12


def test_a_lost_owner_costs_what_it_holds() -> None:
    table: LongPollTable[int] = LongPollTable(lambda place: b"%d" % place)
    looks = 0

    class Owner:
        """As a connection, which is looked up by its hash and compared."""

        def __hash__(self) -> int:
            nonlocal looks
            looks += 1
            return id(self)

        def __eq__(self, other: object) -> bool:
            nonlocal looks
            looks += 1
            return self is other

    owners = [Owner() for _ in range(300)]
    for number, owner in enumerate(owners):
        for queue_id in range(3):
            table.hold(HeldPull("T", queue_id, 0, deadline_ms=9, owner=owner, request=number))
    looks = 0
    for owner in owners[:-1]:
        table.drop(owner)
    assert looks < 300 * 3 * 8
    assert len(table) == 3
    table.arrived("T", 0, [(1, 0, 0)])
    assert [pull.request for pull in table.take_ready()] == [299]


def test_a_pull_that_wants_no_tag_is_answered_when_its_time_is_up() -> None:
    table: LongPollTable[int] = LongPollTable(lambda place: b"%d" % place)
    nothing = MessageFilter(frozenset())
    table.hold(HeldPull("T", 0, 1, deadline_ms=9, wanted=nothing, owner="x", request=1))
    table.arrived("T", 0, [(2, 0, 0)])
    assert (table.take_ready(), len(table)) == ([], 1)
    table.sweep(9, lambda _topic, _queue: 0)
    assert [pull.request for pull in table.take_ready()] == [1]
    assert not table


def test_a_pull_of_several_tags_is_readied_once() -> None:
    table: LongPollTable[int] = LongPollTable(lambda place: b"%d" % place)
    several = MessageFilter(frozenset({1, 2, 3}))
    wakes: list[Callable[[], None]] = [
        lambda: table.arrived("T", 0, [(1, 2, 0)]),
        lambda: table.sweep(9, lambda _topic, _queue: 0),
        lambda: table.wake("T", 0),
    ]
    for wake in wakes:
        table.hold(HeldPull("T", 0, 0, deadline_ms=9, wanted=several, owner="x", request=1))
        wake()
        assert len(table.take_ready()) == 1
        assert not table
