"""A clock that stands still until a test moves it."""

from __future__ import annotations


class ManualClock:
    """A :class:`~orbitmq.clock.Clock` moved by hand; both readings advance together.

    ``now_ms`` is where the wall clock starts, ms since the epoch (default 2024-01-01 00:00 UTC).
    """

    def __init__(self, now_ms: int = 1_704_067_200_000) -> None:
        self._now_ms = now_ms
        self._elapsed_ms = 0

    def now_ms(self) -> int:
        """Wall-clock time, ms since the epoch."""
        return self._now_ms

    def monotonic(self) -> float:
        """Seconds moved forward since the clock was made."""
        return self._elapsed_ms / 1000

    def advance(self, ms: int) -> None:
        """Move both readings forward by ``ms`` (>= 0) milliseconds."""
        if ms < 0:
            raise ValueError(f"a clock advances by 0 ms or more, not by {ms}; see set_wall_clock")
        self._now_ms += ms
        self._elapsed_ms += ms

    def set_wall_clock(self, now_ms: int) -> None:
        """Set the wall clock alone, as an operator or NTP does, forward or back."""
        self._now_ms = now_ms
