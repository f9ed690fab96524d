"""A schema that is not ours is refused by its column, before anything is read or sent."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from orbitmq.errors import ConfigError
from orbitmq.spark.data_source import RocketMQDataSource
from orbitmq.spark.sink.schema import check_write_schema
from orbitmq.spark.source.schema import ALL_COLUMNS, READ_SCHEMA, check_read_schema

TEXT_MAP = MapType(StringType(), StringType())


def schema(**columns: object) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])  # type: ignore[arg-type]


def test_the_columns_are_those_of_the_documentation() -> None:
    usual = (
        "topic:string,brokerName:string,queueId:int,queueOffset:bigint,tags:string,keys:string,"
        "body:binary,bornTimestamp:timestamp,storeTimestamp:timestamp"
    )
    dear = (
        "msgId:string,offsetMsgId:string,flag:int,reconsumeTimes:int,properties:map<string,string>"
    )
    assert READ_SCHEMA.simpleString() == f"struct<{usual}>"
    assert ALL_COLUMNS.simpleString() == f"struct<{usual},{dear}>"
    check_read_schema(READ_SCHEMA)
    check_read_schema(ALL_COLUMNS)


def test_the_dear_columns_are_there_for_those_who_ask() -> None:
    options = {"nameServer": "127.0.0.1:9876", "topic": "flights"}
    assert RocketMQDataSource(options).schema() == READ_SCHEMA
    for value, columns in (("true", ALL_COLUMNS), ("false", READ_SCHEMA)):
        assert RocketMQDataSource(options | {"includeProperties": value}).schema() == columns
    with pytest.raises(ConfigError, match="includeProperties='yes' is not allowed: true or false"):
        RocketMQDataSource(options | {"includeProperties": "yes"}).schema()


def test_some_columns_in_any_order_and_case_will_do() -> None:
    check_read_schema(schema(BODY=BinaryType(), queueoffset=LongType(), properties=TEXT_MAP))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (schema(value=BinaryType()), "value.*the readable columns are topic, brokerName"),
        (schema(body=StringType()), r"body is read as binary; CAST\(body AS STRING\)"),
        (schema(queueId=LongType()), "queueId bigint.*queueId is read as int"),
        (schema(), "name one column at least"),
        (StructType([StructField("tags", StringType(), nullable=False)]), "tags NOT NULL"),
    ],
)
def test_other_columns_cannot_be_read(columns: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_read_schema(columns)


def test_rows_with_a_body_and_a_topic_can_be_written() -> None:
    check_write_schema(schema(body=StringType()), "flights")
    check_write_schema(schema(body=BinaryType(), Topic=StringType()), None)
    every = schema(
        topic=StringType(), body=BinaryType(), tags=StringType(), keys=StringType(),
        shardingKey=StringType(), properties=TEXT_MAP,
    )  # fmt: skip
    check_write_schema(every, "flights")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (schema(value=BinaryType()), "'value' is not allowed: a column body is needed"),
        (schema(body=IntegerType()), "body int.*body is written as binary or string"),
        (schema(body=BinaryType(), keys=IntegerType()), "keys is written as string"),
        (schema(body=BinaryType(), msgId=StringType()), "msgId.*drop it"),
        (schema(body=BinaryType(), brokerName=StringType()), "brokerName and queueId"),
        (schema(body=BinaryType(), BODY=StringType()), "'body' .*twice"),
        (
            schema(body=BinaryType(), properties=MapType(StringType(), IntegerType())),
            "properties is written as map<string,string>",
        ),
    ],
)
def test_other_rows_cannot_be_written(columns: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_write_schema(columns, "flights")


def test_rows_need_a_topic_from_somewhere() -> None:
    with pytest.raises(ConfigError, match="topic=None.*the option topic, or a column topic"):
        check_write_schema(schema(body=BinaryType()), None)
