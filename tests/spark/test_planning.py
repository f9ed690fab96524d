"""Queues are packed whole, evenly, into no more tasks than they are worth."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.planning import ROWS_PER_TASK, QueueRange, pack


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    return [
        QueueRange("broker-a", queue_id, "127.0.0.1:10911", 100, 100 + size)
        for queue_id, size in enumerate(sizes)
    ]


@given(st.lists(st.integers(0, 200_000), max_size=20), st.integers(1, 8))
def test_every_range_goes_whole_into_one_of_few_tasks(sizes: list[int], max_tasks: int) -> None:
    ranges = ranges_of(sizes)
    tasks = [partition.value for partition in pack(ranges, max_tasks)]
    assert sorted(item for task in tasks for item in task) == [r for r in ranges if r.rows]
    assert len(tasks) <= max_tasks
    assert all(tasks)
    loads = sorted(sum(item.rows for item in task) for task in tasks)
    if len(loads) > 1:
        assert loads[-1] - loads[0] <= max(sizes)


def test_a_small_batch_is_one_task_and_a_large_one_as_many_as_allowed() -> None:
    assert pack([], 4) == []
    assert len(pack(ranges_of([10] * 8), 4)) == 1
    assert len(pack(ranges_of([ROWS_PER_TASK // 4] * 5), 4)) == 2
    assert len(pack(ranges_of([ROWS_PER_TASK] * 8), 4)) == 4
    assert len(pack(ranges_of([ROWS_PER_TASK * 100]), 4)) == 1


def test_partitions_travel() -> None:
    (task,) = pack(ranges_of([3]), 1)
    assert pickle.loads(pickle.dumps(task)).value == tuple(ranges_of([3]))
