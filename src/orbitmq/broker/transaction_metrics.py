"""How many half messages of each topic are open: ``config/transactionMetrics``, as Apache's 5.x.

Tools do not ask for it; its brokers go on counting from the file, and export the numbers.
"""

from __future__ import annotations

from orbitmq.broker.topic_counts import Metric, TopicCounts
from orbitmq.wire.bodies import Body, DataVersion


class TransactionMetricsSerializeWrapper(Body, frozen=True):
    """The form of the file."""

    transaction_count: dict[str, Metric] = {}
    data_version: DataVersion | None = None


class TransactionMetrics(TopicCounts):
    """The numbers (TransactionMetrics)."""

    def load(self, saved: TransactionMetricsSerializeWrapper) -> None:
        """Take in what was saved."""
        self._take(saved.transaction_count, saved.data_version)

    def snapshot(self) -> TransactionMetricsSerializeWrapper:
        """The numbers as they are now, without the topics of which none is open."""
        return TransactionMetricsSerializeWrapper(*self._now())
