"""Spark's filters say what need not be read, and lose nothing."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from orbitmq.spark.source.offsets import Offsets, Queue
from orbitmq.spark.source.options import ReadOptions, read_options
from orbitmq.spark.source.pushdown import CLOCK_MARGIN_MS, push

Q0, Q1 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1)
BEGINS, ENDS = {Q0: 0, Q1: 10}, {Q0: 100, Q1: 90}
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
OFFSET, ID, STORED = ("queueOffset",), ("queueId",), ("storeTimestamp",)


def options(**given: str) -> ReadOptions:
    return read_options({"nameServer": "n:1", "topic": "T"} | given, streaming=False)


def offsets_at(times: Mapping[Queue, int]) -> Offsets:
    """Offset 50 was stored at noon, one an hour."""
    return {queue: 50 + (time - NOON_MS) // 3_600_000 for queue, time in times.items()}


def ranges(*filters: Filter, left: int = 0) -> dict[int, tuple[int, int]]:
    """What is read by queue id, ``left`` of the filters being left to Spark."""
    pushed, remaining = push(filters, options())
    assert len(remaining) == left
    assert all(any(item is given for given in filters) for item in remaining)
    found = pushed.ranges(BEGINS, ENDS, offsets_at)
    return {queue.queue_id: bounds for queue, bounds in found.items()}


def test_queues_and_offsets() -> None:
    assert ranges() == {0: (0, 100), 1: (10, 90)}
    assert ranges(EqualTo(ID, 1)) == {1: (10, 90)}
    assert ranges(In(("QUEUEID",), (0, 7))) == {0: (0, 100)}
    assert ranges(In(ID, (0, 1)), EqualTo(ID, 2)) == {}
    assert ranges(GreaterThan(OFFSET, 4), LessThan(OFFSET, 95)) == {0: (5, 95), 1: (10, 90)}
    assert ranges(GreaterThanOrEqual(OFFSET, 20), LessThanOrEqual(OFFSET, 20)) == {
        0: (20, 21),
        1: (20, 21),
    }
    assert ranges(EqualTo(OFFSET, 3))[0] == (3, 4)
    assert ranges(In(OFFSET, (3, 9)), left=1)[0] == (3, 10)


def test_store_times_are_taken_with_a_margin_and_left_to_spark() -> None:
    assert CLOCK_MARGIN_MS < 3_600_000
    assert ranges(GreaterThanOrEqual(STORED, NOON), left=1) == {0: (49, 100), 1: (49, 90)}
    assert ranges(LessThan(STORED, NOON), left=1) == {0: (0, 50), 1: (10, 50)}


@pytest.mark.parametrize(
    "item",
    [
        IsNotNull(("tags",)),
        Not(EqualTo(ID, 1)),
        EqualTo(("brokerName",), "broker-a"),
        EqualTo(STORED, datetime(2026, 1, 1)),  # noqa: DTZ001 - that is the point
        EqualTo(("tags",), "two words"),
        EqualTo(("tags",), "*"),
        EqualTo(("keys",), "it's"),
        EqualTo(ID, "1"),
        In(ID, ()),
    ],
)
def test_other_filters_are_left_to_spark(item: Filter) -> None:
    pushed, left = push([item], options())
    assert left == [item]
    assert pushed.applied(options()) == options()
    assert pushed.ranges(BEGINS, ENDS, offsets_at) == {Q0: (0, 100), Q1: (10, 90)}


def applied(given: ReadOptions, *filters: Filter) -> tuple[str, str, frozenset[str] | None, bool]:
    pushed, _ = push(filters, given)
    found = pushed.applied(given)
    some = bool(pushed.ranges(BEGINS, ENDS, offsets_at))
    return found.expression, found.expression_type, found.tags, some


def test_tags_and_keys_are_filtered_by_the_broker() -> None:
    tags, keys = In(("tags",), ("UA", "AA")), EqualTo(("keys",), "k")
    assert applied(options(), tags) == ("AA || UA", "TAG", frozenset({"AA", "UA"}), True)
    assert applied(options(tags="UA || DL"), tags)[:2] == ("UA", "TAG")
    assert applied(options(), keys) == ("KEYS IN ('k')", "SQL92", None, True)
    both = applied(options(), keys, tags)
    assert both == ("KEYS IN ('k') AND TAGS IN ('AA', 'UA')", "SQL92", None, True)
    condition = options(sql="a = 1 OR b = 2")
    assert applied(condition, tags) == ("a = 1 OR b = 2", "SQL92", None, True)
    assert applied(condition, keys)[0] == "KEYS IN ('k') AND (a = 1 OR b = 2)"
    # Filters on keys do not forget the option tags.
    assert applied(options(tags="DL"), keys)[0] == "KEYS IN ('k') AND TAGS IN ('DL')"
    # A message that is to have two tags is not there.
    assert not applied(options(tags="DL"), tags)[3]
    assert not applied(options(), tags, EqualTo(("tags",), "DL"))[3]
