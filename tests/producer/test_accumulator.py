"""The state machine of automatic batches, held against its rules."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.producer.accumulator import Accumulator

KEYS = st.sampled_from(["a", "b"])


def test_a_full_batch_leaves_at_once() -> None:
    accumulator: Accumulator[str, int] = Accumulator(0.01, 100, 1000)
    assert accumulator.add("a", 1, 60, 0.0) == []
    assert accumulator.add("a", 2, 40, 0.0) == [], "it may have just as much"
    assert accumulator.add("a", 3, 1, 0.0) == [[1, 2, 3]]
    assert accumulator.next_due is None


def test_what_would_be_too_large_together_goes_apart() -> None:
    accumulator: Accumulator[str, int] = Accumulator(0.01, 100, 120)
    assert accumulator.add("a", 1, 90, 0.0) == []
    assert accumulator.add("a", 2, 110, 0.0) == [[1], [2]]


def test_a_batch_leaves_when_its_first_message_has_waited() -> None:
    accumulator: Accumulator[str, int] = Accumulator(0.01, 100, 1000)
    accumulator.add("a", 1, 1, 5.0)
    accumulator.add("a", 2, 1, 5.009)
    accumulator.add("b", 3, 1, 5.005)
    assert accumulator.next_due == 5.01
    assert accumulator.due(5.009) == []
    assert accumulator.due(5.01) == [[1, 2]]
    assert accumulator.drain() == [[3]]


class Accumulating(RuleBasedStateMachine):
    """Nothing is lost, doubled or overtaken within its key, and nothing waits too long."""

    @initialize(max_bytes=st.integers(1, 50), more=st.integers(0, 50))
    def begin(self, max_bytes: int, more: int) -> None:
        self.max_bytes, self.limit = max_bytes, max_bytes + more
        self.accumulator: Accumulator[str, tuple[str, int, int]] = Accumulator(
            1.0, self.max_bytes, self.limit
        )
        self.now = 0.0
        self.waiting: list[tuple[float, tuple[str, int, int]]] = []
        self.count = 0

    def left(self, batches: list[list[tuple[str, int, int]]]) -> None:
        for batch in batches:
            (key,) = {item[0] for item in batch}
            mine = [item for _, item in self.waiting if item[0] == key]
            assert mine[: len(batch)] == batch, "in their order"
            assert len(batch) == 1 or sum(item[2] for item in batch) <= self.limit
            self.waiting = [entry for entry in self.waiting if entry[1] not in batch]

    @rule(key=KEYS, size=st.integers(1, 60))
    def add(self, key: str, size: int) -> None:
        self.count += 1
        item = (key, self.count, size)
        self.waiting.append((self.now, item))
        self.left(self.accumulator.add(key, item, size, self.now))

    @rule(ms=st.integers(0, 600))
    def pass_time(self, ms: int) -> None:
        self.now += ms / 1000
        self.left(self.accumulator.due(self.now))
        assert all(self.now - since < 1.0 for since, _ in self.waiting)

    @rule()
    def drain(self) -> None:
        self.left(self.accumulator.drain())
        assert self.waiting == []

    @invariant()
    def holds_no_more_than_it_may(self) -> None:
        if not hasattr(self, "accumulator"):
            return
        for key in ("a", "b"):
            assert sum(item[2] for _, item in self.waiting if item[0] == key) <= self.max_bytes
        due = self.accumulator.next_due
        assert (due is None) == (not self.waiting)
        assert due is None or due == min(since for since, _ in self.waiting) + 1.0


TestAccumulating = Accumulating.TestCase
