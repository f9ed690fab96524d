"""The broker's periodic jobs: which are due, and when the next will be.

A state machine around which node.py puts a timer; tests call :meth:`Timetable.run` themselves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("orbitmq.broker")


class _Job:
    __slots__ = ("action", "due_ms", "interval_ms")

    def __init__(self, action: Callable[[], object], interval_ms: int, due_ms: int) -> None:
        self.action = action
        self.interval_ms = interval_ms
        self.due_ms = due_ms


class Timetable:
    """Jobs that are each repeated at their own interval.

    Times are in ms and begin with ``now_ms``, of a clock that is never set back.
    """

    def __init__(self, now_ms: int) -> None:
        self._start_ms = now_ms
        self._jobs: list[_Job] = []

    def every(self, interval_ms: int, action: Callable[[], object]) -> None:
        """Repeat ``action`` every ``interval_ms``, beginning one interval after the start."""
        self._jobs.append(_Job(action, interval_ms, self._start_ms + interval_ms))

    def run(self, now_ms: int) -> None:
        """Run what is due, each job once.

        A job that fails is logged and comes again in its turn; the others are not affected.
        """
        for job in self._jobs:
            if job.due_ms <= now_ms:
                job.due_ms = now_ms + job.interval_ms
                try:
                    job.action()
                except Exception:
                    log.exception("a periodic job failed; it runs again in %d ms", job.interval_ms)

    def wait_ms(self, now_ms: int) -> int:
        """How long until the next job is due; 0 when one is."""
        return max(0, min(job.due_ms for job in self._jobs) - now_ms)
