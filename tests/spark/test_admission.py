"""How much a batch takes: limits shared out, and waiting for enough."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.source.admission import Admittance, limit_ends
from orbitmq.spark.source.offsets import Offsets, Queue
from orbitmq.spark.source.options import Admission

QUEUES = st.builds(
    Queue, st.just("T"), st.sampled_from(["broker-a", "broker-b"]), st.integers(0, 12)
)
A0, A1 = Queue("T", "broker-a", 0), Queue("T", "broker-a", 1)
BEGINS = {A0: 0, A1: 100}
ENDS = {A0: 60, A1: 140}


@given(
    st.dictionaries(QUEUES, st.tuples(st.integers(0, 99), st.integers(0, 999)), min_size=1),
    st.integers(1, 5000),
)
def test_a_limit_is_shared_out_by_backlog(
    backlogs: dict[Queue, tuple[int, int]], limit: int
) -> None:
    begins = {queue: begin for queue, (begin, _) in backlogs.items()}
    ends = {queue: begin + size for queue, (begin, size) in backlogs.items()}
    total = sum(size for _, size in backlogs.values())
    limited = limit_ends(begins, ends, limit)
    shares = {queue: limited[queue] - begins[queue] for queue in begins}
    assert sum(shares.values()) == min(total, limit)
    for queue, (_, size) in backlogs.items():
        assert 0 <= shares[queue] <= size
        if total > limit:
            assert abs(shares[queue] - size * limit / total) <= 1


def admit(
    admittance: Admittance,
    ends: Offsets = ENDS,
    *,
    now: float = 0.0,
    each: float = 100.0,
    may_delay: bool = True,
) -> int:
    """How many offsets are admitted, of messages of ``each`` bytes."""
    admitted = admittance.admit(
        BEGINS, ends, now=now, record_bytes=lambda _: each, may_delay=may_delay
    )
    return sum(admitted.values()) - sum(BEGINS.values())


@pytest.mark.parametrize(
    ("limits", "count"),
    [
        ({}, 100),
        ({"max_offsets": 30}, 30),
        ({"max_offsets": 3000}, 100),
        ({"max_bytes": 2_000}, 20),
        ({"max_bytes": 2_000, "max_offsets": 10}, 10),
        ({"max_bytes": 1}, 1),  # else a query would stand still
    ],
)
def test_the_most(limits: dict[str, Any], count: int) -> None:
    assert admit(Admittance(Admission(**limits))) == count


@pytest.mark.parametrize("limits", [{"min_offsets": 101}, {"min_bytes": 10_001}])
def test_too_little_waits_until_there_is_enough_or_it_has_waited_long(
    limits: dict[str, Any],
) -> None:
    admittance = Admittance(Admission(max_delay_ms=5_000, **limits))
    assert admit(admittance, now=50.0) == 100  # the first batch does not wait
    assert admit(admittance, now=51.0) == 0
    assert admit(admittance, {A0: 61, A1: 140}, now=52.0) == 101
    assert admit(admittance, now=56.9) == 0
    assert admit(admittance, now=57.0) == 100
    assert admit(admittance, now=58.0, may_delay=False) == 100
    assert admit(admittance, BEGINS, now=59.0) == 0
