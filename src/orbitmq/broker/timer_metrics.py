"""How many timers of each topic wait: ``config/timermetrics``, as TimerMetrics writes it."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.wire.bodies import Body, DataVersion


class Metric(Body, frozen=True):
    """The timers of one topic; ``time_stamp`` is when their number changed last, ms."""

    count: int = 0
    time_stamp: int = 0


class TimerMetricsSerializeWrapper(Body, frozen=True):
    """The form of the file, and of the answer to GET_TIMER_METRICS."""

    timing_count: dict[str, Metric] = {}
    data_version: DataVersion | None = None


class TimerMetrics:
    """The numbers, by topic. ``changed`` says that they differ from what was last saved."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.changed = False
        self._now_ms = now_ms
        self._counts: dict[str, Metric] = {}
        self._version = DataVersion(timestamp=now_ms())

    def add(self, topic: str, number: int) -> None:
        """``number`` more wait for ``topic``, or fewer; "" is not counted. Never less than 0."""
        if topic:
            known = self._counts.get(topic)
            count = (known.count if known is not None else 0) + number
            self._counts[topic] = Metric(max(count, 0), self._now_ms())
            self.changed = True

    def count(self, topic: str) -> int:
        """How many wait for ``topic``."""
        metric = self._counts.get(topic)
        return metric.count if metric is not None else 0

    @property
    def total(self) -> int:
        """How many timers wait, of all topics."""
        return sum(metric.count for metric in list(self._counts.values()))

    def load(self, saved: TimerMetricsSerializeWrapper) -> None:
        """Take in what was saved."""
        self._counts = dict(saved.timing_count)
        self._version = saved.data_version or self._version

    def snapshot(self) -> TimerMetricsSerializeWrapper:
        """The numbers as they are now, without the topics for which none wait."""
        self._counts = {topic: metric for topic, metric in self._counts.items() if metric.count}
        self._version = self._version.next(self._now_ms())
        return TimerMetricsSerializeWrapper(dict(self._counts), self._version)
