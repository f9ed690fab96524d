"""The timers of one slot: found backwards along their chain, given out in the order they came.

In slices, since a million may be due at the same second: what is kept of each is its place in the
timer log.
"""

from __future__ import annotations

import logging
from array import array

from orbitmq.store.timer_log import DELETE, ROLL, TimerLog, TimerUnit
from orbitmq.store.timer_wheel import NO_PLACE

logger = logging.getLogger("orbitmq.store")


class Chain:
    """The chain that ends at ``last`` in ``log``.

    First :meth:`follow` until it says that all is found, then :meth:`recalls`, then
    :meth:`timers`, each until there are no more. A recall that goes round once more counts as a
    timer.
    """

    def __init__(self, log: TimerLog, last: int) -> None:
        self._log = log
        self._next = last
        self._recalls = array("q")
        self._timers = array("q")

    def follow(self, count: int) -> bool:
        """Find ``count`` units more; whether that were all.

        A chain that leads to a place without a unit, or not backwards, ends there, which is logged.
        """
        for _ in range(count):
            place = self._next
            if place == NO_PLACE:
                return True
            unit = self._log.unit_at(place)
            if unit is None or unit.previous >= place:
                logger.error("the timer log has no sound entry at %d: what is before it in the "
                             "same slot is not delivered", place)  # fmt: skip
                self._next = NO_PLACE
                return True
            is_recall = unit.magic & (DELETE | ROLL) == DELETE
            (self._recalls if is_recall else self._timers).append(place)
            self._next = unit.previous
        return self._next == NO_PLACE

    def recalls(self, count: int) -> list[TimerUnit]:
        """The next ``count`` units that recall others; they are forgotten here."""
        return self._taken(self._recalls, count)

    def timers(self, count: int) -> list[TimerUnit | None]:
        """The next ``count`` units of messages, None for one no longer there.

        Those that :meth:`done` did not count come again.
        """
        return [self._log.unit_at(place) for place in self._timers[: -count - 1 : -1]]

    def done(self, count: int) -> None:
        """The next ``count`` messages are dealt with."""
        del self._timers[len(self._timers) - count :]

    def _taken(self, places: array[int], count: int) -> list[TimerUnit]:
        units = (self._log.unit_at(place) for place in places[: -count - 1 : -1])
        found = [unit for unit in units if unit is not None]
        del places[-count:]
        return found
