"""Bodies become typed columns; what does not decode is told, kept and sent to a topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ConfigError
from orbitmq.spark import dead_letter_rows, dead_letters, decode
from orbitmq.spark.bodies.decoding import decode_rows
from orbitmq.wire.message_view import MessageView
from tests.spark.topics import Topic, stored

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]

SCHEMA = "id bigint NOT NULL, price double, at struct<x:int>, words array<string>"


@pytest.fixture
def topic(broker: EmbeddedBroker) -> Topic:
    return Topic(broker)


def bodies(spark: SparkSession, *found: bytes | None) -> DataFrame:
    """A frame as a topic with these bodies would be read."""
    rows = [(number, body) for number, body in enumerate(found)]
    return spark.createDataFrame(rows, "queueOffset bigint, body binary")


JSON: Mapping[bytes | None, tuple[int | None, str | None]] = {
    b'{"id": 1, "price": 2.5, "at": {"x": 3}, "words": ["a"]}': (1, None),
    b' {"id": 2, "unknown": true}': (2, None),
    b'{"id": 3, "price": null}': (3, None),
    b'{"price": 1.0}': (None, "id is missing"),
    b'{"id": "four", "price": "dear"}': (None, "id is not bigint: four; price is not double: dear"),
    b'{"id": 5, "at": {"x": "wrong"}}': (None, "does not fit struct<id:bigint"),
    b'{"id": 6': (None, "not JSON"),
    b"\xff\xfe": (None, "not JSON"),
    b"[]": (None, "not a JSON object"),
    b'[{"id": 8}]': (None, "not a JSON object"),
    b"null": (None, "not a JSON object"),
    b"7": (None, "not a JSON object"),
    b"  ": (None, "not a JSON object"),
    None: (None, "there is no body"),
}


def test_json_is_decoded_and_what_is_not_says_why(spark: SparkSession) -> None:
    frame = decode(bodies(spark, *JSON), format="json", schema=SCHEMA)
    assert frame.columns == ["queueOffset", "id", "price", "at", "words", "error"]
    rows = {row.queueOffset: row for row in frame.collect()}
    for number, (body, (key, reason)) in enumerate(JSON.items()):
        row = rows[number]
        assert row.id == key
        if reason is None:
            assert row.error is None
            continue
        assert row.error.reason.startswith(reason), row
        assert (row.price, row.at, row.words) == (None, None, None)
        assert row.error.body == body
        assert row.error.queueOffset == number
    assert rows[0].asDict(recursive=True) == {
        "queueOffset": 0, "id": 1, "price": 2.5, "at": {"x": 3}, "words": ["a"], "error": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"format": "xml"}, "format='xml' is not allowed: one of json, avro, protobuf"),
        ({"schema": "id bigint, queueoffset int"}, "queueoffset.*df.drop"),
        ({"schema": "error int"}, "a name that no other column has"),
        ({"schema": "id bigit"}, "id bigit"),
        ({"schema": None}, "a StructType, or text"),
    ],
)
def test_a_wrong_argument_says_what_is_wrong(
    spark: SparkSession, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        decode(bodies(spark, b"{}"), **({"format": "json", "schema": "id bigint"} | arguments))


def test_a_frame_without_bodies_is_refused(spark: SparkSession) -> None:
    frame = bodies(spark, b"{}").select("queueOffset")
    with pytest.raises(ConfigError, match="a column body is needed"):
        decode(frame, schema="id bigint")
    with pytest.raises(ConfigError, match="a column error as orbitmq.spark.decode gives it"):
        dead_letter_rows(frame, "dead")


def test_a_value_too_large_fails_alone() -> None:
    kind = StructType(
        [StructField("n", IntegerType()), StructField("_orbitmq_corrupt", StringType())]
    )
    array = decode_rows(
        [b"1", b"99999999999", None, b"x"],
        lambda body: {"n": int(body)},
        to_arrow_type(kind, timezone="UTC"),
    )
    assert isinstance(array, pa.StructArray)
    assert [row["n"] for row in array.to_pylist()] == [1, None, None, None]
    assert [str(row["_orbitmq_corrupt"])[:10] for row in array.to_pylist()] == [
        "None", "ArrowInval", "there is n", "ValueError",
    ]  # fmt: skip


def test_avro_and_protobuf_are_decoded_in_the_tasks(spark: SparkSession) -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("google.protobuf")
    from google.protobuf.wrappers_pb2 import Int64Value

    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    frame = bodies(spark, b"\x06", b"")
    by_avro = decode(frame, format="avro", schema=schema).orderBy("queueOffset").collect()
    assert [row.id for row in by_avro] == [3, None]
    assert by_avro[1].error.reason.startswith("EOFError")
    frame = bodies(spark, b"\x08\x07", b"\x08")
    by_protobuf = decode(frame, format="protobuf", schema=Int64Value).orderBy("queueOffset")
    rows = by_protobuf.collect()
    assert [row.value for row in rows] == [7, None]
    assert rows[1].error.reason.startswith("DecodeError")
    assert rows[1].error.body == b"\x08"


def read(reader: Any, topic: Topic) -> DataFrame:
    options = {"nameServer": topic.broker.name_server, "topic": topic.name}
    found: DataFrame = (
        reader.format("rocketmq").options(**options, startingOffsets="earliest").load()
    )
    return found


def arrived(dead: Topic) -> list[MessageView]:
    return sorted(
        (view for views in dead.by_queue().values() for view in views), key=lambda view: view.body
    )


def test_dead_letters_keep_what_they_were(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send('{"id": 1}', '{"id": 2', "\x01\x02", tags="UA")
    dead = Topic(topic.broker)
    frame = decode(read(spark.read, topic), schema="id bigint")
    assert [row.id for row in frame.where("error IS NULL").collect()] == [1]
    assert dead_letters(frame, dead.name, nameServer=topic.broker.name_server) is None
    controls, cut = arrived(dead)
    assert (controls.body, cut.body, cut.tags) == (b"\x01\x02", b'{"id": 2', "UA")
    said = {name: value for name, value in cut.properties.items() if name.startswith("ORBITMQ")}
    assert said == {
        "ORBITMQ_DECODE_ERROR": "not JSON", "ORBITMQ_ORIGIN_BROKER": "broker-a",
        "ORBITMQ_ORIGIN_QUEUE_ID": "0", "ORBITMQ_ORIGIN_QUEUE_OFFSET": "1",
    }  # fmt: skip
    assert cut.properties["DLQ_ORIGIN_TOPIC"] == topic.name

    # Dead letters that are dead letters again say where they came from last.
    again = f"{dead.name}-again"
    stream = decode(
        read(spark.readStream.option("includeProperties", "true"), dead), schema="x int"
    )
    options = {"nameServer": topic.broker.name_server, "checkpointLocation": str(tmp_path)}
    with pytest.raises(ConfigError, match="checkpointLocation"):
        dead_letters(stream, again, nameServer=topic.broker.name_server)
    query = dead_letters(stream, again, trigger={"availableNow": True}, **options)
    assert query is not None
    assert query.awaitTermination(60)
    found = [view for views in stored(topic.broker, again).values() for view in views]
    assert sorted(view.body for view in found) == [b"\x01\x02", b'{"id": 2']
    assert {view.properties["DLQ_ORIGIN_TOPIC"] for view in found} == {dead.name}
    assert {view.properties["DLQ_ORIGIN_MESSAGE_ID"] for view in found} == {
        controls.message_id,
        cut.message_id,
    }
