"""A task waits for a broker by time; one that is there and refuses is not asked for ever."""

from __future__ import annotations

import logging
import time

import pytest

from orbitmq import codes
from orbitmq.errors import (
    BrokerError,
    ConnectError,
    MessageIllegalError,
    NetworkError,
    SystemBusyError,
)
from orbitmq.spark.patience import REFUSALS, Patience
from orbitmq.testing.clock import ManualClock

AWAY = ConnectError("cannot connect to 10.0.0.1:10911", "10.0.0.1:10911")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """A clock that only sleeping moves."""
    moved = ManualClock()
    monkeypatch.setattr(time, "sleep", lambda seconds: moved.advance(round(seconds * 1000)))
    return moved


def failures(patience: Patience, error: NetworkError | BrokerError) -> int:
    """How often ``error`` is borne before it is raised."""
    for count in range(1000):
        try:
            patience.wait_after(error)
        except type(error):
            return count
    raise AssertionError("patience has no end")


def test_a_broker_that_is_away_is_waited_for_by_time(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    patience = Patience("reading flights", 120_000, clock)
    begin = clock.monotonic()
    with caplog.at_level(logging.WARNING, "orbitmq.spark"):
        count = failures(patience, AWAY)
    assert clock.monotonic() - begin == pytest.approx(120, abs=0.1)
    assert count < 60  # with pauses between
    assert "reading flights by 10.0.0.1:10911 goes on in 120 s at most" in caplog.messages[0]
    assert "brokerWaitMs" in AWAY.__notes__[0]


def test_an_answer_gives_all_of_the_time_again(clock: ManualClock) -> None:
    patience = Patience("reading flights", 10_000, clock)
    for _ in range(100):
        patience.wait_after(AWAY)
        clock.advance(6_000)
        patience.wait_after(AWAY)
        patience.progressed()
        clock.advance(60_000)


def test_a_refusal_is_borne_a_few_times_and_one_for_good_never(clock: ManualClock) -> None:
    busy = SystemBusyError(codes.SYSTEM_BUSY, "busy")
    assert failures(Patience("sending to T", 120_000, clock), busy) == REFUSALS - 1
    illegal = MessageIllegalError(codes.MESSAGE_ILLEGAL, "too large")
    assert failures(Patience("sending to T", 120_000, clock), illegal) == 0


def test_no_patience_at_all(clock: ManualClock) -> None:
    assert failures(Patience("reading T", 0, clock), AWAY) == 0
