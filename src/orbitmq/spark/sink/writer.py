"""``df.write`` and ``writeStream``: Spark's writers, and what a task of each guarantee does.

With at_least_once and idempotent a task has succeeded when the brokers acknowledged all its rows,
and there is nothing left to commit. With exactly_once tasks prepare and the driver commits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from orbitmq.spark.prompt import Prompt
from orbitmq.spark.sink.begins import Task
from orbitmq.spark.sink.decisions import Decision, Decisions, Share
from orbitmq.spark.sink.idempotence import Idempotence
from orbitmq.spark.sink.message_rows import MessageRows
from orbitmq.spark.sink.options import AT_LEAST_ONCE, EXACTLY_ONCE, WriteOptions
from orbitmq.spark.sink.row_ids import RowIds
from orbitmq.spark.sink.schema import check_write_schema
from orbitmq.spark.sink.sending import Sender
from orbitmq.spark.sink.staged import AttemptIds
from orbitmq.spark.sink.staging import Staging
from orbitmq.spark.sink.unique_ids import process_ids

log = logging.getLogger("orbitmq.spark")


class SentMessages(WriterCommitMessage):
    """How many messages a task sent."""

    def __init__(self, count: int) -> None:
        self.count = count


class PreparedRows(SentMessages):
    """Rows that a task staged, as ``shares`` by broker; or the ``decision`` it found."""

    def __init__(
        self, count: int, write: str, shares: dict[str, Share], decision: Decision | None
    ) -> None:
        super().__init__(count)
        self.write = write
        self.shares = shares
        self.decision = decision


class _Plan(msgspec.Struct, frozen=True):
    """What the tasks of one write get: ``run`` is another one each time that Spark plans it."""

    options: WriteOptions
    run: str
    by_row_key: bool

    @classmethod
    def of(cls, schema: StructType, options: WriteOptions) -> _Plan:
        by_row_key = "rowkey" in {field.name.lower() for field in schema}
        return cls(options, token_hex(8), by_row_key)

    def write_batch(self, batches: Iterator[Any]) -> SentMessages:
        """Carry out a task of a batch write."""
        return self._write(batches, f"batch:{self.options.write_id or self.run}")

    def write_stream(self, batches: Iterator[Any]) -> SentMessages:
        """Carry out a task of a streaming query."""
        if self.options.guarantee == AT_LEAST_ONCE:
            return send_batches(batches, self.options)
        context = TaskContext.get()
        query = context and context.getLocalProperty("sql.streaming.queryId")
        batch = context and context.getLocalProperty("streaming.sql.batchId")
        if not query or not batch:
            raise ConfigError(
                "deliveryGuarantee", self.options.guarantee, "Spark does not say which query it is"
            )
        return self._write(batches, f"stream:{query}:{batch}")

    def _write(self, batches: Iterator[Any], write: str) -> SentMessages:
        context = TaskContext.get()
        task = Task(write, self.run, context.partitionId() if context else 0)
        if self.options.guarantee == EXACTLY_ONCE:
            return prepare_batches(batches, self.options, task)
        guard = None
        if self.options.guarantee != AT_LEAST_ONCE:
            guard = Idempotence(task, self.options, by_row_key=self.by_row_key)
        return send_batches(batches, self.options, guard)


class RocketMQWriter(Prompt, DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("mode", "overwrite", 'messages can only be added: .mode("append")')
        check_write_schema(schema, options.topic)
        self._plan = _Plan.of(schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send one task's rows."""
        return self._plan.write_batch(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Deliver what is prepared; otherwise nothing is left to do."""
        deliver(messages, self._plan.options)
        log.info("sent %d messages", _count(messages))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what is prepared; otherwise what was sent cannot be taken back."""
        if not drop(messages, self._plan.options):
            log.warning("the write failed after %d messages, which stay sent", _count(messages))


class RocketMQStreamWriter(Prompt, DataSourceStreamArrowWriter):
    """A streaming write; output mode complete sends the whole result each time."""

    def __init__(self, schema: StructType, options: WriteOptions) -> None:
        check_write_schema(schema, options.topic)
        self._plan = _Plan.of(schema, options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send one task's rows."""
        return self._plan.write_stream(iterator)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark passes it by this name
    ) -> None:
        """Deliver what is prepared; otherwise nothing is left to do."""
        deliver(messages, self._plan.options)
        log.info("sent %d messages in batch %d", _count(messages), batchId)

    def abort(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - Spark passes it by this name
    ) -> None:
        """Drop what is prepared; otherwise what was sent cannot be taken back."""
        if not drop(messages, self._plan.options):
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
    try:
        count = _add_all(batches, options, sender, None if guard is None else guard.ids)
        with _naming_rows(sender):
            sender.finish()
    finally:
        sender.close()
    return SentMessages(count)


def prepare_batches(batches: Iterator[Any], options: WriteOptions, task: Task) -> PreparedRows:
    """Stage every row; they are dropped where one fails. Raises RowError."""
    staging = Staging(options, task)
    try:
        count = _add_all(batches, options, staging, staging.ids)
        with _naming_rows(staging):
            shares = staging.finish()
    except Exception:
        staging.roll_back()
        raise
    finally:
        staging.close()
    return PreparedRows(count, task.write, shares, staging.decision)


def deliver(messages: Sequence[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Decide that what all tasks staged counts, and deliver it."""
    prepared = [message for message in messages if isinstance(message, PreparedRows)]
    if prepared:
        decided = [message.decision for message in prepared if message.decision is not None]
        shares = [message.shares for message in prepared]
        Decisions(options, prepared[0].write).commit(shares, next(iter(decided), None))


def drop(messages: Sequence[WriterCommitMessage | None], options: WriteOptions) -> bool:
    """Drop what tasks staged, unless it counts; whether there may be such."""
    prepared = [message for message in messages if isinstance(message, PreparedRows)]
    if prepared:
        shares = [message.shares for message in prepared]
        Decisions(options, prepared[0].write).drop_all(shares)
    return options.guarantee == EXACTLY_ONCE


def _add_all(
    batches: Iterator[Any],
    options: WriteOptions,
    sender: Sender | Staging,
    row_ids: RowIds | AttemptIds | None,
) -> int:
    """Hand all rows to ``sender``; how many they are. Raises RowError."""
    count = 0
    for batch in batches:
        with _naming_rows(sender, count):
            rows = MessageRows(batch, options, count)
            ids = process_ids().take(rows.count) if row_ids is None else row_ids.of(rows)
            for messages in rows.messages(ids, ids_win=row_ids is not None):
                sender.add_all(messages)
        count += rows.count
    return count


@contextmanager
def _naming_rows(sender: Sender | Staging, first: int = 0) -> Iterator[None]:
    """Errors become a RowError that names the first row that was not sent."""
    try:
        yield
    except InvalidMessageError as error:
        raise RowError(f"{_task()}{error}") from error
    except (NetworkError, BrokerError) as error:
        row = sender.failed_row
        where = f"row {row}: " if row is not None else f"row {first} and those after it: "
        raise RowError(f"{_task()}{where}{error}") from error


def _task() -> str:
    context = TaskContext.get()
    return f"partition {context.partitionId()}, " if context else ""


def _count(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.count for message in messages if isinstance(message, SentMessages))
