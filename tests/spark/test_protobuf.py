"""Protocol Buffers bodies: what Spark calls their types, and what their bytes mean."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_type

from orbitmq.errors import ConfigError
from orbitmq.spark.bodies.protobuf import message_schema, protobuf_decoder, protobuf_type

pytest.importorskip("google.protobuf")

FIELDS = """
id 1 int64 optional
count 2 uint64 optional
small 3 uint32 optional
price 4 double optional
paid 5 bool optional
note 6 string optional presence
code 7 bytes optional
state 8 enum .shop.State optional
lines 9 message .shop.Line repeated
at 10 message .google.protobuf.Timestamp optional
took 11 message .google.protobuf.Duration optional
labels 12 message .shop.Order.LabelsEntry repeated
numbers 13 int32 repeated
"""


def descriptor_files() -> bytes:
    """What protoc would write for FIELDS."""
    from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2

    files = descriptor_pb2.FileDescriptorSet()
    for needed in (timestamp_pb2, duration_pb2):
        needed.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "google/protobuf/duration.proto"])
    state = file.enum_type.add(name="State")
    for number, name in enumerate(("NEW", "PAID")):
        state.value.add(name=name, number=number)
    order, line = file.message_type.add(name="Order"), file.message_type.add(name="Line")
    add_field(line, "item 1 string optional")
    entry = order.nested_type.add(name="LabelsEntry")
    entry.options.map_entry = True
    add_field(entry, "key 1 string optional")
    add_field(entry, "value 2 int32 optional")
    for text in FIELDS.strip().splitlines():
        add_field(order, text)
    tree = file.message_type.add(name="Tree")
    add_field(tree, "left 1 message .shop.Tree optional")
    content: bytes = files.SerializeToString()
    return content


def add_field(message: Any, text: str) -> None:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

    name, number, kind, *rest = text.split()
    field = message.field.add(name=name, number=int(number))
    field.type = Field.Type.Value(f"TYPE_{kind.upper()}")
    field.label = Field.Label.Value(f"LABEL_{'REPEATED' if 'repeated' in rest else 'OPTIONAL'}")
    if rest[0].startswith("."):
        field.type_name = rest[0]
    if "presence" in rest:
        field.proto3_optional = True
        field.oneof_index = 0
        message.oneof_decl.add(name=f"_{name}")


def order_class() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptor_files()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def an_order() -> Any:
    order = order_class()(id=-7, count=2**64 - 1, small=2**32 - 1, price=1.5, paid=True, note="x")
    order.code, order.state = b"\xff", 1
    order.lines.add(item="book")
    order.at.FromDatetime(datetime(2024, 5, 1, 12, 0, 0, 250, tzinfo=UTC))
    order.took.FromTimedelta(timedelta(seconds=-3))
    order.labels["a"] = 1
    order.numbers.extend([1, 2])
    return order


def test_types_are_those_of_from_protobuf() -> None:
    assert protobuf_type(*message_schema(order_class(), None)).simpleString() == (
        "struct<id:bigint,count:decimal(20,0),small:bigint,price:double,paid:boolean,note:string,"
        "code:binary,state:string,lines:array<struct<item:string>>,at:timestamp,"
        "took:interval day to second,labels:map<string,int>,numbers:array<int>>"
    )


def test_a_body_becomes_a_row_that_arrow_takes() -> None:
    files, name = message_schema(order_class(), None)
    row = protobuf_decoder(files, name)(an_order().SerializeToString())
    kind = to_arrow_type(protobuf_type(files, name), timezone="UTC")
    assert pa.array([row], kind).to_pylist() == [
        {
            "id": -7, "count": Decimal(2**64 - 1), "small": 2**32 - 1, "price": 1.5, "paid": True,
            "note": "x", "code": b"\xff", "state": "PAID", "lines": [{"item": "book"}],
            "at": datetime(2024, 5, 1, 12, 0, 0, 250, tzinfo=UTC), "took": timedelta(seconds=-3),
            "labels": [("a", 1)], "numbers": [1, 2],
        }
    ]  # fmt: skip


def test_what_is_not_said_is_null_or_its_default() -> None:
    row = protobuf_decoder(*message_schema(descriptor_files(), "shop.Order"))(b"")
    assert row["note"] is None
    assert row["at"] is None
    assert (row["id"], row["state"], row["lines"], row["labels"]) == (0, "NEW", [], [])


def test_an_enum_of_a_later_schema_is_its_number() -> None:
    decode = protobuf_decoder(*message_schema(descriptor_files(), "shop.Order"))
    assert decode(b"\x40\x09")["state"] == "9"


def test_a_descriptor_file_says_the_same_as_the_class(tmp_path: Path) -> None:
    path = tmp_path / "shop.bin"
    path.write_bytes(descriptor_files())
    by_file = protobuf_type(*message_schema(path, "shop.Order"))
    assert by_file == protobuf_type(*message_schema(order_class(), None))


@given(st.binary(max_size=60))
def test_other_bytes_give_an_error_or_a_row(body: bytes) -> None:
    from google.protobuf.message import DecodeError

    try:
        row = protobuf_decoder(*message_schema(descriptor_files(), "shop.Order"))(body)
    except (DecodeError, OverflowError):
        return
    assert "id" in row


@pytest.mark.parametrize(
    ("schema", "message", "words"),
    [
        (1, None, "a message class, or a descriptor file"),
        (b"", None, "the full name of the message"),
        (b"\xff", "shop.Order", "a descriptor file of protoc's"),
        (descriptor_files(), "shop.Ordr", "Ordr"),
        (descriptor_files(), "shop.Tree", "a message that does not hold itself"),
    ],
)
def test_a_wrong_schema_says_what_is_wrong(schema: Any, message: str | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        protobuf_type(*message_schema(schema, message))
