"""Work that waits for a time: run when it comes, and again after a failure, which is told once."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from orbitmq.errors import OrbitMQError

log = logging.getLogger("orbitmq.broker")

_RETRY_MS: Final = 1_000
_UNDELIVERED: Final = "%s are not delivered, next try in a second: %s"
_FAILED: Final = "%s are not delivered, next try in a second"


class Waiting(Protocol):
    """What waits: ``due_ms`` is when the next run makes sense, wall-clock ms; None: never."""

    due_ms: int | None

    def run(self, now_ms: int) -> None:
        """Do what is due, and set ``due_ms`` anew."""


class DueWork:
    """``work`` under a name for the log: "delayed messages"."""

    def __init__(self, name: str, work: Waiting) -> None:
        self._name = name
        self._work = work
        self._complaint = ""

    @property
    def due_ms(self) -> int | None:
        """When it is due."""
        return self._work.due_ms

    def run_if_due(self, now_ms: int) -> None:
        """Run it, if its time has come."""
        due_ms = self._work.due_ms
        if due_ms is not None and due_ms <= now_ms:
            self.run(now_ms)

    def look(self, now_ms: int) -> None:
        """Run it if anything waits: ``due_ms`` may be told by a clock that was set since."""
        if self._work.due_ms is not None:
            self.run(now_ms)

    def run(self, now_ms: int) -> None:
        """Run it. What it raises is logged, once while it stays the same, and tried again."""
        try:
            self._work.run(now_ms)
        except Exception as error:
            self._work.due_ms = now_ms + _RETRY_MS
            if str(error) != self._complaint:
                self._complaint = str(error)
                if isinstance(error, (OrbitMQError, OSError)):
                    log.error(_UNDELIVERED, self._name, error)  # noqa: TRY400 - it says enough
                else:
                    log.exception(_FAILED, self._name)
        else:
            if self._complaint:
                self._complaint = ""
                log.warning("%s are delivered again", self._name)
