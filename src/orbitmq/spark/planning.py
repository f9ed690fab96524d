"""Which task reads what: the queues of a batch are packed into few tasks.

A further task costs a micro-batch about 25 ms, so one task a queue, as with Kafka, is wrong here. A
queue is never split: the order of its messages lasts as long as Spark keeps a partition's order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final, NamedTuple

from pyspark.sql.datasource import InputPartition

ROWS_PER_TASK: Final = 25_000
"""About the rows a task reads in the time that one more task costs."""


class QueueRange(NamedTuple):
    """What to read of one queue: from ``begin`` up to but not with ``end``."""

    broker_name: str
    queue_id: int
    address: str
    begin: int
    end: int

    @property
    def rows(self) -> int:
        """How many offsets that is; a tag filter lets fewer messages through."""
        return self.end - self.begin


class QueuePartition(InputPartition):
    """One task: its ``value`` is a tuple of QueueRange."""


def pack(ranges: Iterable[QueueRange], max_tasks: int) -> list[QueuePartition]:
    """Partitions for ``ranges``: as many as the rows are worth, ``max_tasks`` at most.

    The largest range goes first, each to the task that has the least. Empty ranges are left out.
    """
    wanted = sorted((item for item in ranges if item.rows > 0), key=lambda item: -item.rows)
    rows = sum(item.rows for item in wanted)
    count = min(len(wanted), max_tasks, -(-rows // ROWS_PER_TASK))
    tasks: list[list[QueueRange]] = [[] for _ in range(count)]
    load = [(0, index) for index in range(count)]
    for item in wanted:
        size, index = load[0]
        tasks[index].append(item)
        heapq.heapreplace(load, (size + item.rows, index))
    return [QueuePartition(tuple(sorted(task))) for task in tasks]
