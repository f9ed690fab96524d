"""Searching by store time, both ways, and the times of single messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.testing.clock import ManualClock
from tests.store.support import TOPIC, draft, opened, put


def test_the_boundaries_of_a_time_between_messages(tmp_path: Path) -> None:
    """The example in ConsumeQueue.binarySearchInQueueByTime: t1 t1 t1 t3 t3, asked for t2."""
    clock = ManualClock(1_000)
    with opened(tmp_path, clock=clock) as store:
        put(store, *[b"x"] * 3)
        clock.advance(20)
        put(store, *[b"x"] * 2)

        def found(timestamp: int) -> tuple[int, int]:
            lower = store.offset_by_timestamp(TOPIC, 0, timestamp)
            return lower, store.offset_by_timestamp(TOPIC, 0, timestamp, upper=True)

        assert found(999) == (0, 0)
        assert found(1_000) == (0, 2)
        assert found(1_010) == (3, 2)
        assert found(1_020) == (3, 4)
        assert found(1_021) == (5, 4)
        assert store.offset_by_timestamp("Unknown", 0, 1_000) == 0


@given(steps=st.lists(st.integers(0, 3), max_size=40), asked=st.integers(-2, 80))
def test_against_the_definition(
    tmp_path_factory: pytest.TempPathFactory, steps: list[int], asked: int
) -> None:
    clock = ManualClock(100)
    times = []
    with opened(tmp_path_factory.mktemp("store"), clock=clock) as store:
        for step in steps:
            clock.advance(step)
            times.append(store.append(draft(b"x")).store_timestamp)
        store.write()
        timestamp = 100 + asked
        first_not_before = sum(time < timestamp for time in times)
        last_not_after = max(sum(time <= timestamp for time in times) - 1, 0)
        assert store.offset_by_timestamp(TOPIC, 0, timestamp) == first_not_before
        assert store.offset_by_timestamp(TOPIC, 0, timestamp, upper=True) == last_not_after


def test_times_of_messages_and_of_the_log(tmp_path: Path) -> None:
    clock = ManualClock(5_000)
    with opened(tmp_path, clock=clock) as store:
        assert store.earliest_timestamp() == -1
        assert store.earliest_timestamp(TOPIC, 0) == -1
        put(store, b"x")
        clock.advance(7)
        put(store, b"x", queue_id=1)
        assert store.earliest_timestamp() == 5_000
        assert store.earliest_timestamp(TOPIC, 1) == 5_007
        assert store.store_timestamp_at(TOPIC, 1, 0) == 5_007
        assert store.store_timestamp_at(TOPIC, 1, 1) == -1
        assert store.store_timestamp_at("Unknown", 0, 0) == -1


def test_messages_that_are_gone_are_not_found(tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    with opened(tmp_path, clock=clock) as store:
        for _ in range(20):
            put(store, b"x" * 300)
            clock.advance(10)
    (tmp_path / "commitlog" / ("0" * 20)).unlink()
    with opened(tmp_path) as store:
        assert store.earliest_timestamp() == 1_100
        assert store.offset_by_timestamp(TOPIC, 0, 0) == 10
        assert store.offset_by_timestamp(TOPIC, 0, 1_045, upper=True) == 10
        assert store.offset_by_timestamp(TOPIC, 0, 1_105) == 11
