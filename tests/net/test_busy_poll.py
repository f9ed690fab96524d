"""How long the loop looks for what comes next, and how seldom where nothing does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.net import busy_poll
from orbitmq.net.busy_poll import POLL_SECONDS, BusyPoll

ONCE = POLL_SECONDS / 10


class Loop:
    """A loop whose every round takes ``ONCE``; it would sleep when nothing is to be called."""

    def __init__(self) -> None:
        self.now = 0.0
        self.rounds = 0
        self._calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self._calls.append(call)

    def run(self, most: int = 1 << 10) -> int:
        """Rounds until it would sleep; how many."""
        rounds = 0
        while self._calls and rounds < most:
            calls, self._calls = self._calls, []
            for call in calls:
                call()
            rounds += 1
            self.now += ONCE
        self.rounds += rounds
        return rounds


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(busy_poll, "monotonic", lambda: made.now)
    return made


def poll_of(loop: Loop) -> BusyPoll:
    return BusyPoll(cast("asyncio.AbstractEventLoop", loop))


def test_it_looks_for_a_moment_and_lets_others_run(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    yielded: list[None] = []
    monkeypatch.setattr(busy_poll, "_let_others_run", lambda: yielded.append(None))
    poll_of(loop).turn_ended()
    assert 10 <= loop.run() <= 12
    assert 10 <= len(yielded) <= 11


def test_as_long_as_turns_come_it_does_not_sleep(loop: Loop) -> None:
    poll = poll_of(loop)
    for _ in range(100):
        poll.turn_ended()
        assert loop.run(5) == 5
    assert loop.run() <= 12


def test_in_vain_it_is_tried_ever_less_often(loop: Loop) -> None:
    poll = poll_of(loop)
    tried = []
    for turn in range(400):
        poll.turn_ended()
        if loop.run():
            tried.append(turn)
    assert tried == [0, 1, 3, 7, 15, 31, 63, 127, 255, 383]


def test_once_something_comes_in_time_it_is_tried_as_before(loop: Loop) -> None:
    poll = poll_of(loop)
    for _ in range(256):
        poll.turn_ended()
        loop.run()
    poll.turn_ended()
    assert loop.run(3) == 0  # it is skipped now
    while not loop.run(3):
        poll.turn_ended()
    poll.turn_ended()  # in time
    assert loop.run()
    poll.turn_ended()
    assert loop.run()


@given(st.lists(st.integers(0, 40), max_size=200))
def test_it_never_looks_twice_at_a_time_nor_for_ever(gaps: list[int]) -> None:
    loop = Loop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(busy_poll, "monotonic", lambda: loop.now)
        poll = poll_of(loop)
        for gap in gaps:
            poll.turn_ended()
            assert len(loop._calls) <= 1
            loop.run(gap)
            loop.now += max(gap - 12, 0) * ONCE
        loop.run()
    assert loop.rounds <= 12 * len(gaps)
    assert not loop._calls
