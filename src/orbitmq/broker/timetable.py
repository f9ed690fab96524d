"""The broker's periodic jobs: which are due, and when the next will be.

A state machine around which node.py puts a timer; tests call :meth:`Timetable.run` themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

log = logging.getLogger("orbitmq.broker")


Interval: TypeAlias = int | Callable[[], int]
"""How long between two runs of a job, ms; a function, where that is a setting that may change."""


class _Job:
    __slots__ = ("action", "due_ms", "interval", "started_ms")

    def __init__(self, action: Callable[[], object], interval: Interval, now_ms: int) -> None:
        self.action = action
        self.interval = interval
        self.begin(now_ms)

    @property
    def interval_ms(self) -> int:
        return self.interval() if callable(self.interval) else self.interval

    def begin(self, now_ms: int) -> None:
        """Let the interval run from ``now_ms``."""
        self.started_ms = now_ms
        self.renew()

    def renew(self) -> None:
        self.due_ms = self.started_ms + self.interval_ms


class Timetable:
    """Jobs that are each repeated at their own interval.

    Times are in ms and begin with ``now_ms``, of a clock that is never set back.
    """

    def __init__(self, now_ms: int) -> None:
        self._start_ms = now_ms
        self._jobs: list[_Job] = []

    def every(self, interval: Interval, action: Callable[[], object]) -> None:
        """Repeat ``action`` at every interval, beginning one after the start."""
        self._jobs.append(_Job(action, interval, self._start_ms))

    def renew(self) -> None:
        """Have intervals that are another now count from when each job ran last."""
        for job in self._jobs:
            job.renew()

    def run(self, now_ms: int) -> None:
        """Run what is due, each job once.

        A job that fails is logged and comes again in its turn; the others are not affected.
        """
        for job in self._jobs:
            if job.due_ms <= now_ms:
                job.begin(now_ms)
                try:
                    job.action()
                except Exception:
                    log.exception("a periodic job failed; it runs again in %d ms", job.interval_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next job is due; 0 when one is."""
        return max(0, min(job.due_ms for job in self._jobs) - now_ms)
