"""The columns of ``format("rocketmq")``: what is read, what is written, and the checks of both."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from orbitmq.errors import ConfigError

READ_SCHEMA: Final = StructType(
    [
        StructField("topic", StringType(), nullable=False),
        StructField("brokerName", StringType(), nullable=False),
        StructField("queueId", IntegerType(), nullable=False),
        StructField("queueOffset", LongType(), nullable=False),
        StructField("tags", StringType(), nullable=True),
        StructField("keys", StringType(), nullable=True),
        StructField("body", BinaryType(), nullable=False),
        StructField("bornTimestamp", TimestampType(), nullable=False),
        StructField("storeTimestamp", TimestampType(), nullable=False),
    ]
)
"""The columns that are read where nothing else is said, in order: as cheap as those of Spark's
Kafka source. Spark does not tell a Python source which columns a query uses, so each one costs
everybody."""

ALL_COLUMNS: Final = StructType(
    [
        *READ_SCHEMA.fields,
        StructField("msgId", StringType(), nullable=False),
        StructField("offsetMsgId", StringType(), nullable=False),
        StructField("flag", IntegerType(), nullable=False),
        StructField("reconsumeTimes", IntegerType(), nullable=False),
        StructField(
            "properties",
            MapType(StringType(), StringType(), valueContainsNull=False),
            nullable=False,
        ),
    ]
)
"""Every column that can be read: what the option includeProperties gives. ``msgId`` is the
producer's unique id where there is one, ``offsetMsgId`` says where the broker stored the message;
``properties`` holds all of a message's properties, tags and keys among them."""

_READ_COLUMNS: Final = {field.name.lower(): field for field in ALL_COLUMNS}

_TEXT = (StringType,)
_WRITE_COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": (BinaryType, StringType),
    "topic": _TEXT,
    "tags": _TEXT,
    "keys": _TEXT,
    "shardingkey": _TEXT,
    "properties": (MapType,),
}
_WRITE_NAMES: Final = "body (binary or string), topic, tags, keys, shardingKey, properties"


def check_read_schema(schema: StructType) -> None:
    """Raise ConfigError unless ``schema`` is made of readable columns with their types.

    Some columns in any order will do: what is left out is neither decoded nor handed to Spark.
    """
    if not schema.fields:
        raise ConfigError("schema", "", f"name one column at least: {', '.join(ALL_COLUMNS.names)}")
    for field in schema:
        known = _READ_COLUMNS.get(field.name.lower())
        if known is None:
            raise ConfigError(
                "schema", field.name, f"the readable columns are {', '.join(ALL_COLUMNS.names)}"
            )
        if _plain(field.dataType) != _plain(known.dataType):
            hint = "; CAST(body AS STRING) makes text of it" if known.name == "body" else ""
            raise ConfigError(
                "schema",
                f"{field.name} {field.dataType.simpleString()}",
                f"{known.name} is read as {known.dataType.simpleString()}{hint}",
            )
        if known.nullable and not field.nullable:
            raise ConfigError(
                "schema", f"{field.name} NOT NULL", "a message need not have tags or keys"
            )


def check_write_schema(schema: StructType, topic: str | None) -> None:
    """Raise ConfigError unless rows of ``schema`` are messages.

    ``topic`` is the option of that name, which rows without a topic of their own go to.
    """
    names = [field.name.lower() for field in schema]
    shown = ", ".join(field.name for field in schema) or "none"
    if "body" not in names:
        raise ConfigError("columns", shown, f"a column body is needed; written are {_WRITE_NAMES}")
    if topic is None and "topic" not in names:
        raise ConfigError("topic", None, "give the option topic, or a column topic")
    for field, name in zip(schema, names, strict=True):
        allowed = _WRITE_COLUMNS.get(name)
        if allowed is None:
            raise ConfigError(
                "columns", field.name, f"drop it or put it into body; written are {_WRITE_NAMES}"
            )
        if not isinstance(field.dataType, allowed) or (
            isinstance(field.dataType, MapType) and not _is_text_map(field.dataType)
        ):
            wanted = (
                "map<string,string>"
                if name == "properties"
                else " or ".join(kind().simpleString() for kind in allowed)
            )
            raise ConfigError(
                "columns",
                f"{field.name} {field.dataType.simpleString()}",
                f"{field.name} is written as {wanted}",
            )


def _is_text_map(data_type: MapType) -> bool:
    return isinstance(data_type.keyType, StringType) and isinstance(data_type.valueType, StringType)


def _plain(data_type: DataType) -> str:
    """The type without its nullability."""
    return data_type.simpleString()
