"""Busy polling: to look for what comes next, instead of falling asleep until it comes.

A client with one request under way sends the next right after it got its answer. For the loop to
fall asleep until then and be woken takes as much of the processor as to look for it, and longer.

Nobody waits for it: with each look the processor goes to whoever else wants it, and where nothing
came in time it is tried less and less often.
"""

from __future__ import annotations

import asyncio
import os
from time import monotonic
from typing import Final

POLL_SECONDS: Final = 50e-6
"""How long it is looked for what comes next."""
_MOST_MISSES: Final = 7

_let_others_run = getattr(os, "sched_yield", lambda: None)


class BusyPoll:
    """Keeps ``loop`` from falling asleep for a moment after each turn, where that has paid."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_looking = False
        self._until = 0.0
        self._misses = 0
        self._turns_to_skip = 0

    def turn_ended(self) -> None:
        """Look for the next turn from now on."""
        if self._is_looking:
            self._misses = 0
        elif self._turns_to_skip:
            self._turns_to_skip -= 1
            return
        else:
            self._is_looking = True
            self._loop.call_soon(self._look)
        self._until = monotonic() + POLL_SECONDS

    def _look(self) -> None:
        """Have the loop look for something to do, which it does after this, without waiting."""
        if monotonic() < self._until:
            _let_others_run()
            self._loop.call_soon(self._look)
        else:
            self._is_looking = False
            self._turns_to_skip = (1 << self._misses) - 1
            self._misses = min(self._misses + 1, _MOST_MISSES)
