"""What did not decode, as messages: :func:`dead_letters` sends them to a topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError
from orbitmq.spark.bodies.decoding import ERROR
from orbitmq.wire.properties import DLQ_ORIGIN_MESSAGE_ID, DLQ_ORIGIN_TOPIC, NOT_THE_USERS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

REASON: Final = "ORBITMQ_DECODE_ERROR"
"""The property that says why the body was not decoded."""
LONGEST_REASON: Final = 1000
"""Characters; a longer reason is cut, for all properties of a message share 32 KiB."""

ORIGIN: Final = {
    "topic": DLQ_ORIGIN_TOPIC,
    "msgId": DLQ_ORIGIN_MESSAGE_ID,
    "brokerName": "ORBITMQ_ORIGIN_BROKER",
    "queueId": "ORBITMQ_ORIGIN_QUEUE_ID",
    "queueOffset": "ORBITMQ_ORIGIN_QUEUE_OFFSET",
}
"""The properties that say where a message came from, by the column they are taken of."""


def dead_letters(
    df: DataFrame,
    topic: str,
    *,
    trigger: Mapping[str, Any] | None = None,
    query_name: str | None = None,
    **options: Any,
) -> StreamingQuery | None:
    """Send what :func:`orbitmq.spark.decode` could not decode to ``topic``.

    Each is sent with its body as it was, its tags and keys, and properties that say why it is there
    and where it came from; see :func:`dead_letter_rows`. ``options`` are those of writing
    (``nameServer="127.0.0.1:9876"``), in Spark's spelling.

    Of a batch, all are sent when this returns. Of a stream, this starts a query of its own, for
    which ``checkpointLocation`` is needed, and returns it; ``trigger`` are the arguments of
    ``DataStreamWriter.trigger``, such as ``{"availableNow": True}``.

    Raises ConfigError when ``df`` has no column ``error`` of decode's, or an argument may not be.
    """
    rows = dead_letter_rows(df, topic)
    texts = {name: str(value) for name, value in options.items()}
    if not df.isStreaming:
        for name, value in (("trigger", trigger), ("query_name", query_name)):
            if value is not None:
                raise ConfigError(name, value, "left out: df is not a stream")
        rows.write.format("rocketmq").options(**texts).mode("append").save()
        return None
    if not any(name.lower() == "checkpointlocation" for name in options):
        raise ConfigError(
            "checkpointLocation", None, "a directory: it says which dead letters were sent"
        )
    writer = rows.writeStream.format("rocketmq").options(**texts)
    if query_name is not None:
        writer = writer.queryName(query_name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


def dead_letter_rows(df: DataFrame, topic: str) -> DataFrame:
    """What did not decode, as rows that ``format("rocketmq")`` writes to ``topic``.

    The properties are ORBITMQ_DECODE_ERROR, the reason, and, of the columns that were read:
    DLQ_ORIGIN_TOPIC and DLQ_ORIGIN_MESSAGE_ID, as RocketMQ's own dead letters have them,
    ORBITMQ_ORIGIN_BROKER, ORBITMQ_ORIGIN_QUEUE_ID and ORBITMQ_ORIGIN_QUEUE_OFFSET. With a column
    ``properties`` the sender's own go along.
    """
    kind = df.schema[ERROR].dataType if ERROR in df.columns else None
    if not isinstance(kind, StructType) or not {"reason", "body"} <= set(kind.names):
        raise ConfigError(
            "df", ", ".join(df.columns), f"a column {ERROR} as orbitmq.spark.decode gives it"
        )
    error = F.col(ERROR)
    there = {name.lower(): name for name in kind.names}
    pairs = [F.lit(REASON), _property(F.substring(error.getField("reason"), 1, LONGEST_REASON))]
    for column, name in ORIGIN.items():
        if column.lower() in there:
            value = error.getField(there[column.lower()]).cast("string")
            pairs += [F.lit(name), F.coalesce(_property(value), F.lit(""))]
    told = F.create_map(*pairs)
    if "properties" in there:
        others = [*NOT_THE_USERS, REASON, *ORIGIN.values()]
        users = F.map_filter(
            error.getField(there["properties"]), lambda name, _: ~name.isin(others)
        )
        told = F.map_concat(users, told)
    own = [error.getField(there[name]).alias(name) for name in ("tags", "keys") if name in there]
    return df.where(error.isNotNull()).select(
        F.lit(topic).alias("topic"),
        error.getField("body").alias("body"),
        *own,
        told.alias("properties"),
    )


def _property(text: Column) -> Column:
    """``text`` without the characters that stand between properties."""
    return F.translate(text, "\x01\x02", "  ")
