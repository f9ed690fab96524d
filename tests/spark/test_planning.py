"""Queues are packed evenly into no more tasks than they are worth, whole or split."""

from __future__ import annotations

import pickle

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.source.planning import ROWS_PER_TASK, QueueRange, TaskLimits, pack

SIZES = st.lists(st.integers(0, 200_000), max_size=20)


def ranges_of(sizes: list[int]) -> list[QueueRange]:
    return [
        QueueRange("flights", "broker-a", queue_id, "127.0.0.1:10911", 100, 100 + size)
        for queue_id, size in enumerate(sizes)
    ]


def tasks_of(sizes: list[int], **limits: int | bool | None) -> list[tuple[QueueRange, ...]]:
    return [task.value for task in pack(ranges_of(sizes), TaskLimits(**limits))]  # type: ignore[arg-type]


def loads_of(tasks: list[tuple[QueueRange, ...]]) -> list[int]:
    return sorted(sum(item.rows for item in task) for task in tasks)


@given(SIZES, st.integers(1, 8))
def test_every_range_goes_whole_into_one_of_few_tasks(sizes: list[int], most: int) -> None:
    tasks = tasks_of(sizes, most=most)
    assert sorted(item for task in tasks for item in task) == [
        item for item in ranges_of(sizes) if item.rows
    ]
    assert len(tasks) <= most
    assert all(tasks)
    loads = loads_of(tasks)
    if len(loads) > 1:
        assert loads[-1] - loads[0] <= max(sizes)


@given(SIZES, st.integers(1, 8), st.integers(1, 30), st.none() | st.integers(1_000, 300_000))
def test_queues_that_may_be_split_fill_tasks_evenly(
    sizes: list[int], most: int, least: int, most_rows: int | None
) -> None:
    tasks = tasks_of(sizes, most=most, least=least, most_rows=most_rows, split_queues=True)
    assert all(tasks)
    loads = loads_of(tasks)
    rows = sum(sizes)
    assert sum(loads) == rows
    if rows:
        assert loads[-1] - loads[0] <= 1
        assert loads[-1] <= (most_rows or rows)
        assert len(tasks) >= min(least, rows)
        needed = -(-rows // (most_rows or rows))
        assert len(tasks) <= max(most, least, needed)
    # Joined again the pieces are the ranges, in order and without gap or overlap.
    whole: dict[int, QueueRange] = {}
    for piece in sorted(item for task in tasks for item in task):
        before = whole.setdefault(piece.queue_id, piece)
        if before is not piece:
            assert before.end == piece.begin
            whole[piece.queue_id] = before._replace(end=piece.end)
    assert [*whole.values()] == [item for item in ranges_of(sizes) if item.rows]


def test_a_small_batch_is_one_task_and_a_large_one_as_many_as_allowed() -> None:
    assert tasks_of([], most=4) == []
    assert len(tasks_of([10] * 8, most=4)) == 1
    assert len(tasks_of([ROWS_PER_TASK // 4] * 5, most=4)) == 2
    assert len(tasks_of([ROWS_PER_TASK] * 8, most=4)) == 4
    assert len(tasks_of([ROWS_PER_TASK * 100], most=4)) == 1
    assert len(tasks_of([ROWS_PER_TASK * 100], most=4, split_queues=True)) == 4


def test_the_least_number_of_tasks_is_kept_as_far_as_there_are_rows() -> None:
    assert len(tasks_of([10] * 8, most=1, least=3)) == 3
    assert len(tasks_of([10], most=1, least=3)) == 1
    assert len(tasks_of([10], most=1, least=3, split_queues=True)) == 3
    assert len(tasks_of([2], most=1, least=3, split_queues=True)) == 2


def test_partitions_travel() -> None:
    (task,) = pack(ranges_of([3]), TaskLimits())
    assert pickle.loads(pickle.dumps(task)).value == tuple(ranges_of([3]))
