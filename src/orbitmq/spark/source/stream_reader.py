"""``spark.readStream``: what Spark calls.

The reader lives twice. In one process beside the driver, for as long as the query runs, it plans:
that half is StreamPlanner. Pickled into the tasks it only reads what a partition names.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from orbitmq.spark.prompt import Prompt
from orbitmq.spark.source.boundaries import initial_offset
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.planner import StreamPlanner
from orbitmq.spark.source.planning import pack
from orbitmq.spark.source.reader import read_partition
from orbitmq.spark.source.schema import check_read_schema


class RocketMQStreamReader(Prompt, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What Spark calls; see StreamPlanner."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        check_read_schema(schema)
        self._schema = schema
        self._options = options

    @cached_property
    def _planner(self) -> StreamPlanner:
        return StreamPlanner(self._options)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """Not a position yet: Spark does not keep it and asks twice, so it is resolved later."""
        return initial_offset(self._options.starting_offsets)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """See StreamPlanner.latest_offset."""
        limited = not isinstance(limit, ReadAllAvailable)  # as Trigger.Once wants it
        return self._planner.latest_offset(start, limited=limited)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """A limit where the options set any: the planner knows them all, Spark but one."""
        limits = self._options.admission
        if limits.max_offsets is not None:
            return ReadMaxRows(limits.max_offsets)
        if limits.max_bytes is not None:
            return ReadMaxBytes(limits.max_bytes)
        if limits.min_offsets is not None or limits.min_bytes is not None:
            return ReadMinRows(limits.min_offsets or 1)
        return ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues as last seen."""
        return self._planner.latest_known()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """See StreamPlanner.prepare_for_available_now."""
        self._planner.prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The batch's tasks, none for an empty one."""
        return [*pack(self._planner.ranges(start, end), self._options.tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one task."""
        return read_partition(partition, self._schema, self._options)

    def stop(self) -> None:
        """Leave the brokers."""
        self._planner.close()
