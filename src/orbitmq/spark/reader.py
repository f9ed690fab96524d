"""``spark.read``, and the reading every task does: pulls in, record batches out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError
from orbitmq.spark.columns import ColumnDecoder
from orbitmq.spark.offsets import begin_at, resolve
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.planning import QueuePartition, QueueRange, pack
from orbitmq.spark.pulling import RangeReader
from orbitmq.spark.schema import check_read_schema
from orbitmq.spark.topic import TopicClient

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Records are decoded and handed to Spark in lots of about this size, some thousand rows: each lot
costs some 300 us beside what its rows cost, and small pulls would make small ones."""


class RocketMQReader(DataSourceReader):
    """A batch read: all there is between two boundaries when the query is planned."""

    def __init__(self, schema: StructType, options: ReadOptions) -> None:
        check_read_schema(schema)
        self._schema = schema
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """The tasks; a single empty one when there is nothing to read, as Spark wants one."""
        tasks: list[InputPartition] = [*pack(self._ranges(), self._options.max_tasks)]
        return tasks or [QueuePartition(())]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one task."""
        return read_partition(partition, self._schema, self._options)

    def _ranges(self) -> list[QueueRange]:
        options = self._options
        topic = TopicClient(options.name_servers, options.topic, options.access)
        topic.refresh()
        bounds = topic.bounds(all_brokers=True)
        wanted = resolve("startingOffsets", options.starting_offsets, bounds)
        begins, _ = begin_at(wanted, bounds, fail_on_data_loss=options.fail_on_data_loss)
        ends = resolve("endingOffsets", options.ending_offsets, bounds)
        for queue, end in ends.items():
            if end > bounds[queue].end:
                raise ConfigError(
                    "endingOffsets", f"{queue}: {end}", f"the queue ends at {bounds[queue].end}"
                )
        return [
            QueueRange(*queue, topic.address(queue), begin, ends[queue])
            for queue, begin in begins.items()
        ]


def read_partition(
    partition: InputPartition, schema: StructType, options: ReadOptions
) -> Iterator[Any]:
    """Read the ranges of a QueuePartition as Arrow record batches of ``schema``."""
    decoder = ColumnDecoder(to_arrow_schema(schema, timezone="UTC"), options.topic, options.tags)
    ranges = RangeReader(
        options.topic,
        options.reading_group,
        options.expression,
        fail_on_data_loss=options.fail_on_data_loss,
        access=options.access,
        broker_wait_ms=options.broker_wait_ms,
    )
    for broker_name, data in _in_lots(ranges.read(partition.value)):
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
