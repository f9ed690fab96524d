"""``spark.read``, and the reading every task does: pulls in, record batches out."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import groupby
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.errors import ConfigError
from orbitmq.spark.prompt import Prompt
from orbitmq.spark.source.boundaries import Resolver
from orbitmq.spark.source.columns import ColumnDecoder
from orbitmq.spark.source.offsets import begin_at
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.planning import QueuePartition, QueueRange, pack
from orbitmq.spark.source.pulling import RangeReader
from orbitmq.spark.source.pushdown import Pushed, push
from orbitmq.spark.source.schema import check_read_schema
from orbitmq.spark.source.topic import TopicClient

log = logging.getLogger("orbitmq.spark")

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Records are decoded and handed to Spark in lots of about this size, some thousand rows: each lot
costs some 300 us beside what its rows cost, and small pulls would make small ones."""


class RocketMQReader(Prompt, DataSourceReader):
    """A batch read: all there is between two boundaries when the query is planned."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        check_read_schema(schema)
        self._schema = schema
        self._options = options
        self._pushed = Pushed()

    def partitions(self) -> list[InputPartition]:
        """The tasks; a single empty one when there is nothing to read, as Spark wants one."""
        tasks: list[InputPartition] = [*pack(self._ranges(), self._options.tasks)]
        return tasks or [QueuePartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one task."""
        return read_partition(partition, self._schema, self._options)

    def _ranges(self) -> list[QueueRange]:
        options = self._options
        topics = TopicClient(
            options.name_servers, options.choice, options.access, options.namespace
        )
        bounds = topics.all_bounds(options.broker_wait_ms)
        resolver = Resolver(
            topics, SYSTEM_CLOCK.now_ms(), options.group, options.late_start_is_error
        )
        wanted = resolver.resolve("startingOffsets", options.starting_offsets, bounds)
        begins, losses = begin_at(wanted, bounds, fail_on_data_loss=options.fail_on_data_loss)
        for loss in losses:
            log.warning("data loss: %s", loss)
        ends = resolver.resolve("endingOffsets", options.ending_offsets, bounds)
        for queue, end in ends.items():
            if end > bounds[queue].end:
                raise ConfigError(
                    "endingOffsets", f"{queue}: {end}", f"the queue ends at {bounds[queue].end}"
                )
        ranges = self._pushed.ranges(begins, ends, topics.offsets_at)
        return [
            QueueRange(*queue, topics.address(queue), begin, end)
            for queue, (begin, end) in ranges.items()
        ]


class FilteringReader(RocketMQReader):
    """A batch read that leaves out what Spark would leave out: the option pushFilters."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802 - Spark's name
        """Take what :mod:`orbitmq.spark.source.pushdown` can use; the filters Spark evaluates."""
        self._pushed, left = push(filters, self._options)
        self._options = self._pushed.applied(self._options)
        return left


def read_partition(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[Any]:
    """Read the ranges of a QueuePartition as Arrow record batches of ``schema``."""
    arrow_schema = to_arrow_schema(schema, timezone="UTC")
    for topic, ranges in groupby(sorted(partition.value), key=lambda item: item.topic):
        decoder = ColumnDecoder(arrow_schema, topic, options.tags)
        reader = RangeReader(
            options.wire_topic(topic),
            options.reading_group,
            options.expression,
            fail_on_data_loss=options.fail_on_data_loss,
            access=options.access,
            broker_wait_ms=options.broker_wait_ms,
            expression_type=options.expression_type,
            name_servers=options.name_servers,
        )
        for broker_name, data in _in_lots(reader.read(ranges)):
            yield decoder.decode(data, broker_name)


def _in_lots(
    pulled: Iterator[tuple[str, bytes | memoryview]],
) -> Iterator[tuple[str, bytes]]:
    """The same records, those of small pulls of one broker joined."""
    lot: list[bytes | memoryview] = []
    size, lot_name = 0, ""
    for broker_name, data in pulled:
        if lot and (broker_name != lot_name or size >= BATCH_BYTES):
            yield lot_name, b"".join(lot)
            lot, size = [], 0
        lot_name = broker_name
        lot.append(data)
        size += len(data)
    if lot:
        yield lot_name, b"".join(lot)
