"""Spark's rows become messages, column by column; what cannot is named by its row."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ConfigError, InvalidMessageError, RowError
from orbitmq.message import Message, MessageQueue
from orbitmq.spark.sink.frames import ALONE, Frames
from orbitmq.spark.sink.message_rows import MAX_BODY_BYTES, MessageRows, Messages
from orbitmq.spark.sink.options import Compression, WriteOptions, write_options
from orbitmq.spark.sink.unique_ids import UniqueIds
from orbitmq.spark.sink.writer import send_batches
from orbitmq.wire.compress import CompressionType, decompress
from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import decode_properties
from orbitmq.wire.record import decode_batch
from tests.spark.topics import Topic, stored

MAP = pa.map_(pa.string(), pa.string())
QUEUES = [MessageQueue("T", f"broker-{n % 2}", n // 2) for n in range(6)]


def batch(**columns: Any) -> Any:
    return pa.RecordBatch.from_pydict(columns)


def options(**given: Any) -> WriteOptions:
    return WriteOptions(**{"name_servers": ("127.0.0.1:1",), "topic": "T", **given})


def messages(rows: Any, how: WriteOptions | None = None, first: int = 0) -> list[Messages]:
    made = MessageRows(rows, how or options(), first)
    return list(made.messages(UniqueIds().take(made.count)))


def decoded(frames: Frames) -> list[tuple[int, bytes, dict[str, str]]]:
    items = decode_batch(bytes(frames.bytes_of(0, len(frames))))
    return [(flag, body, decode_properties(properties)) for flag, body, properties in items]


def only(rows: Any, how: WriteOptions | None = None) -> list[tuple[int, bytes, dict[str, str]]]:
    ((_, frames, _),) = messages(rows, how)
    return decoded(frames)


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), max_size=8)
ROW = st.fixed_dictionaries(
    {
        "body": st.binary(min_size=1, max_size=40),
        "topic": st.sampled_from([None, "", "A", "B"]),
        "tags": st.none() | TEXT,
        "keys": st.none() | TEXT,
        "shardingKey": st.none() | TEXT,
        "flag": st.none() | st.integers(-(2**31), 2**31 - 1),
        "properties": st.none() | st.dictionaries(TEXT.map("p".__add__), TEXT, max_size=3),
    }
)


def test_topics_of_a_namespace_are_named_without_it() -> None:
    how = write_options({"nameServer": "n:1", "namespace": "mine", "topic": "T", "group": "g"})
    assert how.group == "mine%g"
    rows = batch(body=[b"a", b"b"], topic=["A", None])
    assert sorted(topic for topic, _, _ in messages(rows, how)) == ["mine%A", "mine%T"]
    assert [topic for topic, _, _ in messages(batch(body=[b"a"]), how)] == ["mine%T"]


@given(st.lists(ROW, min_size=1, max_size=12), st.integers(0, 3))
def test_every_row_is_its_message(rows: list[dict[str, Any]], cut: int) -> None:
    types = {"body": pa.binary(), "flag": pa.int32(), "properties": MAP}
    columns = {
        name: pa.array(
            [list(row[name].items()) if isinstance(row[name], dict) else row[name] for row in rows],
            types.get(name, pa.string()),
        )
        for name in rows[0]
    }
    found: dict[int, Any] = {}
    for topic, frames, placing in messages(batch(**columns).slice(cut), first=100):
        places = placing(QUEUES, frames) if placing else np.full(len(frames), -1)
        for row, place, item in zip(frames.rows, places, decoded(frames), strict=True):
            found[int(row)] = topic, int(place), item
    assert sorted(found) == list(range(100, 100 + len(rows[cut:])))
    for number, row in enumerate(rows[cut:], 100):
        topic, place, (flag, body, properties) = found[number]
        assert topic == (row["topic"] or "T")
        assert (flag, body) == (row["flag"] or 0, row["body"])
        expected = {name: value for name, value in (row["properties"] or {}).items() if value}
        names = {"tags": "TAGS", "keys": "KEYS", "shardingKey": "__SHARDINGKEY"}
        expected |= {to: row[name] for name, to in names.items() if row[name]}
        assert len(properties.pop("UNIQ_KEY")) == 32
        assert properties == expected
        key = row["shardingKey"]
        assert place == (abs(java_hash(key)) % len(QUEUES) if key else -1)


def test_rows_become_messages(broker: EmbeddedBroker) -> None:
    properties = pa.array([[("colour", "red"), ("TAGS", "X")], None], MAP)
    rows = pa.RecordBatch.from_arrays(
        [pa.array(["héllo", "b"]), pa.array(["rows", None]), pa.array(["UA", None]),
         pa.array(["k1 k2", ""]), pa.array(["s", None]), properties],
        ["Body", "topic", "tags", "keys", "shardingKey", "properties"],
    )  # fmt: skip
    how = WriteOptions(name_servers=(broker.name_server,), topic="rest")
    assert send_batches(iter([rows]), how).count == 2
    (view,) = [view for views in stored(broker, "rows").values() for view in views]
    assert view.body.decode() == "héllo"
    assert (view.tags, view.keys, view.sharding_key) == ("UA", "k1 k2", "s")
    assert view.property("colour") == "red"
    assert len(view.message_id) == 32
    (other,) = [view for views in stored(broker, "rest").values() for view in views]
    assert other.body == b"b"
    assert not {"TAGS", "KEYS", "__SHARDINGKEY"} & other.properties.keys()


def test_options_count_for_rows_that_have_nothing_of_their_own() -> None:
    how = options(
        texts={"tags": "dflt", "keys": "k", "shardingKey": "s"}, properties={"a": "1", "b": "2"}
    )
    properties = pa.array([[("a", "own")], None], MAP)
    (_, _, first), (_, _, second) = only(
        batch(body=[b"x", b"y"], tags=["own", None], properties=properties), how
    )
    assert {**first, "UNIQ_KEY": ""} == {
        "a": "own", "b": "2", "TAGS": "own", "KEYS": "k", "__SHARDINGKEY": "s", "UNIQ_KEY": "",
    }  # fmt: skip
    assert (second["TAGS"], second["a"]) == ("dflt", "1")


def test_delays_and_what_goes_alone() -> None:
    at = datetime(2030, 1, 31, tzinfo=UTC)
    rows = batch(
        body=[b"a"] * 5,
        delayTimeLevel=pa.array([3, None, None, 0, None], pa.int32()),
        delayMs=pa.array([None, 1500, None, None, None], pa.int64()),
        deliverTime=pa.array([None, None, at, None, None], pa.timestamp("us", "UTC")),
        properties=pa.array([None, None, None, None, [("TIMER_DELAY_SEC", "5")]], MAP),
    )
    ((_, frames, _),) = messages(rows)
    found = [properties for _, _, properties in decoded(frames)]
    assert [one.get("DELAY") for one in found] == ["3", None, None, None, None]
    assert found[1]["TIMER_DELAY_MS"] == "1500"
    assert found[2]["TIMER_DELIVER_MS"] == str(int(at.timestamp() * 1000))
    assert (frames.kinds & ALONE > 0).tolist() == [True, True, True, False, True]
    ((_, frames, _),) = messages(rows, options(delay={"delayTimeLevel": 1}))
    assert decoded(frames)[3][2]["DELAY"] == "1"


def test_large_bodies_are_compressed_and_still_travel_together(broker: EmbeddedBroker) -> None:
    how = options(compression=Compression(CompressionType.ZLIB, 5, 100))
    bodies = [b"x" * size for size in (10, 99, 100, 5000, 20)]
    ((_, frames, _),) = messages(batch(body=bodies), how)
    found = [
        decompress(body, int(kind))
        for (_, body, _), kind in zip(decoded(frames), frames.kinds, strict=True)
    ]
    assert found == bodies
    assert (frames.kinds > 0).tolist() == [False, False, True, True, False]
    topic = Topic(broker)
    sent = options(
        name_servers=(broker.name_server,), topic=topic.name, compression=how.compression
    )
    send_batches(iter([batch(body=bodies * 3)]), sent)
    assert topic.bodies() == sorted(body.decode() for body in bodies * 3)


def test_a_row_chooses_its_queue() -> None:
    rows = batch(
        body=[b"a"] * 4,
        queueId=pa.array([2, 1, None, None], pa.int32()),
        brokerName=["broker-1", None, None, None],
        shardingKey=["x", None, "key", None],
    )
    ((_, frames, placing),) = messages(rows)
    assert placing is not None
    places = placing(QUEUES, frames).tolist()
    assert places[2:] == [abs(java_hash("key")) % 6, -1]
    assert [QUEUES[place] for place in places[:2]] == [QUEUES[5], QUEUES[2]]
    ((_, frames, placing),) = messages(batch(body=[b"a"], queueId=pa.array([3], pa.int32())))
    assert placing is not None
    with pytest.raises(InvalidMessageError, match="row 0: its queueId is none of.* broker-0:2"):
        placing(QUEUES, frames)


def by_body(queues: list[MessageQueue], message: Message, _: object) -> MessageQueue | None:
    return queues[int(message.body)] if message.tags else None


def elsewhere(_queues: list[MessageQueue], _message: Message, _: object) -> MessageQueue:
    return MessageQueue("T", "nowhere", 0)


def test_a_function_chooses_the_queue() -> None:
    rows = batch(body=[b"4", b"1", b"2"], tags=["t", "t", None])
    ((_, frames, placing),) = messages(rows, options(queue_selector=f"{__name__}:by_body"))
    assert placing is not None
    assert placing(QUEUES, frames).tolist() == [4, 1, -1]
    ((_, frames, placing),) = messages(rows, options(queue_selector=f"{__name__}:elsewhere"))
    assert placing is not None
    with pytest.raises(InvalidMessageError, match="elsewhere' chose"):
        placing(QUEUES, frames)
    with pytest.raises(ConfigError, match="queueSelector=.*can import"):
        messages(rows, options(queue_selector=f"{__name__}:missing"))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (batch(body=[b"a", None]), "row 8: a null or empty body"),
        (batch(body=[b""], keys=["k"]), r"row 7 \(keys 'k'\): a null or empty body"),
        (batch(body=[b"a"], topic=pa.array([None], pa.string())), "row 7: no topic"),
        (batch(body=[b"a"], topic=["a b"]), "row 7: .*'a b'"),
        (batch(body=[b"a", b"b"], tags=[None, "a\x02b"]), "row 8: a separator.*column tags"),
        (
            batch(body=[b"a", b"b"], properties=pa.array([None, [("a\x01", "b")]], MAP)),
            "row 8: a separator.*name of a property",
        ),
        (
            batch(body=[b"a"], properties=pa.array([[("a", "b\x02")]], MAP)),
            "row 7: a separator.*in a property",
        ),
        (
            batch(body=[b"a"], properties=pa.array([[("TRAN_MSG", "true")]], MAP)),
            "row 7: .*half a transaction",
        ),
        (batch(body=[b"a"], keys=["k" * 40_000]), "row 7 .*more than 32767 bytes"),
        (batch(body=[b"a", bytes(MAX_BODY_BYTES + 1)]), "row 8: a body of 4194305 bytes"),
        (batch(body=[b"a"], delayMs=[5], delayTimeLevel=[1]), "row 7: more than one of delay"),
    ],
)  # fmt: skip
def test_a_row_that_is_no_message_is_named(rows: Any, message: str) -> None:
    how = options(topic=None) if "topic" in rows.schema.names else None
    with pytest.raises(InvalidMessageError, match=message):
        messages(rows, how, first=7)


def test_the_error_of_a_task_counts_all_its_rows(broker: EmbeddedBroker) -> None:
    how = options(name_servers=(broker.name_server,), topic="counted")
    with pytest.raises(RowError, match="row 5: a null or empty body"):
        send_batches(iter([batch(body=[b"a"] * 3), batch(body=[b"a", b"b", None])]), how)


def test_unique_ids_are_unique() -> None:
    ids = UniqueIds()
    some = np.concatenate([ids.take(3), ids.take(70_000), ids.take(0), ids.take(1)])
    texts = {bytes(row).decode() for row in some}
    assert len(texts) == 70_004
    assert {len(bytes.fromhex(text)) for text in texts} == {16}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"delayMs": "5", "delayTimeLevel": "1"}, "delayMs='5'.*delayTimeLevel is given too"),
        ({"deliverTime": "2030-01-31"}, "deliverTime='2030-01-31'.*with its zone"),
        ({"properties": "{"}, "a JSON object of texts"),
        ({"properties": '{"a": 1}'}, "a JSON object of texts"),
        ({"tags": ""}, "tags=''.*not empty"),
        ({"compression": "gzip"}, "compression='gzip'.*none, zlib"),
        ({"compression": "zlib", "compressionLevel": "10"}, "compressionLevel=10"),
        ({"compressOver": "1k"}, "compressOver='1k'.*compression as well"),
        ({"queueSelector": "x"}, "queueSelector='x'.*module:function"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        write_options({"nameServer": "127.0.0.1:1", **given})


def test_options_are_read() -> None:
    found = write_options(
        {
            "nameserver": "127.0.0.1:1", "tags": "t", "properties": '{"a": "b"}',
            "delivertime": "2030-01-31T01:00:00+01:00", "compression": "ZLIB",
            "compressover": "1k",
        }
    )  # fmt: skip
    assert (found.texts, found.properties) == ({"tags": "t"}, {"a": "b"})
    assert found.delay == {"deliverTime": int(datetime(2030, 1, 31, tzinfo=UTC).timestamp()) * 1000}
    assert found.compression == Compression(CompressionType.ZLIB, 5, 1024)
