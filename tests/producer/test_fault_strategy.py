"""The state machine that leaves brokers alone, held against the rules written plainly."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.producer.fault_strategy import FaultStrategy

BROKERS = ("a", "b", "c")
ANY_BROKER = st.sampled_from(BROKERS)
EVERY = frozenset(BROKERS)


@pytest.mark.parametrize(
    ("latency_ms", "out_ms"),
    [
        (0, 0),
        (100, 0),
        (549, 0),
        (550, 2_000),
        (1_799, 2_000),
        (1_800, 5_000),
        (3_000, 6_000),
        (5_000, 10_000),
        (15_000, 30_000),
        (99_999, 30_000),
    ],
)
def test_latency_is_paid_for_by_javas_table(latency_ms: int, out_ms: int) -> None:
    faults = FaultStrategy()
    faults.answered("a", latency_ms, now=1_000)
    assert faults.is_available("a", 1_000 + out_ms)
    assert not out_ms or not faults.is_available("a", 1_000 + out_ms - 1)


def test_a_shorter_time_out_does_not_end_a_longer_one() -> None:
    faults = FaultStrategy()
    faults.refused("a", now=0)
    faults.answered("a", 600, now=100)
    assert not faults.is_available("a", 9_999)
    assert faults.is_available("a", 10_000)


def test_what_is_not_available_is_better_than_what_is_not_reachable() -> None:
    faults = FaultStrategy(detector=True)
    faults.refused("a", now=0)
    faults.unreachable("b", now=0)
    assert faults.choose({"a", "b"}, None, 0) == {"a"}
    assert faults.choose({"a", "b"}, "a", 0) == {"a", "b"}, "none is left: all"
    assert faults.choose({"a", "b"}, None, 20_000) == {"a", "b"}
    assert not faults.is_reachable("b"), "until it is detected"
    faults.detected("b")
    assert faults.is_reachable("b")


def test_without_a_detector_time_heals() -> None:
    faults = FaultStrategy()
    faults.unreachable("a", now=0)
    assert faults.is_reachable("a")
    assert faults.choose({"a", "b"}, None, 9_999) == {"b"}
    assert faults.choose({"a", "b"}, None, 10_000) == {"a", "b"}


def test_a_broker_is_looked_at_again_after_the_interval() -> None:
    faults = FaultStrategy(detector=True)
    faults.unreachable("a", now=0)
    assert faults.due(0, 2_000) == ["a"]
    assert faults.due(1_999, 2_000) == []
    assert faults.due(2_000, 2_000) == ["a"]
    faults.forget("a")
    assert faults.due(9_000, 2_000) == []
    assert faults.is_reachable("a")


class Faults(RuleBasedStateMachine):
    """Against the rules: when each broker may be used again, and whether it is reachable."""

    now = 0.0

    @initialize(detector=st.booleans())
    def begin(self, detector: bool) -> None:
        self.detector = detector
        self.faults = FaultStrategy((50, 500), (0, 2_000), detector=detector)
        self.free_at = dict.fromkeys(BROKERS, 0.0)
        self.reachable = dict.fromkeys(BROKERS, True)

    @rule(ms=st.integers(0, 3_000))
    def pass_time(self, ms: int) -> None:
        self.now += ms

    @rule(broker=ANY_BROKER, latency_ms=st.integers(0, 1_000))
    def answer(self, broker: str, latency_ms: int) -> None:
        self.faults.answered(broker, latency_ms, self.now)
        if latency_ms >= 500:
            self.free_at[broker] = max(self.free_at[broker], self.now + 2_000)
        self.reachable[broker] = True

    @rule(broker=ANY_BROKER, answered=st.booleans())
    def fail(self, broker: str, answered: bool) -> None:
        if answered:
            self.faults.refused(broker, self.now)
        else:
            self.faults.unreachable(broker, self.now)
        self.free_at[broker] = max(self.free_at[broker], self.now + 2_000)
        self.reachable[broker] = answered or not self.detector

    @rule(broker=ANY_BROKER)
    def detect(self, broker: str) -> None:
        self.faults.detected(broker)
        self.reachable[broker] = True

    @invariant()
    def follows_the_rules(self) -> None:
        if not hasattr(self, "faults"):
            return
        for broker in BROKERS:
            assert self.faults.is_available(broker, self.now) == (self.now >= self.free_at[broker])
            assert self.faults.is_reachable(broker) == self.reachable[broker]
        for last in (None, *BROKERS):
            others = EVERY - {last}
            free = {name for name in others if self.now >= self.free_at[name]}
            reached = {name for name in others if self.reachable[name]}
            assert self.faults.choose(EVERY, last, self.now) == (free or reached or EVERY)


TestFaults = Faults.TestCase
