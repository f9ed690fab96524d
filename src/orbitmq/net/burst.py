"""What happens often at once, told once."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import Final

_QUIET_SECONDS: Final = 60.0


class Burst:
    """Warns in ``log`` at most once a minute, and says how often it kept silent."""

    def __init__(self, log: logging.Logger, now: Callable[[], float] = monotonic) -> None:
        self._log = log
        self._now = now
        self._quiet_until = float("-inf")
        self._unsaid = 0

    def tell(self, message: str, *arguments: object) -> None:
        """Warn, unless it was done in the minute before."""
        now = self._now()
        if now < self._quiet_until:
            self._unsaid += 1
            return
        self._log.warning(
            f"{message} (%d times in the minute before this was not logged)",
            *arguments,
            self._unsaid,
        )
        self._quiet_until, self._unsaid = now + _QUIET_SECONDS, 0
