"""How long a task goes on trying while a broker does not answer: by time, not by attempts.

A broker that restarts or moves is away for half a minute or so. Spark runs a failed task again four
times at most, in ``local[2]`` not once, so a task waits itself, as Spark's Kafka source does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import BrokerError, NetworkError

log = logging.getLogger("orbitmq.spark")

_P = ParamSpec("_P")
_T = TypeVar("_T")

BROKER_WAIT_MS: Final = 120_000
"""The option brokerWaitMs, unless it is given."""
REFUSALS: Final = 8
"""How often a broker that answers may refuse what could succeed later: about 10 seconds."""

_LONGEST_SLEEP_SECONDS: Final = 3.0


class Patience:
    """What is left of ``wait_ms`` since one broker last did what it was asked to.

    ``doing`` is what the log says a task wants of it, such as ``reading flights``.
    """

    def __init__(self, doing: str, wait_ms: int, clock: Clock = SYSTEM_CLOCK) -> None:
        self._doing = doing
        self._wait_ms = wait_ms
        self._clock = clock
        self._failures = 0
        self._since = 0.0

    def progressed(self) -> None:
        """The broker did what it was asked to: all of the time is left again."""
        self._failures = 0

    def wait_after(self, error: NetworkError | BrokerError) -> None:
        """Sleep a little after ``error``, longer with each in a row; raises it when time is up.

        An error that no waiting heals is raised at once, and one by which a broker that is there
        refuses the request after REFUSALS.
        """
        now = self._clock.monotonic()
        if not self._failures:
            self._since = now
        self._failures += 1
        left = self._wait_ms / 1000 - (now - self._since)
        hopeless = not error.retriable or (
            self._failures >= REFUSALS and not isinstance(error, NetworkError)
        )
        if hopeless or left <= 0:
            if not hopeless:
                error.add_note(f"{self._doing}: gave up after {self._wait_ms} ms (brokerWaitMs)")
            raise error
        where = f" by {error.address}" if error.address else ""
        log.warning("%s%s goes on in %.0f s at most, after: %s", self._doing, where, left, error)
        time.sleep(min(0.05 * 2**self._failures, _LONGEST_SLEEP_SECONDS, left))


class Patient:
    """Calls functions for ``doing``, each again as long as a :class:`Patience` lasts."""

    def __init__(self, doing: str, wait_ms: int) -> None:
        self._doing = doing
        self._wait_ms = wait_ms

    def __call__(
        self, function: Callable[_P, _T], /, *arguments: _P.args, **named: _P.kwargs
    ) -> _T:
        """What it returns; its last error, when the patience ends."""
        patience = Patience(self._doing, self._wait_ms)
        while True:
            try:
                return function(*arguments, **named)
            except (NetworkError, BrokerError) as error:
                patience.wait_after(error)
