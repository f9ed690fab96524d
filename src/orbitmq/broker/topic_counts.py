"""How many messages of each topic wait for something, as Apache's brokers keep it in files."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.wire.bodies import Body, DataVersion


class Metric(Body, frozen=True):
    """The messages of one topic; ``time_stamp`` is when their number changed last, ms."""

    count: int = 0
    time_stamp: int = 0


class TopicCounts:
    """The numbers, by topic. ``changed`` says that they differ from what was last saved."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.changed = False
        self._now_ms = now_ms
        self._counts: dict[str, Metric] = {}
        self._version = DataVersion(timestamp=now_ms())

    def add(self, topic: str, number: int) -> None:
        """``number`` more wait for ``topic``, or fewer; "" is not counted. Never less than 0."""
        if topic:
            self._counts[topic] = Metric(max(self.count(topic) + number, 0), self._now_ms())
            self.changed = True

    def count(self, topic: str) -> int:
        """How many wait for ``topic``."""
        metric = self._counts.get(topic)
        return metric.count if metric is not None else 0

    @property
    def total(self) -> int:
        """How many wait, of all topics."""
        return sum(metric.count for metric in list(self._counts.values()))

    def _take(self, counts: dict[str, Metric], version: DataVersion | None) -> None:
        """Take in what was saved."""
        self._counts = dict(counts)
        self._version = version or self._version

    def _now(self) -> tuple[dict[str, Metric], DataVersion]:
        """The numbers as they are now, without the topics for which none wait."""
        self._counts = {topic: metric for topic, metric in self._counts.items() if metric.count}
        self._version = self._version.next(self._now_ms())
        return dict(self._counts), self._version
