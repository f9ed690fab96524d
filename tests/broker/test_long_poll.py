"""The long-poll table against a simple model, and its rules one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.long_poll import HeldPull, LongPollTable

QUEUES = [("A", 0), ("A", 1), ("B", 0)]
STEPS = st.one_of(
    st.tuples(
        st.just("hold"),
        st.sampled_from(QUEUES),
        st.integers(0, 4),
        st.integers(1, 20),
        st.sampled_from([None, frozenset({1}), frozenset({1, 2})]),
        st.sampled_from("xyz"),
    ),
    st.tuples(st.just("arrive"), st.sampled_from(QUEUES), st.integers(1, 2)),
    st.tuples(st.just("sweep"), st.integers(0, 15)),
    st.tuples(st.just("drop"), st.sampled_from("xyz")),
    st.tuples(st.just("take")),
)


@given(st.lists(STEPS, max_size=60))
def test_every_pull_is_readied_exactly_when_the_rules_say(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    table: LongPollTable[int] = LongPollTable()
    waiting: list[HeldPull[int]] = []
    ready: list[HeldPull[int]] = []
    ends = dict.fromkeys(QUEUES, 0)
    now = 0
    for number, (kind, *step) in enumerate(steps):
        if kind == "hold":
            (topic, queue_id), offset, patience, tags, owner = step
            pull = HeldPull(
                topic, queue_id, offset, deadline_ms=now + patience,
                match=tags and tags.__contains__, owner=owner, request=number,
            )  # fmt: skip
            table.hold(pull)
            waiting.append(pull)
        elif kind == "arrive":
            queue, tag = step
            ends[queue] += 1
            table.message_arrived(queue[0], queue[1], ends[queue], tag)
            woken = [
                pull
                for pull in waiting
                if (pull.topic, pull.queue_id) == queue
                and ends[queue] > pull.offset
                and (pull.match is None or pull.match(tag))
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
    table: LongPollTable[int] = LongPollTable()
    for number in range(5):
        table.hold(HeldPull("T", 0, 0, deadline_ms=9, match=None, owner=number, request=number))
    table.message_arrived("T", 0, 1, 0)
    assert [pull.request for pull in table.take_ready()] == [0, 1, 2, 3, 4]
    assert table.take_ready() == []
