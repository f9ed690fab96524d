"""Columns hold what a MessageView shows, whatever the records look like."""

from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RecordError
from orbitmq.spark.source.columns import ColumnDecoder
from orbitmq.spark.source.records import cut_at
from orbitmq.wire.compress import COMPRESSED
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Draft, encode_record, host_bytes

TEXT_MAP = pa.map_(pa.string(), pa.field("value", pa.string(), nullable=False))
FIELDS = [
    pa.field("topic", pa.string(), nullable=False),
    pa.field("brokerName", pa.string(), nullable=False),
    pa.field("queueId", pa.int32(), nullable=False),
    pa.field("queueOffset", pa.int64(), nullable=False),
    pa.field("msgId", pa.string(), nullable=False),
    pa.field("offsetMsgId", pa.string(), nullable=False),
    pa.field("flag", pa.int32(), nullable=False),
    pa.field("tags", pa.string()),
    pa.field("keys", pa.string()),
    pa.field("body", pa.binary(), nullable=False),
    pa.field("bornTimestamp", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("storeTimestamp", pa.timestamp("us", "UTC"), nullable=False),
    pa.field("reconsumeTimes", pa.int32(), nullable=False),
    pa.field("properties", TEXT_MAP, nullable=False),
]
SCHEMA = pa.schema(FIELDS)

HOSTS = st.sampled_from(
    [host_bytes("10.1.2.3", 4567), host_bytes("127.0.0.1", 10911), host_bytes("fe80::1", 10911)]
)
TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=8)
NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "WAIT", "TAGX", "a", "colour"]) | TEXT.filter(
    bool
)


def record(
    offset: int = 0,
    body: bytes = b"body",
    properties: bytes = b"",
    *,
    sys_flag: int = 0,
    flag: int = 0,
    topic: str = "flights",
    hosts: tuple[bytes, bytes] = (host_bytes("10.1.2.3", 4567), host_bytes("10.0.0.9", 10911)),
) -> bytes:
    draft = Draft(
        topic, 3, body, properties, 0, flag, sys_flag, 1_700_000_000_123, *hosts, reconsume_times=2
    )
    return encode_record(draft, offset, 4096 + offset, 1_700_000_000_456)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """A pull answer of records that differ in every way they may."""
    encoded = []
    for offset in range(draw(st.integers(0, 12))):
        stored = encode_properties(draw(st.dictionaries(NAMES, TEXT, max_size=5)))
        if draw(st.booleans()):
            stored = stored.removesuffix(b"\x02")  # as brokers before 5.x write them
        body, sys_flag = draw(st.binary(max_size=40)), 0
        if draw(st.integers(0, 5)) == 0 and body:
            body, sys_flag = zlib.compress(body), COMPRESSED
        topic = draw(st.sampled_from(["flights", "t" * 200]))
        hosts, flag = draw(st.tuples(HOSTS, HOSTS)), draw(st.integers(-9, 9))
        encoded.append(
            record(offset, body, stored, sys_flag=sys_flag, flag=flag, topic=topic, hosts=hosts)
        )
    return b"".join(encoded)


def decode(data: bytes, schema: Any = SCHEMA, tags: frozenset[str] | None = None) -> Any:
    batch = ColumnDecoder(schema, "flights", tags).decode(data, "broker-a")
    batch.validate(full=True)
    return batch


def row_of(view: MessageView) -> dict[str, Any]:
    return {
        "topic": "flights",
        "brokerName": "broker-a",
        "queueId": view.queue_id,
        "queueOffset": view.queue_offset,
        "msgId": view.message_id,
        "offsetMsgId": view.offset_message_id,
        "flag": view.flag,
        "tags": view.tags,
        "keys": view.keys,
        "body": view.body,
        "reconsumeTimes": view.reconsume_times,
        "properties": list(view.properties.items()),
    }


@given(records())
def test_columns_agree_with_the_lazy_view(data: bytes) -> None:
    batch = decode(data)
    views = decode_records(data)
    assert batch.drop_columns(["bornTimestamp", "storeTimestamp"]).to_pylist() == [
        row_of(view) for view in views
    ]
    for name in ("born_timestamp", "store_timestamp"):
        column = batch.column(name.replace("_t", "T"))
        assert column.cast(pa.int64()).to_pylist() == [getattr(v, name) * 1000 for v in views]


@given(records(), st.sets(st.sampled_from(SCHEMA.names), min_size=1))
def test_some_columns_are_the_same_as_among_all(data: bytes, names: set[str]) -> None:
    schema = pa.schema([SCHEMA.field(name) for name in sorted(names)])
    assert decode(data, schema) == decode(data).select(schema.names)


def test_column_names_are_case_insensitive() -> None:
    schema = pa.schema([pa.field("QUEUEOFFSET", pa.int64())])
    assert decode(record(7), schema).to_pylist() == [{"QUEUEOFFSET": 7}]


@given(st.lists(st.sampled_from([None, "UA", "AA", "U"]), max_size=8))
def test_only_wanted_tags_are_let_through(tags: list[str | None]) -> None:
    data = b"".join(
        record(offset, properties=encode_properties({"TAGS": tag} if tag else {}))
        for offset, tag in enumerate(tags)
    )
    batch = decode(data, tags=frozenset({"UA", "DL"}))
    assert batch.column("queueOffset").to_pylist() == [
        offset for offset, tag in enumerate(tags) if tag == "UA"
    ]


@pytest.mark.parametrize(
    "stored",
    [
        b"a\x01b\x01c\x02TAGS\x01UA\x02",  # a value with a separator in it
        b"TAGS\x01UA\x02\x02\x02",  # terminators without a pair
        b"nothing\x02TAGS\x01UA\x02",  # a pair without a separator
        b"\x01x\x02TAGS\x01UA",  # a pair without a name
        b"EMPTY\x01\x02TAGS\x01UA\x02",  # a pair without a value
        b"TAGS\x01AA\x02TAGS\x01UA\x02",  # a repeated name: the last counts
        b"K\x01\xff\xfe\x02TAGS\x01UA\x02",  # not UTF-8
    ],
)
def test_odd_properties_are_read_as_the_view_reads_them(stored: bytes) -> None:
    data = record(properties=stored) + record(1, properties=b"TAGS\x01DL\x02")
    batch = decode(data)
    views = decode_records(data)
    assert batch.column("tags").to_pylist() == [view.tags for view in views] == ["UA", "DL"]
    found = [dict(pairs) for pairs in batch.column("properties").to_pylist()]
    assert found == [view.properties for view in views]


@given(records(), st.data())
def test_damaged_answers_raise_record_error_only(data: bytes, damage: st.DataObject) -> None:
    if not data:
        return
    changed = bytearray(data)
    for _ in range(damage.draw(st.integers(1, 3))):
        changed[damage.draw(st.integers(0, len(data) - 1))] = damage.draw(st.integers(0, 255))
    kept = bytes(changed[: damage.draw(st.integers(1, len(data)))])
    try:
        decode(kept)
    except RecordError:
        return


@pytest.mark.parametrize("size", [-1, 0, 8, 90, 2**31 - 1])
def test_an_impossible_record_size_is_refused(size: int) -> None:
    data = record()
    with pytest.raises(RecordError):
        decode(size.to_bytes(4, "big", signed=True) + data[4:])


@given(st.binary(min_size=1200, max_size=1500), st.integers(0, 1499))
def test_many_records_are_found_side_by_side(sizes: bytes, odd: int) -> None:
    """Bodies may hold what looks like the head of a record."""
    fake = record(body=bytes(30))
    bodies = [fake if place % 1500 == odd else bytes(size) for place, size in enumerate(sizes)]
    data = b"".join(record(offset, body) for offset, body in enumerate(bodies))
    schema = pa.schema([SCHEMA.field("queueOffset"), SCHEMA.field("body")])
    batch = decode(data, schema)
    assert batch.column("body").to_pylist() == bodies
    assert batch.column("queueOffset").to_pylist() == list(range(len(bodies)))


@given(
    st.lists(st.sampled_from([{}, {"TAGS": "UA"}, {"KEYS": "k", "TAGS": "AA"}, {"NOT_KEYS": "x"},
                              {"XYZ_KEY": "x"}, {"UNIQ_KEY": "id", "TAGS": "UA"}]), max_size=6),
    st.integers(1, 40),
)  # fmt: skip
def test_columns_of_many_records(properties: list[dict[str, str]], times: int) -> None:
    """All alike or not, and with names that end as those looked for do."""
    stored = [encode_properties(pairs) for pairs in properties] * times
    data = b"".join(record(offset, properties=text) for offset, text in enumerate(stored))
    assert decode(data).drop_columns(["bornTimestamp", "storeTimestamp"]).to_pylist() == [
        row_of(view) for view in decode_records(data)
    ]


@pytest.mark.parametrize("size", [0, 80, 119, 121, 1000, 2**31])
def test_a_wrong_size_among_many_records_is_refused(size: int) -> None:
    data = bytearray(record(body=bytes(20)) * 3000)
    place = len(data) // 2
    data[place : place + 4] = size.to_bytes(4, "big")
    with pytest.raises(RecordError):
        decode(bytes(data))


def test_records_behind_the_end_are_cut() -> None:
    data = b"".join(record(offset) for offset in (4, 7, 8))
    assert cut_at(data, 9) == data
    assert decode(cut_at(data, 8)).column("queueOffset").to_pylist() == [4, 7]
    assert cut_at(data, 3) == b""
