"""The table of offsets against a plain model, and what a snapshot of it holds."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.offsets import ConsumerOffsets


class Step(NamedTuple):
    kind: str
    group: str
    topic: str
    queue_id: int
    offset: int


STEPS = st.builds(
    Step,
    st.sampled_from(
        (
            "commit commit commit pulled reset told take clone snapshot load "
            "forget-topic forget-group"
        ).split()
    ),
    st.sampled_from("gh"),
    st.sampled_from("AB"),
    st.integers(0, 2),
    st.integers(0, 9),
)
PLACES = [(topic, group, queue) for topic in "AB" for group in "gh" for queue in range(3)]
Place = tuple[str, str, int]


class Model:
    """The same in flat tables."""

    def __init__(self) -> None:
        self.committed: dict[Place, int] = {}
        self.pulled: dict[Place, int] = {}
        self.resets: dict[Place, tuple[int, bool]] = {}

    def forget(self, topic: str | None, group: str | None) -> None:
        _drop(self.committed, topic, group)
        _drop(self.pulled, topic, group)
        _drop(self.resets, topic, group)

    def table(self) -> dict[str, dict[int, int]]:
        table: dict[str, dict[int, int]] = {}
        for (topic, group, queue), offset in self.committed.items():
            table.setdefault(f"{topic}@{group}", {})[queue] = offset
        return table


def _drop(table: dict[Place, Any], topic: str | None, group: str | None) -> None:
    for place in list(table):
        if topic in (None, place[0]) and group in (None, place[1]):
            del table[place]


def carry_out(offsets: ConsumerOffsets, model: Model, step: Step) -> None:
    kind, group, topic, queue_id, offset = step
    place = topic, group, queue_id
    if kind == "commit":
        offsets.commit(group, topic, queue_id, offset)
        model.committed[place] = offset
    elif kind == "pulled":
        offsets.pulled(group, topic, queue_id, offset)
        model.pulled[place] = offset
    elif kind == "reset":
        offsets.reset(group, topic, queue_id, offset)
        model.committed[place] = offset
        model.resets[place] = offset, False
    elif kind == "told":
        offsets.told(group, topic, queue_id)
        if place in model.resets:
            model.resets[place] = model.resets[place][0], True
    elif kind == "take":
        at, told = model.resets.pop(place, (None, False))
        expected = None if told and at == offset else at
        assert offsets.take_reset(group, topic, queue_id, offset) == expected
    elif kind == "clone":
        other = "h" if group == "g" else "g"
        source = {
            (topic, group, queue): at
            for (of, its, queue), at in model.committed.items()
            if (of, its) == (topic, other)
        }
        offsets.clone(other, group, topic)
        if source:
            _drop(model.committed, topic, group)
            _drop(model.resets, topic, group)
            model.committed.update(source)
    elif kind == "load":
        offsets.load({f"{topic}@{group}": {queue_id: offset}})
        _drop(model.committed, topic, group)
        model.committed[place] = offset
    elif kind == "forget-topic":
        offsets.forget_topic(topic)
        model.forget(topic, None)
    elif kind == "forget-group":
        offsets.forget_group(group)
        model.forget(None, group)


@given(st.lists(STEPS, max_size=30))
def test_offsets_follow_the_model(steps: list[Step]) -> None:
    offsets, model = ConsumerOffsets(), Model()
    snapshots: list[tuple[dict[str, dict[int, int]], dict[str, dict[int, int]]]] = []
    for step in steps:
        if step.kind == "snapshot":
            snapshots.append((offsets.snapshot(), model.table()))
        carry_out(offsets, model, step)
        assert offsets.table == model.table()
        assert offsets._count == len(model.committed)
        assert offsets._pulled_count == len(model.pulled)
        for topic, group, queue in PLACES:
            place = topic, group, queue
            assert offsets.query(group, topic, queue) == model.committed.get(place)
            assert offsets.pull_offset(group, topic, queue) == model.pulled.get(place)
            assert offsets.is_reset(group, topic, queue) == (place in model.resets)
        for name in "AB":
            committed = {group for topic, group, _ in model.committed if topic == name}
            assert sorted(offsets.groups(name)) == sorted(committed)
        for name in "gh":
            topics = {topic for topic, group, _ in model.committed if group == name}
            assert sorted(offsets.topics(name)) == sorted(topics)
    for snapshot, expected in snapshots:
        assert snapshot == expected  # untouched by all that came later


def test_the_room_for_pull_offsets_is_bounded_and_given_back() -> None:
    offsets = ConsumerOffsets(most=2)
    for queue_id in range(3):
        offsets.pulled("g", "A", queue_id, 5)
    assert [offsets.pull_offset("g", "A", queue_id) for queue_id in range(3)] == [5, 5, None]
    offsets.pulled("g", "A", 1, 6)
    offsets.forget_topic("A")
    offsets.pulled("g", "B", 0, 7)
    assert offsets.pull_offset("g", "B", 0) == 7
