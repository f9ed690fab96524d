"""``df.write`` and ``writeStream``: rows to messages, delivered at least once.

A task has succeeded when the brokers acknowledged all its rows; there is nothing left to commit.
What a failed task sent stays sent, and Spark runs it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Any

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from orbitmq.errors import BrokerError, ConfigError, InvalidMessageError, NetworkError, RowError
from orbitmq.spark.idempotence import Idempotence, Task
from orbitmq.spark.message_rows import MessageRows
from orbitmq.spark.sending import Sender
from orbitmq.spark.unique_ids import process_ids
from orbitmq.spark.write_options import AT_LEAST_ONCE, WriteOptions
from orbitmq.spark.write_schema import check_write_schema

log = logging.getLogger("orbitmq.spark")


class SentMessages(WriterCommitMessage):
    """How many messages a task sent."""

    def __init__(self, count: int) -> None:
        self.count = count


class _Plan(msgspec.Struct, frozen=True):
    """What the tasks of one write get: ``run`` is another one each time that Spark plans it."""

    options: WriteOptions
    run: str
    by_row_key: bool

    @classmethod
    def of(cls, schema: StructType, options: WriteOptions) -> _Plan:
        by_row_key = "rowkey" in {field.name.lower() for field in schema}
        return cls(options, token_hex(8), by_row_key)

    def of_batch(self) -> Idempotence | None:
        """The guard of a batch write's task, if it needs one."""
        return self._guard(f"batch:{self.options.write_id or self.run}")

    def of_stream(self) -> Idempotence | None:
        """That of a streaming query's."""
        if self.options.guarantee == AT_LEAST_ONCE:
            return None
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise ConfigError(
                "deliveryGuarantee", self.options.guarantee, "Spark does not say which query it is"
            )
        return self._guard(f"stream:{query}:{batch}")

    def _guard(self, write: str) -> Idempotence | None:
        if self.options.guarantee == AT_LEAST_ONCE:
            return None
        context = TaskContext.get()
        task = Task(write, self.run, context.partitionId() if context else 0)
        return Idempotence(task, self.options, by_row_key=self.by_row_key)


class RocketMQWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("mode", "overwrite", 'messages can only be added: .mode("append")')
        check_write_schema(schema, options.topic)
        self._plan = _Plan.of(schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send one task's rows."""
        return send_batches(iterator, self._plan.options, self._plan.of_batch())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do."""
        log.info("sent %d messages", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was sent cannot be taken back."""
        log.warning("the write failed after %d messages, which stay sent", _count(messages))


class RocketMQStreamWriter(DataSourceStreamArrowWriter):
    """A streaming write; output mode complete sends the whole result each time."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        check_write_schema(schema, options.topic)
        self._plan = _Plan.of(schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send one task's rows."""
        return send_batches(iterator, self._plan.options, self._plan.of_stream())

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark passes it by this name
    ) -> None:
        """Nothing is left to do."""
        log.info("sent %d messages in batch %d", _count(messages), batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark passes it by this name
    ) -> None:
        """What was sent cannot be taken back."""
        log.warning("batch %d failed after %d messages, which stay", batchId, _count(messages))


def send_batches(
    batches: Iterator[Any], options: WriteOptions, guard: Idempotence | None = None
) -> SentMessages:
    """Send every row of the Arrow record batches; returns when all are acknowledged.

    With a ``guard``, those that earlier runs sent are left out. Raises RowError, naming the first
    row that was not sent and the reason.
    """
    sender = Sender(
        options.name_servers, options.group, options.access, options.broker_wait_ms, guard
    )
    count = 0
    try:
        for batch in batches:
            rows = MessageRows(batch, options, count)
            ids = process_ids().take(rows.count) if guard is None else guard.ids.of(rows)
            for messages in rows.messages(ids, ids_win=guard is not None):
                sender.add_all(messages)
            count += rows.count
        sender.finish()
    except InvalidMessageError as error:
        raise RowError(f"{_task()}{error}") from error
    except (NetworkError, BrokerError) as error:
        row = sender.failed_row
        where = f"row {row}: " if row is not None else f"row {count} and those after it: "
        raise RowError(f"{_task()}{where}{error}") from error
    finally:
        sender.close()
    return SentMessages(count)


def _task() -> str:
    context = TaskContext.get()
    return f"partition {context.partitionId()}, " if context else ""


def _count(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.count for message in messages if isinstance(message, SentMessages))
