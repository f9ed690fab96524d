"""Counts over the last minute, hour and day, of whatever is counted by name.

State machines: the time is an argument, in ms of a clock that is never set back. Follows Java's
StatsItem, StatsItemSet and StatsSnapshot; where Java samples running totals every 10 s, 10 min and
1 h, here what is counted goes into slots of that length, so that nothing is done for what rests.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

_SPANS: Final = ((10_000, 6), (600_000, 6), (3_600_000, 24))
"""The length of a slot in ms, and how many there are: for a minute, an hour and a day."""
_FIELDS: Final = 3


class Snapshot(NamedTuple):
    """What was counted in a span: the sum, how much a second, the mean of one time, and times."""

    sum: int
    tps: float
    average: float
    times: int


class Counts(NamedTuple):
    """What is counted together: how many times, and two sums, such as of messages and bytes."""

    times: int
    number: int
    size: int


class _Ring:
    """Counts by slots of one length, the oldest forgotten."""

    __slots__ = ("_counts", "_length", "_slot", "_slots")

    def __init__(self, length: int, slots: int) -> None:
        self._length = length
        self._slots = slots
        self._slot = -1
        self._counts = array("q", bytes(8 * _FIELDS * slots))

    def add(self, counts: Counts, now_ms: int) -> None:
        self._advance(now_ms)
        at = self._slot % self._slots * _FIELDS
        for i in range(_FIELDS):
            self._counts[at + i] += counts[i]

    def total(self, now_ms: int) -> Counts:
        self._advance(now_ms)
        return Counts(*(sum(self._counts[i::_FIELDS]) for i in range(_FIELDS)))

    def span_ms(self, now_ms: int) -> int:
        """How long ago the oldest slot began."""
        return now_ms - (self._slot - self._slots + 1) * self._length

    def _advance(self, now_ms: int) -> None:
        slot = now_ms // self._length
        for passed in range(max(self._slot + 1, slot - self._slots + 1), slot + 1):
            at = passed % self._slots * _FIELDS
            for i in range(_FIELDS):
                self._counts[at + i] = 0
        self._slot = max(self._slot, slot)


class Item:
    """One thing that is counted; ``updated_ms`` is when it was last."""

    __slots__ = ("_rings", "_since_ms", "updated_ms")

    def __init__(self, now_ms: int) -> None:
        self._since_ms = now_ms
        self.updated_ms = now_ms
        self._rings = tuple(_Ring(*span) for span in _SPANS)

    def add(self, counts: Counts, now_ms: int) -> None:
        """Count."""
        self.updated_ms = now_ms
        for ring in self._rings:
            ring.add(counts, now_ms)

    def snapshots(self, now_ms: int, *, of_size: bool) -> tuple[Snapshot, Snapshot, Snapshot]:
        """The sums of the last minute, hour and day: of the sizes, or of the numbers.

        Of what is counted for a shorter while, a second's share is that of this while, but of one
        slot at least, as in Java.
        """
        minute, hour, day = (
            self._snapshot(ring, length, now_ms, of_size=of_size)
            for ring, (length, _) in zip(self._rings, _SPANS, strict=True)
        )
        return minute, hour, day

    def _snapshot(self, ring: _Ring, length: int, now_ms: int, *, of_size: bool) -> Snapshot:
        total = ring.total(now_ms)
        known_ms = max(length, now_ms - self._since_ms)
        span_ms = max(1, min(ring.span_ms(now_ms), known_ms))
        number = total.size if of_size else total.number
        average = number / total.times if total.times else 0.0
        return Snapshot(number, number * 1000 / span_ms, average, total.times)


class Items:
    """The items of one kind, by key: ``most`` at the most, others are not counted."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._items: dict[str, Item] = {}

    def __len__(self) -> int:
        return len(self._items)

    def get(self, key: str) -> Item | None:
        """The item of a key; None where nothing was counted."""
        return self._items.get(key)

    def add(self, key: str, counts: Counts, now_ms: int) -> bool:
        """Count; whether there was room to."""
        item = self._items.get(key)
        if item is None:
            if len(self._items) >= self._most:
                return False
            item = self._items[key] = Item(now_ms)
        item.add(counts, now_ms)
        return True

    def forget_idle(self, before_ms: int) -> None:
        """Forget what was last counted before ``before_ms``."""
        idle = [key for key, item in self._items.items() if item.updated_ms < before_ms]
        for key in idle:
            del self._items[key]

    def forget(self, part: str) -> None:
        """Forget the keys of which ``part`` is one of those that ``@`` separates."""
        for key in [key for key in self._items if part in key.split("@")]:
            del self._items[key]
