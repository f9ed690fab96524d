"""Counts of the last minute, hour and day, on a clock that is moved."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.stats_items import Counts, Item, Items, Snapshot

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def numbers(item: Item, now_ms: int) -> list[int]:
    return [snapshot.sum for snapshot in item.snapshots(now_ms, of_size=False)]


def test_what_is_counted_is_there_for_a_minute_an_hour_and_a_day() -> None:
    item = Item(0)
    item.add(Counts(1, 5, 50), 0)
    assert item.snapshots(0, of_size=False)[0] == Snapshot(5, 0.5, 5.0, 1)
    assert item.snapshots(0, of_size=True)[0] == Snapshot(50, 5.0, 50.0, 1)
    assert numbers(item, MINUTE - 1) == [5, 5, 5]
    assert numbers(item, MINUTE) == [0, 5, 5]
    assert numbers(item, HOUR) == [0, 0, 5]
    assert numbers(item, DAY) == [0, 0, 0]


def test_a_steady_stream_has_its_rate() -> None:
    item = Item(0)
    for second in range(7_200):
        item.add(Counts(1, 20, 2_000), second * 1_000)
    for snapshot in item.snapshots(7_200_000 - 1, of_size=False):
        assert 19.9 < snapshot.tps < 20.1
        assert snapshot.average == 20.0


@given(st.lists(st.tuples(st.integers(0, 2 * DAY), st.integers(0, 1 << 40)), max_size=50))
def test_spans_hold_what_came_in_them(counted: list[tuple[int, int]]) -> None:
    counted.sort(key=lambda each: each[0])
    item = Item(0)
    for at_ms, number in counted:
        item.add(Counts(1, number, 0), at_ms)
    now_ms = counted[-1][0] if counted else 0
    for span, length, total in zip(
        (MINUTE, HOUR, DAY), (10_000, 600_000, 3_600_000), numbers(item, now_ms), strict=True
    ):
        surely = sum(number for at_ms, number in counted if at_ms > now_ms - span + length)
        at_most = sum(number for at_ms, number in counted if at_ms > now_ms - span)
        assert surely <= total <= at_most


def test_items_are_bounded_and_idle_ones_are_forgotten() -> None:
    items = Items(2)
    one = Counts(1, 1, 1)
    assert items.add("a@g", one, 0)
    assert items.add("b@g", one, 5)
    assert not items.add("c@g", one, 6)
    assert items.add("a@g", one, 6)
    items.forget_idle(6)
    assert (items.get("b@g"), len(items)) == (None, 1)
    items.forget("a")
    assert len(items) == 0
