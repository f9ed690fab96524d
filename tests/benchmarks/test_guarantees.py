"""What the sink's guarantees cost: a moment of it."""

from __future__ import annotations

from benchmarks.guarantee_figures import guarantee_figures
from benchmarks.guaranteed_writes import Shape


def test_guarantees_stand_beside_each_other() -> None:
    found = list(guarantee_figures(None, 1, [Shape(10, 100), Shape(1, 30)], []))
    assert [result.name.partition(",")[0] for result in found] == [
        "at_least_once", "idempotent", "exactly_once",
    ] * 2  # fmt: skip
    assert [result.aim for result in found[:3]] == [None, 1.3, 2.0]
    assert all(result.ours > 0 and result.cpu for result in found)
