"""Micro-batches as Spark has the sink write them, in processes of their own, without Spark.

Spark plans a writer, hands a copy to each task, and has the driver commit what they return. The
same objects do the same here, so the time is the sink's alone.
"""

from __future__ import annotations

import multiprocessing
import pickle
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from secrets import token_hex
from typing import Any, Final, NamedTuple

ROWS_A_BATCH: Final = 10_000
"""spark.sql.execution.arrow.maxRecordsPerBatch, as Spark has it."""
QUEUES: Final = 4


class Shape(NamedTuple):
    """A micro-batch: how many rows, of how many bytes."""

    rows: int
    size: int


@dataclass
class Cost:
    """What a micro-batch took: seconds, and of processor time in the driver and the tasks."""

    wall: float
    cpu: float


class _Context:
    """What a task asks Spark's TaskContext."""

    def __init__(self) -> None:
        self.partition = 0
        self.query = ""
        self.batch = 0

    def get(self) -> _Context:
        return self

    def partitionId(self) -> int:  # noqa: N802 - Spark's name
        return self.partition

    def getLocalProperty(self, name: str) -> str:  # noqa: N802 - Spark's name
        return str(self.batch) if name.endswith("batchId") else self.query


class Query:
    """A streaming query with two tasks whose rows go to ``topic`` with ``guarantee``."""

    def __init__(self, name_server: str, topic: str, guarantee: str, tasks: Tasks) -> None:
        from pyspark.sql.types import BinaryType, StructType

        self._schema = StructType().add("body", BinaryType())
        self._options = {"nameServer": name_server, "topic": topic, "deliveryGuarantee": guarantee}
        self._tasks = tasks
        self._name = f"{guarantee}-{token_hex(8)}"
        self._batch = 0

    def run(self, shape: Shape) -> Cost:
        """One more micro-batch."""
        from orbitmq.spark.write_options import write_options
        from orbitmq.spark.writer import RocketMQStreamWriter

        began, used = time.perf_counter(), time.process_time()
        writer = RocketMQStreamWriter(self._schema, write_options(self._options))
        messages, task_cpu = self._tasks.run(pickle.dumps(writer), self._name, self._batch, shape)
        writer.commit(messages, self._batch)
        self._batch += 1
        cpu = time.process_time() - used + task_cpu
        return Cost(time.perf_counter() - began, cpu)


class Tasks:
    """Two processes that carry out tasks, as Spark's Python workers."""

    def __init__(self, pipes: Sequence[Connection]) -> None:
        self._pipes = pipes

    def run(self, plan: bytes, query: str, batch: int, shape: Shape) -> tuple[list[Any], float]:
        """What the tasks return, and the processor time they took, s."""
        count = min(len(self._pipes), shape.rows)
        for number, pipe in enumerate(self._pipes[:count]):
            rows = shape.rows // count + (number < shape.rows % count)
            pipe.send((plan, number, query, batch, rows, shape.size))
        answers = [pipe.recv() for pipe in self._pipes[:count]]
        return [pickle.loads(message) for message, _ in answers], sum(cpu for _, cpu in answers)


@contextmanager
def tasks(count: int = 2) -> Iterator[Tasks]:
    """As many processes, until the block ends."""
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(count)]
    running = [context.Process(target=_carry_out, args=(theirs,)) for _, theirs in ends]
    for process in running:
        process.start()
    try:
        yield Tasks([own for own, _ in ends])
    finally:
        for own, _ in ends:
            own.send(None)
        for process in running:
            process.join()


def _carry_out(pipe: Connection) -> None:
    """Tasks, until None comes."""
    from orbitmq.spark import writer

    context = _Context()
    setattr(writer, "TaskContext", context)  # noqa: B010 - nobody else asks for it
    while (work := pipe.recv()) is not None:
        plan, context.partition, context.query, context.batch, rows, size = work
        batches = list(_batches(rows, size, context.partition, context.batch))
        began = time.process_time()
        message = pickle.dumps(pickle.loads(plan).write(iter(batches)))
        pipe.send((message, time.process_time() - began))


def _batches(rows: int, size: int, task: int, batch: int) -> Iterator[Any]:
    """Arrow record batches of ``rows`` bodies, no two of them the same."""
    import numpy as np
    import pyarrow as pa

    for begin in range(0, rows, ROWS_A_BATCH):
        count = min(ROWS_A_BATCH, rows - begin)
        data = np.full((count, size), ord("x"), np.uint8)
        numbers = np.array([task, batch, 0], ">i8").view(np.uint8)
        data[:, : numbers.size] = numbers
        rows_seen = np.arange(begin, begin + count, dtype=">i8").view(np.uint8).reshape(count, 8)
        data[:, 16:24] = rows_seen
        offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data.tobytes())]
        bodies = pa.Array.from_buffers(pa.binary(), count, buffers)
        yield pa.RecordBatch.from_arrays([bodies], ["body"])
