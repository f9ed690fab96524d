"""Which task reads what: the queues of a batch are packed into few tasks.

A further task costs a micro-batch about 4 ms, so one task a queue, as with Kafka, is wrong here. A
queue that is not split keeps the order of its messages as long as Spark keeps a partition's order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec
from pyspark.sql.datasource import InputPartition

ROWS_PER_TASK: Final = 10_000
"""Rows a task reads in twice the time that one more task costs: its work is worth sharing."""


class QueueRange(NamedTuple):
    """What to read of one queue: from ``begin`` up to but not with ``end``."""

    topic: str
    broker_name: str
    queue_id: int
    address: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets that is; a filter lets fewer messages through."""
        return self.end - self.begin


class QueuePartition(InputPartition):
    """One task: its ``value`` is a tuple of QueueRange."""


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How many tasks there are, ``least`` to ``most``, of ``most_rows`` offsets each.

    Where they cannot all be kept, ``most_rows`` comes before ``least``, and that before ``most``.
    """

    most: int = 1
    least: int = 1
    most_rows: int | None = None
    split_queues: bool = False
    """Whether tasks may share a queue; without, ``most_rows`` is not kept."""


def pack(ranges: Iterable[QueueRange], limits: TaskLimits) -> list[QueuePartition]:
    """Partitions for ``ranges``: as many as the rows are worth, within ``limits``.

    Empty ranges are left out; there are never more tasks than rows.
    """
    wanted = [item for item in ranges if item.rows > 0]
    rows = sum(item.rows for item in wanted)
    if not rows:
        return []
    count = max(min(limits.most, -(-rows // ROWS_PER_TASK)), limits.least)
    if limits.split_queues:
        count = max(count, -(-rows // (limits.most_rows or rows)))
        tasks = _fill(sorted(wanted), rows, min(count, rows))
    else:
        tasks = _spread(wanted, min(count, len(wanted)))
    return [QueuePartition(tuple(sorted(task))) for task in tasks]


def _spread(wanted: list[QueueRange], count: int) -> list[list[QueueRange]]:
    """Whole queues: the largest goes first, each to the task that has the least."""
    tasks: list[list[QueueRange]] = [[] for _ in range(count)]
    load = [(0, index) for index in range(count)]
    for item in sorted(wanted, key=lambda item: -item.rows):
        size, index = load[0]
        tasks[index].append(item)
        heapq.heapreplace(load, (size + item.rows, index))
    return tasks


def _fill(wanted: list[QueueRange], rows: int, count: int) -> list[list[QueueRange]]:
    """As many rows for each task: queues are cut where a task is full."""
    tasks: list[list[QueueRange]] = []
    left = 0
    for item in wanted:
        begin = item.begin
        while begin < item.end:
            if not left:
                left = rows * (len(tasks) + 1) // count - rows * len(tasks) // count
                tasks.append([])
            end = min(item.end, begin + left)
            tasks[-1].append(item._replace(begin=begin, end=end))
            left -= end - begin
            begin = end
    return tasks
