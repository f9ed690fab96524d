"""The brokers that no connection can be made to, and the messages that wait for them.

A broker that restarts refuses connections for a while. What is meant for it waits in one line and
is tried again every 100 ms, all of it in the order it came. Lives on the private loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from collections.abc import Set as AbstractSet

from orbitmq.errors import NetworkError

log = logging.getLogger("orbitmq.producer")

_PAUSE_SECONDS = 0.1


class UnreachableBrokers:
    """Which brokers of one producer were not reached, told in the log once for each time."""

    def __init__(self) -> None:
        self.refused: AbstractSet[str] = frozenset()
        """Those just tried: nothing is sent to them before the pause is over."""
        self._away: set[str] = set()
        self._waiting: list[Callable[[], None]] = []
        self._pause: asyncio.TimerHandle | None = None

    def add(self, broker: str, error: NetworkError) -> None:
        """``broker`` was not reached."""
        self.refused |= {broker}
        if self._pause is None:
            self._pause = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._try_again)
        if broker not in self._away:
            self._away.add(broker)
            log.warning(
                "broker %s cannot be reached, what is sent to it waits or goes to others: %s",
                broker,
                error,
            )

    def reached(self, broker: str) -> None:
        """``broker`` was reached."""
        if broker in self._away:
            self._away.discard(broker)
            log.info("broker %s is reached again", broker)

    def wait(self, attempt: Callable[[], None]) -> None:
        """Call ``attempt`` when the pause is over; there is one while any broker is refused."""
        self._waiting.append(attempt)

    def _try_again(self) -> None:
        self._pause = None
        self.refused = frozenset()
        waiting, self._waiting = self._waiting, []
        for attempt in waiting:
            attempt()
