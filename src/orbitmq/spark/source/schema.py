"""The columns of ``format("rocketmq")``: what is read, and its check."""

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


def _plain(data_type: DataType) -> str:
    """The type without its nullability."""
    return data_type.simpleString()
