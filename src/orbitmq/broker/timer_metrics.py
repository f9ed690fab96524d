"""How many timers of each topic wait: ``config/timermetrics``, as TimerMetrics writes it."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.broker.stats_items import Counts, Item
from orbitmq.broker.topic_counts import Metric, TopicCounts
from orbitmq.wire.bodies import Body, DataVersion


class TimerMetricsSerializeWrapper(Body, frozen=True):
    """The form of the file, and of the answer to GET_TIMER_METRICS."""

    timing_count: dict[str, Metric] = {}
    data_version: DataVersion | None = None


class TimerMetrics(TopicCounts):
    """The numbers, and how many a second are taken in and delivered, which is not saved."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        super().__init__(now_ms)
        self._taken_in = Item(now_ms())
        self._delivered = Item(now_ms())

    def took_in(self, number: int) -> None:
        """So many were taken in, from the timer topic."""
        self._taken_in.add(Counts(1, number, 0), self._now_ms())

    def delivered(self, number: int) -> None:
        """So many were delivered."""
        self._delivered.add(Counts(1, number, 0), self._now_ms())

    def rates(self) -> tuple[float, float]:
        """How many a second were taken in, and how many delivered, in the last minute."""
        now_ms = self._now_ms()
        taken_in, delivered = (
            item.snapshots(now_ms, of_size=False)[0].tps
            for item in (self._taken_in, self._delivered)
        )
        return taken_in, delivered

    def load(self, saved: TimerMetricsSerializeWrapper) -> None:
        """Take in what was saved."""
        self._take(saved.timing_count, saved.data_version)

    def snapshot(self) -> TimerMetricsSerializeWrapper:
        """The numbers as they are now, without the topics for which none wait."""
        return TimerMetricsSerializeWrapper(*self._now())
