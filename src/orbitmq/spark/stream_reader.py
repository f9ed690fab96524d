"""``spark.readStream``: which offsets a micro-batch takes, and how its tasks read them.

The reader lives twice. In one process beside the driver, for as long as the query runs, it plans:
that half is StreamPlanner. Pickled into the tasks it only reads what a partition names.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import OrbitMQError
from orbitmq.spark.offsets import (
    Bounds,
    Offsets,
    Position,
    Queue,
    begin_at,
    initial_offset,
    limit_ends,
    resolve,
)
from orbitmq.spark.options import ReadOptions
from orbitmq.spark.planning import QueueRange, pack
from orbitmq.spark.reader import read_partition
from orbitmq.spark.schema import check_read_schema
from orbitmq.spark.topic import TopicClient
from orbitmq.spark.watch import ArrivalWatch

log = logging.getLogger("orbitmq.spark")

POLLING_GAP_SECONDS: Final = 0.05
"""Spark asks again after less than this only when it found nothing to do anywhere."""

_MIN_WAIT_MS: Final = 50


class StreamPlanner:
    """Plans the batches of one query. Not for more than one thread."""

    def __init__(self, options: ReadOptions, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._topic = TopicClient(options.name_servers, options.topic, options.access)
        self._watch = ArrivalWatch(
            options.topic, options.reading_group, options.expression, options.access
        )
        self._target: Mapping[Queue, int] | None = None  # of Trigger.AvailableNow
        self._latest: Offsets = {}
        self._committed: Offsets = {}
        self._returned_at: float | None = None

    def prepare_for_available_now(self) -> None:
        """Take what is there now as all there is to read."""
        bounds = self._fetch_bounds(all_brokers=True)
        self._target = {queue: bound.end for queue, bound in bounds.items()}

    def latest_offset(self, start: dict[str, Any], max_rows: int | None) -> dict[str, Any]:
        """Where the batch that begins at ``start`` ends; ``start`` itself when nothing is new.

        That Spark asks with ``start`` means everything before it is done for good, so this is
        where a group's offsets are committed: Spark's ``commit`` comes a batch late and never for
        the last one. An idle query waits here for messages, see :meth:`_wait_for_arrival`.
        """
        previous = Position.from_json(start)
        self._commit(previous.queues)
        end = self._next_position(previous, max_rows)
        if end == previous and self._may_wait():
            end = self._wait_for_arrival(previous, max_rows)
        self._returned_at = self._clock.monotonic()
        return start if end == previous else end.to_json()

    def ranges(self, start: dict[str, Any], end: dict[str, Any]) -> list[QueueRange]:
        """What the batch between two offsets reads."""
        position = Position.from_json(end)
        begins = Position.from_json(start).queues | position.since
        if unknown := position.queues.keys() - begins.keys():
            raise OrbitMQError(f"{start} and {end} are not a batch: no beginning of {min(unknown)}")
        if position.queues.keys() - self._topic.addresses.keys():
            self._topic.refresh()
        return [
            QueueRange(*queue, self._topic.address(queue), begins[queue], last)
            for queue, last in position.queues.items()
            if last > begins[queue]
        ]

    def latest_known(self) -> dict[str, Any] | None:
        """The ends of all queues as last seen, for Spark's progress report."""
        return Position(self._latest, {}).to_json() if self._latest else None

    def close(self) -> None:
        """Leave the brokers."""
        self._watch.close()

    def _next_position(self, previous: Position, max_rows: int | None) -> Position:
        """The end of the batch after ``previous``, or ``previous`` itself."""
        first = not previous.queues
        available_now = self._target is not None
        bounds = self._fetch_bounds(all_brokers=first or available_now)
        if self._target is not None:
            bounds = _capped(bounds, self._target)
        options = self._options
        if first:
            wanted = resolve("startingOffsets", options.starting_offsets, bounds)
        else:
            new = {queue: bound.first for queue, bound in bounds.items()}
            wanted = new | previous.queues
        begins, losses = begin_at(wanted, bounds, fail_on_data_loss=options.fail_on_data_loss)
        for loss in losses:
            log.warning("data loss: %s", loss)
        ends = {queue: max(begin, bounds[queue].end) for queue, begin in begins.items()}
        if max_rows is not None:
            ends = limit_ends(begins, ends, max_rows)
        moved = {
            queue for queue, end in ends.items() if first or end != previous.queues.get(queue, end)
        }
        moved |= {queue for queue, begin in begins.items() if ends[queue] > begin}
        if not moved:
            return previous
        since = {
            queue: begins[queue] for queue in moved if previous.queues.get(queue) != begins[queue]
        }
        return Position(previous.queues | {queue: ends[queue] for queue in moved}, since)

    def _fetch_bounds(self, *, all_brokers: bool) -> dict[Queue, Bounds]:
        self._topic.refresh()
        bounds = self._topic.bounds(all_brokers=all_brokers)
        self._latest.update({queue: bound.end for queue, bound in bounds.items()})
        return bounds

    def _may_wait(self) -> bool:
        """Whether Spark polls an idle query, so that nobody is kept waiting.

        It asks again within milliseconds only if no source of the query had anything. A first
        call, or one after a batch or at a trigger's interval, is answered at once.
        """
        return (
            self._options.idle_wait_ms > 0
            and self._target is None
            and self._returned_at is not None
            and self._clock.monotonic() - self._returned_at < POLLING_GAP_SECONDS
        )

    def _wait_for_arrival(self, previous: Position, max_rows: int | None) -> Position:
        """The next position as soon as there is one, or ``previous`` after ``idle_wait_ms``."""
        deadline = self._clock.monotonic() + self._options.idle_wait_ms / 1000
        while (left_ms := int((deadline - self._clock.monotonic()) * 1000)) > _MIN_WAIT_MS:
            if not self._watch.wait(self._latest, self._topic.addresses, left_ms):
                break
            end = self._next_position(previous, max_rows)
            if end != previous:
                return end
            # A broker said there was something where nothing is: do not ask in a tight loop.
            time.sleep(_MIN_WAIT_MS / 1000)
        return previous

    def _commit(self, done: Offsets) -> None:
        group = self._options.group
        news = {
            queue: offset for queue, offset in done.items() if self._committed.get(queue) != offset
        }
        if group is None or not news:
            return
        if any(queue not in self._topic.addresses for queue in news):
            self._topic.refresh()
        self._topic.commit(group, news)
        self._committed.update(news)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
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
        max_rows = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return self._planner.latest_offset(start, max_rows)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The option maxOffsetsPerTrigger."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the queues as last seen."""
        return self._planner.latest_known()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """See StreamPlanner.prepare_for_available_now."""
        self._planner.prepare_for_available_now()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The batch's tasks, none for an empty one."""
        return [*pack(self._planner.ranges(start, end), self._options.max_tasks)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The record batches of one task."""
        return read_partition(partition, self._schema, self._options)

    def stop(self) -> None:
        """Leave the brokers."""
        self._planner.close()


def _capped(bounds: Mapping[Queue, Bounds], target: Mapping[Queue, int]) -> dict[Queue, Bounds]:
    """The bounds as if nothing had come after ``target`` was taken."""
    return {
        queue: Bounds(min(bound.first, target[queue]), min(bound.end, target[queue]))
        for queue, bound in bounds.items()
        if queue in target
    }
