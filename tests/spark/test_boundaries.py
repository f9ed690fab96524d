"""What begins and ends may be, and which offsets that means."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from orbitmq.errors import ConfigError
from orbitmq.spark.source.boundaries import (
    Ago,
    Back,
    Boundary,
    Resolver,
    Times,
    initial_offset,
    parse_offsets,
    parse_time,
    parse_times,
)
from orbitmq.spark.source.offsets import Bounds, Offsets, Queue

A0, A1, B0 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1), Queue("T", "broker-b", 0)
BOUNDS = {A0: Bounds(10, 100), A1: Bounds(0, 5), B0: Bounds(7, 7)}
NOW = 1_000_000


class Cluster:
    """A group that has an offset of one queue; a message is stored each millisecond from 0 on."""

    def group_offsets(self, group: str, queues: Collection[Queue]) -> Offsets:
        assert group == "g"
        return {A0: 40}

    def offsets_at(self, times: Mapping[Queue, int]) -> Offsets:
        return dict(times)


def resolve(name: str, boundary: Boundary, *, strict: bool = False) -> Offsets:
    return Resolver(Cluster(), NOW, "g", strict).resolve(name, boundary, BOUNDS)


def test_words_offsets_by_queue_and_how_far_back() -> None:
    assert parse_offsets("startingOffsets", " Earliest ", "T") == "earliest"
    assert parse_offsets("startingOffsets", "latest", "T") == "latest"
    assert parse_offsets("startingOffsets", "group", "T") == "group"
    assert parse_offsets("startingOffsets", "-100", "T") == Back(100)
    assert parse_offsets("startingOffsets", "-10m", None) == Ago(600_000)
    by_broker = '{"broker-a": {"0": 12, "1": -1}, "broker-b": {"0": -2}}'
    by_topic = f'{{"T": {by_broker}}}'
    for text, topic in ((by_broker, "T"), (by_topic, "T"), (by_topic, None)):
        assert parse_offsets("startingOffsets", text, topic) == {A0: 12, A1: -1, B0: -2}


@pytest.mark.parametrize(
    "text",
    ["", "first", "12", "[]", '{"broker-a": 3}', '{"broker-a": {"0": "x"}}', '{"a": {"-1": 0}}',
     '{"a": {"0": -3}}', '{"a": {"0": true}}', '{"a": {"0": 1.5}}', "-", "-0", "-5y", "group",
     '{"T": {"a": {"0": {}}}}', "[" * 100_000],
)  # fmt: skip
def test_other_boundaries_are_refused_by_name_and_value(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_offsets("endingOffsets", text, "T")
    assert (caught.value.name, caught.value.value) == ("endingOffsets", text)


def test_of_several_topics_each_queues_topic_is_named() -> None:
    with pytest.raises(ConfigError, match='of several topics {"flights"'):
        parse_offsets("startingOffsets", '{"broker-a": {"0": 12}}', None)


def test_times() -> None:
    assert parse_time("1767225600000") == Times(1_767_225_600_000)
    assert parse_time("2026-01-01T00:00:00Z") == Times(1_767_225_600_000)
    assert parse_time("2026-01-01 01:00:00+01:00") == Times(1_767_225_600_000)
    assert parse_times("startingOffsetsByTimestamp", '{"broker-a": {"0": 5}}', "T") == Times(
        None, {A0: 5}
    )


@pytest.mark.parametrize("text", ["", "2026-01-01T00:00:00", "yesterday", "-5", "1.5"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="with its zone"):
        parse_time(text)


def test_boundaries_are_resolved_within_the_queues_bounds() -> None:
    assert resolve("startingOffsets", "earliest") == {A0: 10, A1: 0, B0: 7}
    assert resolve("startingOffsets", "latest") == {A0: 100, A1: 5, B0: 7}
    assert resolve("startingOffsets", {A0: 50, A1: -1}) == {A0: 50, A1: 5, B0: 7}
    assert resolve("endingOffsets", {A0: -2}) == {A0: 10, A1: 5, B0: 7}
    assert resolve("startingOffsets", Back(20)) == {A0: 80, A1: 0, B0: 7}


def test_a_group_goes_on_where_it_was_and_begins_at_the_first_message() -> None:
    assert resolve("startingOffsets", "group") == {A0: 40, A1: 0, B0: 7}


def test_times_become_offsets() -> None:
    assert resolve("startingTimestamp", Times(60)) == {A0: 60, A1: 5, B0: 7}
    assert resolve("startingTimestamp", Times(3)) == {A0: 10, A1: 3, B0: 7}
    some = Times(None, {A0: 30})
    assert resolve("startingOffsetsByTimestamp", some) == {A0: 30, A1: 0, B0: 7}
    assert resolve("endingOffsetsByTimestamp", some) == {A0: 30, A1: 5, B0: 7}
    assert resolve("startingOffsets", Ago(NOW - 60)) == {A0: 60, A1: 5, B0: 7}
    with pytest.raises(ConfigError, match="T, queue 1 of broker-a has no message of then"):
        resolve("startingTimestamp", Times(60), strict=True)
    assert resolve("endingTimestamp", Times(60), strict=True) == {A0: 60, A1: 5, B0: 7}


@pytest.mark.parametrize(
    "boundary", [{Queue("T", "broker-a", 9): 1}, Times(None, {Queue("U", "b", 0): 1})]
)
def test_a_queue_that_is_not_read_is_refused(boundary: Any) -> None:
    with pytest.raises(ConfigError, match=r"queue \d of .* read are T, queue 0 of broker-a"):
        resolve("startingOffsets", boundary)


@pytest.mark.parametrize(
    ("boundary", "initial"),
    [
        ("latest", "latest"),
        ({A1: 3}, {"T": {"broker-a": {"1": 3}}}),
        (Times(5), {"time": 5, "times": {}}),
        (Ago(60_000), "-60000ms"),
        (Back(100), "-100"),
    ],
)
def test_what_a_query_was_told_is_its_first_offset(boundary: Boundary, initial: Any) -> None:
    assert initial_offset(boundary) == {"initial": initial}
