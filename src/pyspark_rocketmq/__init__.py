"""Makes Spark find ``format("rocketmq")``: it looks for ``DefaultSource`` in ``pyspark_*``."""

from __future__ import annotations

from orbitmq.spark.data_source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
