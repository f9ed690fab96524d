"""How long the broker's loop may filter by SQL92 before others have their turn.

An expression may be long, and a record's properties too; a pull looks at hundreds of records, and
an arriving message at all who wait. What one turn of the loop does of this is bounded by time: a
pull ends where the time is up, with what it has and the offset to go on at, and those who wait are
answered by a pull of theirs, in a later turn.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.store.pull import ScanStopped

SLICE_SECONDS: Final = 0.02
"""How long a turn may filter; at least one record a pull is looked at."""
_OVERDRAWN: Final = 5


class FilterBudget:
    """The time of one turn, counted from the first record it looks at, by ``monotonic`` seconds."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._end: float | None = None

    def renew(self) -> None:
        """Begin a new turn."""
        self._end = None

    @property
    def is_spent(self) -> bool:
        """Whether the time of this turn is up."""
        return self._end is not None and self._monotonic() > self._end

    @property
    def is_overdrawn(self) -> bool:
        """Whether the pulls of this turn, by their one record each, took several times as much."""
        return self._end is not None and self._monotonic() > self._end + _OVERDRAWN * SLICE_SECONDS

    def for_scan(self, match: Callable[[memoryview], bool]) -> Callable[[memoryview], bool]:
        """``match`` for one pull: it raises ScanStopped when the time is up."""
        looked = False

        def limited(record: memoryview) -> bool:
            nonlocal looked
            if self._is_up() and looked:
                raise ScanStopped
            looked = True
            return match(record)

        return limited

    def for_arrivals(self, match: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
        """``match`` for a pull that waits: true when the time is up, so that it is carried out."""

        def limited(properties: bytes) -> bool:
            return self._is_up() or match(properties)

        return limited

    def _is_up(self) -> bool:
        now = self._monotonic()
        if self._end is None:
            self._end = now + SLICE_SECONDS
        return now > self._end
