"""Where the time comes from, so that tests can move it instead of waiting for it."""

from __future__ import annotations

import time
from typing import Final, Protocol


class Clock(Protocol):
    """The two readings the client, the broker and the store take the time from."""

    def now_ms(self) -> int:
        """Wall-clock time: ms since the epoch. It may jump when the machine's clock is set."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back. For intervals and time-outs."""
        ...


class _SystemClock:
    """The machine's own clock."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def elapsed_ms(clock: Clock) -> int:
    """What ``clock.monotonic`` says, in whole milliseconds: to tell how long something takes."""
    return int(clock.monotonic() * 1000)


SYSTEM_CLOCK: Final[Clock] = _SystemClock()
"""The clock everything uses unless another one is given."""
