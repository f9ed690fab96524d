"""``df.write`` and ``writeStream``: rows to messages, delivered at least once.

A task has succeeded when the brokers acknowledged all its rows; there is nothing left to commit.
What a failed task sent stays sent, and Spark runs it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from orbitmq.errors import BrokerError, ConfigError, InvalidMessageError, NetworkError, RowError
from orbitmq.spark.message_rows import MessageRows
from orbitmq.spark.sending import Sender
from orbitmq.spark.unique_ids import process_ids
from orbitmq.spark.write_options import WriteOptions
from orbitmq.spark.write_schema import check_write_schema

log = logging.getLogger("orbitmq.spark")


class SentMessages(WriterCommitMessage):
    """How many messages a task sent."""

    def __init__(self, count: int) -> None:
        self.count = count


class RocketMQWriter(DataSourceArrowWriter):
    """A batch write."""

    def __init__(self, schema: StructType, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigError("mode", "overwrite", 'messages can only be added: .mode("append")')
        check_write_schema(schema, options.topic)
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send one task's rows."""
        return send_batches(iterator, self._options)

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
        self._options = options

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send one task's rows."""
        return send_batches(iterator, self._options)

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


def send_batches(batches: Iterator[Any], options: WriteOptions) -> SentMessages:
    """Send every row of the Arrow record batches; returns when all are acknowledged.

    Raises RowError, naming the first row that was not sent and the reason.
    """
    sender = Sender(options.name_servers, options.group, options.access, options.broker_wait_ms)
    count = 0
    try:
        for batch in batches:
            rows = MessageRows(batch, options, count)
            for messages in rows.messages(process_ids().take(rows.count)):
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
