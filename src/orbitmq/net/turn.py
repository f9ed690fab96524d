"""The end of a turn of the loop: what is done once for all connections that were read in it.

A loop hands out everything that can be read at a time, one connection after the other. What all of
them brought is then settled together, which costs one write of the log instead of one for each,
and after that each connection writes what it has to say, once.

``call_soon`` tells when: both asyncio's loop and uvloop call what it is given after all that could
be read in this turn, and before they look for more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.net.busy_poll import BusyPoll

log = logging.getLogger("orbitmq.net")

MOST_BYTES: Final = 1 << 20
"""How much is received before a turn ends early, which bounds what waits to be settled."""


class Turn:
    """The current turn of the running loop: ``settle`` at its end, then what joined it.

    ``settle`` decides about all that was staged, and queues the answers; it says whether some of
    them have to wait for what comes from elsewhere. A connection that was alone in the turn before,
    and is the first in this one, is taken to be alone again, and settled at once: another call of
    the loop would only delay it.

    With ``busy_poll`` it is looked for what comes next, instead of waiting, where one connection is
    alone. Where there are several, the next turn is the cheaper the more of them come into it.
    """

    def __init__(self, settle: Callable[[], bool | None], *, busy_poll: bool = False) -> None:
        self._loop = asyncio.get_running_loop()
        self._busy_poll = BusyPoll(self._loop) if busy_poll else None
        self._settle = settle
        self._flushes: list[Callable[[], None]] = []
        self._alone: Callable[[], None] | None = None
        self._size = 0
        self._is_scheduled = False

    def join(self, flush: Callable[[], None], size: int = 0) -> None:
        """Have ``flush`` called when the turn ends, in which ``size`` more bytes were received."""
        is_alone = size > 0 and flush == self._alone and not self._flushes
        self._flushes.append(flush)
        self._size += size
        if is_alone or self._size >= MOST_BYTES:
            self.end()
        elif not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._end_as_scheduled)

    def end(self) -> None:
        """End it now, for whoever cannot wait; what comes after belongs to another. Never raises.

        Nothing of this turn is lost by a failure of one connection's part in it.
        """
        self._size = 0
        before, self._alone = self._alone, self._flushes[0] if len(self._flushes) == 1 else None
        is_alone_again = self._alone is not None and self._alone == before
        is_scheduled, self._is_scheduled = self._is_scheduled, True  # who joins now leaves below
        waits = None
        try:
            waits = self._settle()
        except Exception:
            log.exception("what a turn brought could not be settled")
        self._is_scheduled = is_scheduled
        flushes, self._flushes = self._flushes, []
        for flush in flushes:
            try:
                flush()
            except Exception:
                log.exception("a connection could not be written to")
        if self._busy_poll is not None and is_alone_again and not waits:
            self._busy_poll.turn_ended()

    def _end_as_scheduled(self) -> None:
        self._is_scheduled = False
        if self._flushes:
            self.end()
