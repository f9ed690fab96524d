"""Which brokers a producer leaves alone for a while, because they were slow or failed.

A state machine of what was seen of each broker; the time is an argument, in ms of a clock that is
never set back. Follows MQFaultStrategy and LatencyFaultToleranceImpl of 5.x.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

log = logging.getLogger("orbitmq.producer")

LATENCY_MAX_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
NOT_AVAILABLE_DURATION_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)

_FAILURE_COUNTS_AS_MS: Final = 10_000


@dataclass(slots=True)
class _Seen:
    """What was seen of a broker."""

    available_at: float = 0.0
    check_at: float = 0.0
    reachable: bool = True


class FaultStrategy:
    """Keeps brokers out for as long as their latency deserves.

    A send that took at least ``latency_max_ms[i]`` keeps its broker out for
    ``not_available_duration_ms[i]``, i as large as can be; a failure counts as 10 s. With a
    ``detector`` a broker that is not reached stays out until it is detected again.
    """

    def __init__(
        self,
        latency_max_ms: Sequence[int] = LATENCY_MAX_MS,
        not_available_duration_ms: Sequence[int] = NOT_AVAILABLE_DURATION_MS,
        *,
        detector: bool = False,
    ) -> None:
        self._steps = list(zip(latency_max_ms, not_available_duration_ms, strict=True))[::-1]
        self._detector = detector
        self._seen: dict[str, _Seen] = {}

    # What is seen

    def answered(self, broker: str, latency_ms: float, now: float) -> None:
        """It took a message."""
        self._update(broker, latency_ms, now, reachable=True)

    def refused(self, broker: str, now: float) -> None:
        """It answered with an error."""
        self._update(broker, _FAILURE_COUNTS_AS_MS, now, reachable=True)

    def unreachable(self, broker: str, now: float) -> None:
        """It did not answer, or was not reached.

        Where nobody detects it, it is tried again after its time.
        """
        self._update(broker, _FAILURE_COUNTS_AS_MS, now, reachable=not self._detector)

    def detected(self, broker: str) -> None:
        """It answers again."""
        seen = self._seen.get(broker)
        if seen is not None and not seen.reachable:
            seen.reachable = True
            log.info("broker %s is reachable again", broker)

    def forget(self, broker: str) -> None:
        """No route names it any more."""
        self._seen.pop(broker, None)

    # What follows

    def is_available(self, broker: str, now: float) -> bool:
        """Whether its time is over."""
        seen = self._seen.get(broker)
        return seen is None or now >= seen.available_at

    def is_reachable(self, broker: str) -> bool:
        """Whether it was reached the last time, as far as is known."""
        seen = self._seen.get(broker)
        return seen is None or seen.reachable

    def choose(self, brokers: AbstractSet[str], last: str | None, now: float) -> AbstractSet[str]:
        """The brokers to send to, after ``last`` has failed if it is given.

        Those available; else those reachable; else all (MQFaultStrategy.selectOneMessageQueue).
        """
        others = brokers if last is None else brokers - {last}
        available = {broker for broker in others if self.is_available(broker, now)}
        return (
            available or {broker for broker in others if self.is_reachable(broker)} or set(brokers)
        )

    def due(self, now: float, interval_ms: float) -> list[str]:
        """The brokers to look at now; each is due again after ``interval_ms``."""
        due = [broker for broker, seen in self._seen.items() if now >= seen.check_at]
        for broker in due:
            self._seen[broker].check_at = now + interval_ms
        return due

    def _update(self, broker: str, latency_ms: float, now: float, *, reachable: bool) -> None:
        duration = self._duration(latency_ms)
        seen = self._seen.get(broker)
        if seen is None:
            if reachable and duration <= 0:
                return  # as if it had never been seen
            seen = self._seen[broker] = _Seen()
        if duration > 0:
            seen.available_at = max(seen.available_at, now + duration)
            log.info("broker %s is left alone for %d ms", broker, duration)
        if seen.reachable and not reachable:
            log.info("broker %s is left alone until it is detected again", broker)
        seen.reachable = reachable

    def _duration(self, latency_ms: float) -> int:
        return next((out_ms for least_ms, out_ms in self._steps if latency_ms >= least_ms), 0)
