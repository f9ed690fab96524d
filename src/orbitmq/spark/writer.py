"""``df.write`` and ``writeStream``: rows to messages, delivered at least once.

A task has succeeded when the brokers acknowledged all its rows; there is nothing left to commit.
What a failed task sent stays sent, and Spark runs it again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError, InvalidMessageError
from orbitmq.spark.options import WriteOptions
from orbitmq.spark.schema import check_write_schema
from orbitmq.spark.sending import Outgoing, Sender
from orbitmq.wire.ids import create_unique_id
from orbitmq.wire.properties import (
    DELAY,
    KEYS,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    encode_properties,
)

log = logging.getLogger("orbitmq.spark")

_DELAYS = frozenset({DELAY, TIMER_DELAY_MS, TIMER_DELAY_SEC, TIMER_DELIVER_MS})


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
    """Send every row of the Arrow record batches; returns when all are acknowledged."""
    sender = Sender(options.name_servers, options.group, options.access, options.broker_wait_ms)
    count = 0
    try:
        for batch in batches:
            for topic, message in messages_of(batch, options.topic):
                sender.add(topic, message)
            count += batch.num_rows
        sender.finish()
    finally:
        sender.close()
    return SentMessages(count)


def messages_of(batch: Any, default_topic: str | None) -> Iterator[tuple[str, Outgoing]]:
    """The rows of an Arrow record batch as messages, with their topics.

    An explicit column counts more than the same property in the column properties. Raises
    InvalidMessageError for a row that is not a message.
    """
    columns = {name.lower(): batch.column(index) for index, name in enumerate(batch.schema.names)}
    rows = batch.num_rows

    def values(name: str) -> Sequence[Any]:
        column = columns.get(name)
        return [None] * rows if column is None else column.to_pylist()

    bodies = columns["body"].cast("binary").to_pylist()
    for body, topic, tags, keys, sharding_key, properties in zip(
        bodies,
        values("topic"),
        values("tags"),
        values("keys"),
        values("shardingkey"),
        values("properties"),
        strict=True,
    ):
        if not body:
            raise InvalidMessageError(
                "a row has a null or empty body, which RocketMQ does not send; filter such rows out"
            )
        target = topic or default_topic
        if not target:
            raise InvalidMessageError("a row has no topic, and there is no option topic")
        pairs = dict(properties) if properties else {}
        if TRANSACTION_PREPARED in pairs:
            raise InvalidMessageError(
                f"the property {TRANSACTION_PREPARED} makes half a transaction of a message, "
                "which nobody would complete; leave it out of the column properties"
            )
        for name, value in ((TAGS, tags), (KEYS, keys), (SHARDING_KEY, sharding_key)):
            if value:
                pairs[name] = value
        pairs.setdefault(UNIQ_KEY, create_unique_id())
        yield (
            target,
            Outgoing(
                body,
                encode_properties(pairs),
                pairs.get(SHARDING_KEY) or None,
                not (properties and _DELAYS & pairs.keys()),
            ),
        )


def _count(messages: Sequence[WriterCommitMessage | None]) -> int:
    return sum(message.count for message in messages if isinstance(message, SentMessages))
