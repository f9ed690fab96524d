from __future__ import annotations

import copy
import json
import pickle
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RecordError
from orbitmq.message import MessageQueue
from orbitmq.wire.compress import COMPRESSED, compress
from orbitmq.wire.ids import host_bytes, host_text
from orbitmq.wire.message_view import (
    MessageView,
    decode_record,
    decode_records,
    set_property_of_all,
)
from orbitmq.wire.properties import decode_properties, encode_properties
from orbitmq.wire.record import RECORD_HEADER, Draft, encode_record

GOLDEN = Path(__file__).parent / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "record_encoded.json").read_text())["cases"]
HOST = host_bytes("127.0.0.1", 10911)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1)
drafts = st.builds(
    Draft,
    topic=words | st.builds(str.__mul__, words, st.integers(1, 50)),
    queue_id=int32,
    body=st.binary(max_size=60),
    properties=st.dictionaries(words, words, max_size=4).map(encode_properties),
    tags_code=st.just(0),
    flag=int32,
    sys_flag=int32.map(lambda flag: flag & ~COMPRESSED),
    born_timestamp=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)
places = st.tuples(int64, int64, int64)


def record(body: bytes = b"hello", sys_flag: int = 0, **properties: str) -> bytes:
    draft = Draft("T", 3, body, encode_properties(properties), 0, 7, sys_flag, 11, HOST, HOST)
    return encode_record(draft, 17, 4711, 22)


def read_everything(view: MessageView) -> dict[str, Any]:
    names = [name for name in dir(MessageView) if isinstance(getattr(MessageView, name), property)]
    assert "topic" in names
    assert "born_host" in names
    return {name: getattr(view, name) for name in names}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_reads_what_java_wrote(case: dict[str, Any]) -> None:
    if case["name"] in ("LZ4", "ZSTD"):
        pytest.importorskip({"LZ4": "lz4.frame", "ZSTD": "zstandard"}[case["name"]])
    data = bytes.fromhex(case["hex"])
    (view,) = decode_records(data)
    fields = dict(case["fields"])
    for name in ("born_host", "store_host"):
        assert getattr(view, name) == host_text(bytes.fromhex(fields.pop(name)))
    assert view.sys_flag & ~COMPRESSED == fields.pop("sys_flag_without_compressed")
    assert view.body == bytes.fromhex(fields.pop("body"))
    assert {name: getattr(view, name) for name in fields} == fields
    assert view.body_size == len(bytes.fromhex(case["stored_body"]))


@given(st.lists(st.tuples(drafts, places), max_size=4))
def test_round_trip(given_records: list[tuple[Draft, tuple[int, int, int]]]) -> None:
    data = b"".join(encode_record(draft, *place) for draft, place in given_records)
    views = decode_records(data, "broker-a")
    assert len(views) == len(given_records)
    for view, (draft, place) in zip(views, given_records, strict=True):
        assert view.topic == view.stored_topic == draft.topic
        assert view.body == draft.body
        assert view.properties == decode_properties(draft.properties)
        assert (view.queue_offset, view.physical_offset, view.store_timestamp) == place
        for name in ("queue_id", "flag", "born_timestamp", "reconsume_times"):
            assert getattr(view, name) == getattr(draft, name)
        assert view.prepared_transaction_offset == draft.prepared_transaction_offset
        assert view.born_host == host_text(draft.born_host)
        assert view.store_host == host_text(draft.store_host)
        assert view.message_queue == MessageQueue(draft.topic, "broker-a", draft.queue_id)
        offset = struct.pack(">q", place[1])
        assert view.offset_message_id == (draft.store_host + offset).hex().upper()


@given(drafts)
def test_one_property_is_the_same_lazily_or_not(draft: Draft) -> None:
    data = encode_record(draft, 0, 0, 0)
    for name, value in decode_properties(draft.properties).items():
        assert decode_record(data).property(name) == value


@given(st.lists(drafts, min_size=1, max_size=3), st.data())
def test_damage_raises_record_error_only(given_drafts: list[Draft], data: st.DataObject) -> None:
    damaged = bytearray(b"".join(encode_record(draft, 1, 2, 3) for draft in given_drafts))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        damaged[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    del damaged[data.draw(st.integers(0, len(damaged))) :]
    try:
        views = decode_records(damaged)
    except RecordError:
        return
    assert sum(view.store_size for view in views) == len(damaged)
    for view in views:
        try:
            read_everything(view)
        except RecordError:
            assert view.sys_flag & COMPRESSED


@given(st.binary(min_size=1, max_size=300))
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(RecordError, match="no record at byte 0"):
        decode_records(garbage)


def test_what_is_wrong_is_said_with_its_place() -> None:
    good = record()
    with pytest.raises(RecordError, match=f"no record at byte {len(good)}: only 7 bytes are left"):
        decode_records(good + b"garbage")


def test_nothing_gives_nothing() -> None:
    assert decode_records(b"") == []


def test_views_do_not_depend_on_the_receive_buffer() -> None:
    buffer = bytearray(record(TAGS="TagA"))
    (view,) = decode_records(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert (view.topic, view.body, view.tags) == ("T", b"hello", "TagA")


def test_a_single_record_within_a_buffer() -> None:
    data = record(b"one") + record(b"two")
    view = decode_record(data, len(record(b"one")), "broker-a")
    assert (view.body, view.broker_name) == (b"two", "broker-a")


def test_well_known_properties() -> None:
    view = decode_record(
        record(TAGS="TagA", KEYS="k1 k2", __SHARDINGKEY="s", UNIQ_KEY="ID", TRAN_MSG="true")
    )
    assert (view.tags, view.keys, view.sharding_key) == ("TagA", "k1 k2", "s")
    assert (view.message_id, view.transaction_id) == ("ID", "ID")
    assert view.property("none") is None


def test_without_properties() -> None:
    view = decode_record(record())
    assert view.properties == {}
    assert (view.tags, view.keys, view.sharding_key, view.transaction_id) == (None,) * 4
    assert view.message_id == view.offset_message_id == "7F00000100002A9F0000000000001267"


def test_compressed_bodies() -> None:
    view = decode_record(record(compress(b"text" * 100), COMPRESSED))
    assert view.body == b"text" * 100
    assert view.body is view.body
    assert view.body_size < 100
    with pytest.raises(RecordError, match="ZLIB"):
        assert decode_record(record(b"no zlib", COMPRESSED)).body


def test_extra_properties_are_seen_on_every_message() -> None:
    extra = {"MIN_OFFSET": "0", "MAX_OFFSET": "9", "TAGS": "over"}
    views = decode_records(record(TAGS="TagA", A="a") * 2, extra=extra)
    assert [view.property("MAX_OFFSET") for view in views] == ["9", "9"]
    assert [view.tags for view in views] == ["over", "over"]
    assert views[0].properties == {**extra, "A": "a"}
    views[0].set_property("MAX_OFFSET", "10")
    assert views[1].property("MAX_OFFSET") == "9"
    assert extra["MAX_OFFSET"] == "9"


def test_properties_may_be_set() -> None:
    extra = {"MIN_OFFSET": "0"}
    first, second = decode_records(record(TAGS="TagA") * 2, extra=extra)
    first.set_property("A", "a")
    first.set_property("MIN_OFFSET", "1")
    assert (first.property("A"), first.property("MIN_OFFSET")) == ("a", "1")
    assert first.properties == {"TAGS": "TagA", "A": "a", "MIN_OFFSET": "1"}
    first.set_property("TAGS", "TagB")
    first.properties["B"] = "b"
    assert (first.tags, first.property("B")) == ("TagB", "b")
    assert second.properties == {"TAGS": "TagA", "MIN_OFFSET": "0"}
    second.properties = {"only": "this"}
    assert (second.tags, second.property("only")) == (None, "this")


@given(
    st.lists(st.sampled_from(["untouched", "set", "read", "other pull", "none"]), max_size=6),
    st.sampled_from(["A", "TAGS", "MIN_OFFSET", "new"]),
)
def test_a_property_of_all_is_that_of_each(states: list[str], name: str) -> None:
    def received() -> list[MessageView]:
        extra = {"MIN_OFFSET": "0"}
        views = decode_records(record(TAGS="TagA", A="a") * len(states), extra=extra)
        for index, state in enumerate(states):
            if state == "set":
                views[index].set_property("B", "b")
            elif state == "read":
                views[index].properties["C"] = "c"
            elif state == "other pull":
                (views[index],) = decode_records(record(A="z"), extra={"MIN_OFFSET": "9"})
            elif state == "none":
                (views[index],) = decode_records(record(A="z"))
        return views

    views = received()
    set_property_of_all(views, name, "value")
    for view in views[:1]:
        view.set_property(name, "another")
    values = ["another", *["value"] * len(states)][: len(states)]
    assert [view.property(name) for view in views] == values
    before = [view.properties for view in received()]
    assert [view.properties for view in views] == [
        {**properties, name: value} for properties, value in zip(before, values, strict=True)
    ]


def test_topic_and_reconsume_times_may_be_set() -> None:
    view = decode_record(record(), broker_name="broker-a")
    view.topic = "Original"
    view.reconsume_times += 2
    assert (view.topic, view.stored_topic, view.reconsume_times) == ("Original", "T", 2)
    assert view.message_queue == MessageQueue("T", "broker-a", 3)


def test_views_are_equal_only_to_themselves() -> None:
    first, second = decode_records(record() * 2)
    assert first != second
    assert len({first, second, first}) == 2


def test_a_pickle_holds_one_record_and_all_changes() -> None:
    views = decode_records(record(b"x" * 100, A="a") * 100, "broker-a", {"MIN_OFFSET": "0"})
    view = views[50]
    view.topic = "Original"
    view.reconsume_times = 5
    view.set_property("B", "b")
    data = pickle.dumps(view)
    assert len(data) < 1000
    restored = pickle.loads(data)
    assert read_everything(restored) == read_everything(view)
    assert restored.broker_name == "broker-a"
    assert read_everything(copy.deepcopy(view)) == read_everything(view)


def test_repr_is_short() -> None:
    assert repr(decode_record(record(b"x" * 5000, UNIQ_KEY="ID"))) == (
        "MessageView(topic='T', queue_id=3, queue_offset=17, message_id='ID', 5000 bytes)"
    )


def test_magic_of_neither_version_is_refused() -> None:
    data = bytearray(record())
    data[RECORD_HEADER.magic + 3] = 0
    with pytest.raises(RecordError, match="magic 0xdaa32000"):
        decode_records(data)
