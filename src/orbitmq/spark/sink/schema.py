"""The columns that ``format("rocketmq")`` writes, and their check."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from orbitmq.errors import ConfigError

_TEXT = (StringType,)
_NUMBER = (IntegerType, LongType, ShortType)
WRITE_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": (BinaryType, StringType),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": _TEXT,
    "shardingKey": _TEXT,
    "properties": (MapType,),
    "flag": (IntegerType,),
    "delayTimeLevel": _NUMBER,
    "delayMs": _NUMBER,
    "deliverTime": (TimestampType,),
    "brokerName": _TEXT,
    "queueId": _NUMBER,
    "rowKey": _TEXT,
}
"""Every column that can be written, and its types."""

_BY_LOWER: Final = {name.lower(): (name, types) for name, types in WRITE_COLUMNS.items()}
_NAMES: Final = "body (binary or string), " + ", ".join(list(WRITE_COLUMNS)[1:])


def check_write_schema(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError unless rows of ``schema`` are messages.

    ``topic`` is the option of that name, which rows without a topic of their own go to.
    """
    names = [field.name.lower() for field in schema]
    shown = ", ".join(field.name for field in schema) or "none"
    if "body" not in names:
        raise ConfigError("columns", shown, f"a column body is needed; written are {_NAMES}")
    if topic is None and "topic" not in names:
        raise ConfigError("topic", None, "give the option topic, or a column topic")
    if "brokername" in names and "queueid" not in names:
        raise ConfigError("columns", "brokerName", "a queue is chosen by brokerName and queueId")
    for field, lower in zip(schema, names, strict=True):
        if names.count(lower) > 1:
            raise ConfigError("columns", field.name, "it is there twice")
        if lower not in _BY_LOWER:
            raise ConfigError(
                "columns", field.name, f"drop it or put it into body; written are {_NAMES}"
            )
        name, types = _BY_LOWER[lower]
        if not isinstance(field.dataType, types) or not _is_written(field.dataType):
            wanted = " or ".join(kind().simpleString() for kind in types if kind is not MapType)
            raise ConfigError(
                "columns",
                f"{field.name} {field.dataType.simpleString()}",
                f"{name} is written as {wanted or 'map<string,string>'}",
            )


def _is_written(data_type: DataType) -> bool:
    return not isinstance(data_type, MapType) or (
        isinstance(data_type.keyType, StringType) and isinstance(data_type.valueType, StringType)
    )
