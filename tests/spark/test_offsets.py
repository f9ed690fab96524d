"""Positions survive their JSON; beginnings, ends and limits are exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigError, DataLossError, OrbitMQError
from orbitmq.spark.offsets import (
    Bounds,
    Offsets,
    Position,
    Queue,
    begin_at,
    initial_offset,
    limit_ends,
    parse_boundary,
    resolve,
)

A0, A1, B0 = Queue("broker-a", 0), Queue("broker-a", 1), Queue("broker-b", 0)
QUEUES = st.builds(Queue, st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 12))
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**62), max_size=8)
BOUNDS = {A0: Bounds(10, 100), A1: Bounds(0, 5), B0: Bounds(7, 7)}


@given(OFFSETS, OFFSETS)
def test_a_position_survives_spark_json(queues: Offsets, since: Offsets) -> None:
    position = Position(queues, since)
    text = json.dumps(position.to_json())
    assert Position.from_json(json.loads(text)) == position
    assert json.dumps(Position.from_json(json.loads(text)).to_json()) == text


def test_the_initial_offset_has_no_queues_yet() -> None:
    assert Position.from_json(initial_offset("latest")) == Position({}, {})
    assert initial_offset({A1: 3}) == {"initial": {"broker-a": {"1": 3}}}


@pytest.mark.parametrize(
    "document", [{}, {"queues": 3}, {"queues": {"a": {"x": 1}}}, {"logOffset": 1}]
)
def test_an_offset_of_another_source_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OrbitMQError, match="belongs to another source"):
        Position.from_json(document)


def test_boundaries_are_words_or_offsets_by_broker_and_queue() -> None:
    assert parse_boundary("startingOffsets", " Earliest ") == "earliest"
    assert parse_boundary("startingOffsets", "latest") == "latest"
    text = '{"broker-a": {"0": 12, "1": -1}, "broker-b": {"0": -2}}'
    assert parse_boundary("startingOffsets", text) == {A0: 12, A1: -1, B0: -2}


@pytest.mark.parametrize(
    "text",
    ["", "first", "12", "[]", '{"broker-a": 3}', '{"broker-a": {"0": "x"}}', '{"a": {"-1": 0}}',
     '{"a": {"0": -3}}', '{"a": {"0": true}}', '{"a": {"0": 1.5}}'],
)  # fmt: skip
def test_other_boundaries_are_refused_by_name_and_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_boundary("endingOffsets", text)
    assert (caught.value.name, caught.value.value) == ("endingOffsets", text)


def test_boundaries_are_resolved_within_the_queues_bounds() -> None:
    assert resolve("startingOffsets", "earliest", BOUNDS) == {A0: 10, A1: 0, B0: 7}
    assert resolve("startingOffsets", "latest", BOUNDS) == {A0: 100, A1: 5, B0: 7}
    given_ = {A0: 50, A1: -1}
    assert resolve("startingOffsets", given_, BOUNDS) == {A0: 50, A1: 5, B0: 7}
    assert resolve("endingOffsets", {A0: -2}, BOUNDS) == {A0: 10, A1: 5, B0: 7}


def test_a_queue_the_topic_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="queue 9 of broker-a.*the topic has queue 0 of broker-a"):
        resolve("startingOffsets", {Queue("broker-a", 9): 1}, BOUNDS)


@pytest.mark.parametrize("offset", [9, 101])
def test_reading_cannot_begin_where_nothing_is(offset: int) -> None:
    with pytest.raises(
        DataLossError, match=f"queue 0 of broker-a: offset {offset}.*failOnDataLoss"
    ):
        begin_at({A0: offset}, BOUNDS, fail_on_data_loss=True)
    begins, losses = begin_at({A0: offset}, BOUNDS, fail_on_data_loss=False)
    assert begins == {A0: 10}
    assert len(losses) == 1


def test_reading_begins_at_both_edges_and_leaves_out_unknown_queues() -> None:
    for offset in (10, 100):
        begins, losses = begin_at({A0: offset, Queue("gone", 0): 1}, BOUNDS, fail_on_data_loss=True)
        assert (begins, losses) == ({A0: offset}, [])


@given(
    st.dictionaries(QUEUES, st.tuples(st.integers(0, 99), st.integers(0, 999)), min_size=1),
    st.integers(1, 5000),
)
def test_a_limit_is_shared_out_by_backlog(
    backlogs: dict[Queue, tuple[int, int]], limit: int
) -> None:
    begins = {queue: begin for queue, (begin, _) in backlogs.items()}
    ends = {queue: begin + size for queue, (begin, size) in backlogs.items()}
    total = sum(size for _, size in backlogs.values())
    limited = limit_ends(begins, ends, limit)
    shares = {queue: limited[queue] - begins[queue] for queue in begins}
    assert sum(shares.values()) == min(total, limit)
    for queue, (_, size) in backlogs.items():
        assert 0 <= shares[queue] <= size
        if total > limit:
            assert abs(shares[queue] - size * limit / total) <= 1
