"""Brings timers to the disk now and then, off the broker's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from orbitmq.store.file_ops import store_error
from orbitmq.store.timer_store import TimerFlush, TimerStore

log = logging.getLogger("orbitmq.broker")


class TimerFlusher:
    """Flushes ``timers``; ``now_ms`` is the wall clock.

    What a flush brings to the disk is taken on the broker's thread; only the writing is the
    background thread's.
    """

    def __init__(self, timers: TimerStore, now_ms: Callable[[], int]) -> None:
        self._timers = timers
        self._now_ms = now_ms
        self._thread = ThreadPoolExecutor(1, "orbitmq-timer-flusher")
        self._under_way: tuple[TimerFlush, Future[None]] | None = None
        self._complaint = ""

    def flush_later(self) -> None:
        """Begin a flush, unless one is under way or there is nothing to do."""
        if self._under_way is not None and not self._end(*self._under_way):
            return
        taken = self._timers.take_flush()
        if taken is not None:
            writing = self._thread.submit(self._timers.flush, taken, self._now_ms())
            self._under_way = taken, writing

    def close(self) -> None:
        """Flush what is left, and end the thread. Raises StoreError when that fails."""
        self._thread.shutdown()
        if self._under_way is not None:
            self._end(*self._under_way)
        taken = self._timers.take_flush()
        try:
            if taken is not None:
                self._timers.flush(taken, self._now_ms())
        except OSError as error:
            raise store_error(error, self._timers.root, "flush the timers") from error
        finally:
            self._timers.close()

    def _end(self, taken: TimerFlush, writing: Future[None]) -> bool:
        """Note how a flush went, if it has ended; whether it has."""
        if not writing.done():
            return False
        self._under_way = None
        error = writing.exception()
        self._timers.flush_ended(taken, failed=error is not None)
        if error is None:
            self._complaint = ""
        elif str(error) != self._complaint:  # once, not every second
            self._complaint = str(error)
            log.error(
                "timers stay in memory, they cannot be flushed: %s",
                error,
                exc_info=None if isinstance(error, OSError) else error,
            )
        return True
