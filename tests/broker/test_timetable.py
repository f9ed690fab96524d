"""Periodic jobs: when each runs, and that none takes another down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.timetable import Timetable


def test_a_job_runs_once_each_time_its_interval_has_passed() -> None:
    timetable = Timetable(1_000)
    ran: list[str] = []
    timetable.every(50, lambda: ran.append("fast"))
    timetable.every(80, lambda: ran.append("slow"))
    assert timetable.wait_ms(1_000) == 50
    timetable.run(1_049)
    assert ran == []
    timetable.run(1_050)
    timetable.run(1_060)
    assert ran == ["fast"]
    assert timetable.wait_ms(1_060) == 20
    timetable.run(5_000)
    assert ran == ["fast", "fast", "slow"]
    assert timetable.wait_ms(5_000) == 50
    assert timetable.wait_ms(9_000) == 0


def test_a_job_that_fails_comes_again_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timetable = Timetable(0)
    ran: list[int] = []

    def fail() -> None:
        ran.append(0)
        raise ZeroDivisionError

    timetable.every(10, fail)
    timetable.every(10, lambda: ran.append(1))
    timetable.run(10)
    timetable.run(20)
    assert ran == [0, 1, 0, 1]
    assert "runs again in 10 ms" in caplog.text


@given(st.integers(1, 50), st.lists(st.integers(0, 60), max_size=50))
def test_waiting_as_long_as_told_never_misses_a_job(interval: int, waits: list[int]) -> None:
    timetable = Timetable(0)
    due, now, ran = interval, 0, 0

    def count() -> None:
        nonlocal ran
        ran += 1

    timetable.every(interval, count)
    expected = 0
    for wait in waits:
        now += wait
        assert timetable.wait_ms(now) == max(0, due - now)
        if now >= due:
            expected += 1
            due = now + interval
        timetable.run(now)
        assert ran == expected
