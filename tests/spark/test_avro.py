"""Avro bodies: what Spark calls their types, and what their bytes mean."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from orbitmq.errors import ConfigError
from orbitmq.spark.bodies.avro import avro_decoder, avro_schema, avro_type

fastavro = pytest.importorskip("fastavro")

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9,
                                   "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "uid", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "last", "type": ["null", "State"]},
        {"name": "labels", "type": {"type": "map", "values": "int"}},
        {"name": "size", "type": ["int", "long"]},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [
                {"name": "item", "type": "string"},
                {"name": "more", "type": {"type": "map", "values": "boolean"}}]}}},
    ],
}  # fmt: skip
ROW: dict[str, Any] = {
    "id": 7, "note": None, "price": Decimal("12.50"), "at": datetime(2024, 5, 1, 12, tzinfo=UTC),
    "day": date(2024, 5, 1), "clock": 1000, "uid": "u-1", "state": "PAID", "last": "NEW",
    "labels": {"a": 1}, "size": 2**40, "lines": [{"item": "book", "more": {"new": True}}],
}  # fmt: skip


def encoded(schema: dict[str, Any], row: dict[str, Any]) -> bytes:
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def carried(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with uuid and time-millis as what carries them, for texts and numbers to write."""
    text = json.dumps(schema)
    for name in ("uuid", "time-millis"):
        text = text.replace(f', "logicalType": "{name}"', "")
    found: dict[str, Any] = json.loads(text)
    return found


def test_types_are_those_of_sparks_avro_source() -> None:
    assert avro_type(avro_schema(ORDER)).simpleString() == (
        "struct<id:bigint,note:string,price:decimal(9,2),at:timestamp,day:date,clock:int,"
        "uid:string,state:string,last:string,labels:map<string,int>,size:bigint,"
        "lines:array<struct<item:string,more:map<string,boolean>>>>"
    )


def test_a_body_becomes_a_row_that_arrow_takes() -> None:
    schema = avro_schema(ORDER)
    row = avro_decoder(schema)(encoded(carried(ORDER), ROW))
    array = pa.array([row], to_arrow_type(avro_type(schema), timezone="UTC"))
    expected = ROW | {"labels": [("a", 1)], "lines": [{"item": "book", "more": [("new", True)]}]}
    assert array.to_pylist() == [expected]


@given(st.integers(-(2**63), 2**63 - 1), st.none() | st.text(), st.lists(st.binary(), max_size=3))
def test_any_row_is_read_back(number: int, text: str | None, items: list[bytes]) -> None:
    schema = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": "n", "type": "long"},
            {"name": "t", "type": ["null", "string"]},
            {"name": "i", "type": {"type": "array", "items": "bytes"}},
        ],
    }
    row = {"n": number, "t": text, "i": items}
    assert avro_decoder(avro_schema(schema))(encoded(schema, row)) == row


def test_bytes_that_are_left_are_not_passed_over() -> None:
    body = encoded(carried(ORDER), ROW)
    with pytest.raises(ValueError, match="2 bytes are left after the record"):
        avro_decoder(avro_schema(ORDER))(body + b"xx")


@given(st.binary(max_size=60))
def test_other_bytes_give_an_error_or_a_row(body: bytes) -> None:
    try:
        row = avro_decoder(avro_schema(ORDER))(body)
    except Exception:  # noqa: BLE001 - whatever it is, decode tells it
        return
    assert set(row) == {field["name"] for field in ORDER["fields"]}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "an Avro schema in JSON"),
        ('"string"', "the Avro schema of a record"),
        (None, "an Avro schema in JSON"),
        ({"type": "record", "name": "r", "fields": [{"name": "a", "type": "strin"}]}, "strin"),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["null", "r"]}]},
            "a: r is not allowed|holds itself",
        ),
        (
            {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "string"]}]},
            "a union of null and one type",
        ),
    ],
)
def test_a_wrong_schema_says_what_is_wrong(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        avro_type(avro_schema(schema))
