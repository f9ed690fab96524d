"""Positions survive their JSON; beginnings and losses are exact."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import DataLossError, OrbitMQError
from orbitmq.spark.source.boundaries import initial_offset
from orbitmq.spark.source.offsets import Bounds, Offsets, Place, Position, Queue, begin_at

A0, A1, B0 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1), Queue("T", "broker-b", 0)
QUEUES = st.builds(
    Queue,
    st.sampled_from(["T", "U", "queues"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 12),
)
OFFSETS = st.dictionaries(QUEUES, st.integers(0, 2**62), max_size=8)
PLACES = st.builds(Place, st.sampled_from(["T", "U"]), st.sampled_from(["broker-a", "broker-b"]))
BOUNDS = {A0: Bounds(10, 100), A1: Bounds(0, 5), B0: Bounds(7, 7)}


@given(OFFSETS, OFFSETS, st.dictionaries(PLACES, st.integers(0, 2**42)))
def test_a_position_survives_spark_json(
    queues: Offsets, since: Offsets, seen: dict[Place, int]
) -> None:
    position = Position(queues, since, seen)
    text = json.dumps(position.to_json())
    assert Position.from_json(json.loads(text)) == position
    assert json.dumps(Position.from_json(json.loads(text)).to_json()) == text


def test_a_position_of_before_there_were_several_topics_is_understood() -> None:
    old = {"queues": {"broker-a": {"0": 5, "1": 3}}, "since": {"broker-a": {"1": 2}}}
    assert Position.from_json(old, "T") == Position({A0: 5, A1: 3}, {A1: 2})
    with pytest.raises(OrbitMQError, match="for these topics"):
        Position.from_json(old, None)


def test_the_initial_offset_has_no_queues_yet() -> None:
    assert Position.from_json(initial_offset("latest")) == Position({}, {})


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"queues": 3},
        {"topics": {"T": {"a": {"x": 1}}}},
        {"topics": {}, "seen": {"T": {"a": "x"}}},
        {"logOffset": 1},
    ],
)
def test_an_offset_of_another_source_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(OrbitMQError, match="belongs to another source"):
        Position.from_json(document, "T")


@pytest.mark.parametrize("offset", [9, 101])
def test_reading_cannot_begin_where_nothing_is(offset: int) -> None:
    with pytest.raises(
        DataLossError, match=f"T, queue 0 of broker-a: offset {offset}.*failOnDataLoss"
    ):
        begin_at({A0: offset}, BOUNDS, fail_on_data_loss=True)
    begins, losses = begin_at({A0: offset}, BOUNDS, fail_on_data_loss=False)
    assert begins == {A0: 10}
    assert len(losses) == 1


def test_reading_begins_at_both_edges_and_leaves_out_unknown_queues() -> None:
    for offset in (10, 100):
        gone = Queue("T", "gone", 0)
        begins, losses = begin_at({A0: offset, gone: 1}, BOUNDS, fail_on_data_loss=True)
        assert (begins, losses) == ({A0: offset}, [])


def test_nothing_of_a_topic_made_anew_counts_as_read() -> None:
    anew = {Place("T", "broker-a")}
    wanted = {A0: 50, A1: 0, B0: 7}
    with pytest.raises(DataLossError, match="deleted and made again, offset 50 was of the old one"):
        begin_at(wanted, BOUNDS, fail_on_data_loss=True, made_anew=anew)
    begins, losses = begin_at(wanted, BOUNDS, fail_on_data_loss=False, made_anew=anew)
    assert begins == {A0: 10, A1: 0, B0: 7}
    assert len(losses) == 1


def test_of_many_losses_some_are_shown() -> None:
    wanted = {Queue("T", "broker-a", number): 9 for number in range(1000)}
    with pytest.raises(DataLossError, match="and 995 more") as caught:
        begin_at(wanted, dict.fromkeys(wanted, Bounds(0, 1)), fail_on_data_loss=True)
    assert len(str(caught.value)) < 1000
