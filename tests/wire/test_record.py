from __future__ import annotations

import contextlib
import json
import mmap
import struct
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import RecordError
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import (
    BLANK_MAGIC,
    BORN_HOST_V6,
    LAYOUTS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    RECORD_HEADER,
    STORE_HOST_V6,
    TRANSACTION_COMMIT,
    Draft,
    check_record,
    encode_blank,
    encode_record,
    host_bytes,
    is_blank,
    locate_record,
    record_size,
    transaction_type,
)

GOLDEN = Path(__file__).parent / "golden"
CASES: list[dict[str, Any]] = json.loads((GOLDEN / "record_encoded.json").read_text())["cases"]
HOST = host_bytes("127.0.0.1", 10911)
HOST_V6 = host_bytes("::1", 10911)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.binary(min_size=8, max_size=8) | st.binary(min_size=20, max_size=20)
topics = st.text(st.characters(codec="utf-8"), max_size=20) | st.builds(
    lambda text, times: text * times,
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=5),
    st.integers(20, 60),
)
drafts = st.builds(
    Draft,
    topic=topics,
    queue_id=int32,
    body=st.binary(max_size=60),
    properties=st.binary(max_size=60),
    tags_code=int64,
    flag=int32,
    sys_flag=int32,
    born_timestamp=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_transaction_offset=int64,
)


def draft(**changes: Any) -> Draft:
    plain = Draft(
        topic="TopicTest",
        queue_id=3,
        body=b"hello",
        properties=encode_properties({"TAGS": "TagA", "KEYS": "k1 k2"}),
        tags_code=2598919,
        flag=0,
        sys_flag=0,
        born_timestamp=1_700_000_000_000,
        born_host=HOST,
        store_host=HOST,
    )
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_encodes_as_java(case: dict[str, Any]) -> None:
    record, fields = bytes.fromhex(case["hex"]), case["fields"]
    (sys_flag,) = struct.unpack_from(">i", record, RECORD_HEADER.sys_flag)
    given_draft = Draft(
        topic=fields["topic"],
        queue_id=fields["queue_id"],
        body=bytes.fromhex(case["stored_body"]),
        properties=case["properties_text"].encode(),
        tags_code=0,
        flag=fields["flag"],
        sys_flag=sys_flag & ~(BORN_HOST_V6 | STORE_HOST_V6),
        born_timestamp=fields["born_timestamp"],
        born_host=bytes.fromhex(fields["born_host"]),
        store_host=bytes.fromhex(fields["store_host"]),
        reconsume_times=fields["reconsume_times"],
        prepared_transaction_offset=fields["prepared_transaction_offset"],
    )
    place = fields["queue_offset"], fields["physical_offset"], fields["store_timestamp"]
    assert encode_record(given_draft, *place).hex() == case["hex"]
    assert record_size(given_draft) == fields["store_size"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_checks_what_java_wrote(case: dict[str, Any]) -> None:
    record, fields = bytes.fromhex(case["hex"]), case["fields"]
    info = check_record(record, 0, len(record))
    assert info is not None
    assert info.size == fields["store_size"]
    assert info.tags_code == case["tags_code"]
    assert info.properties == case["properties_text"].encode()
    for name in ("topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp"):
        assert getattr(info, name) == fields[name]
    assert info.prepared_transaction_offset == fields["prepared_transaction_offset"]


@given(drafts, int64, int64, int64)
def test_check_finds_what_was_encoded(
    given_draft: Draft, queue_offset: int, physical_offset: int, store_timestamp: int
) -> None:
    record = encode_record(given_draft, queue_offset, physical_offset, store_timestamp)
    assert len(record) == record_size(given_draft)
    padded = b"before" + record + b"after"
    info = check_record(padded, 6, 6 + len(record))
    assert info is not None
    assert info.topic == given_draft.topic
    assert (info.size, info.queue_id) == (len(record), given_draft.queue_id)
    assert (info.queue_offset, info.physical_offset) == (queue_offset, physical_offset)
    assert info.store_timestamp == store_timestamp
    assert info.properties == given_draft.properties
    v6 = BORN_HOST_V6 | STORE_HOST_V6
    assert info.sys_flag & ~v6 == given_draft.sys_flag & ~v6
    assert bool(info.sys_flag & BORN_HOST_V6) == (len(given_draft.born_host) == 20)
    assert bool(info.sys_flag & STORE_HOST_V6) == (len(given_draft.store_host) == 20)


@given(drafts, st.binary(max_size=30))
def test_a_whole_record_within_the_limit_or_none(given_draft: Draft, after: bytes) -> None:
    record = encode_record(given_draft, 1, 2, 3)
    for limit in range(len(record)):
        assert check_record(record + after, 0, limit) is None
        assert check_record(record[:limit], 0, limit) is None
    assert check_record(record + after, 0, len(record + after)) is not None


@given(drafts, st.data())
def test_damage_is_never_read_past_the_limit(given_draft: Draft, data: st.DataObject) -> None:
    record = bytearray(encode_record(given_draft, 1, 2, 3))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, min(len(record), 120) - 1))
        record[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]) | st.integers(0, 255))
    exact = check_record(bytes(record), 0, len(record), verify_crc=False)
    # The same bytes, with others behind the limit, must look the same.
    embedded = bytes(record) + data.draw(st.binary(max_size=200))
    assert check_record(embedded, 0, len(record), verify_crc=False) == exact
    assert exact is None or exact.size <= len(record)


@given(st.binary(max_size=300))
def test_garbage_is_none(garbage: bytes) -> None:
    assert check_record(garbage, 0, len(garbage)) is None
    with pytest.raises(RecordError):
        locate_record(garbage, 0, len(garbage))


@given(st.integers(0, 2**32 - 1), st.binary(max_size=300))
def test_garbage_behind_a_good_magic_raises_record_error_only(size: int, rest: bytes) -> None:
    for magic in (MAGIC_V1, MAGIC_V2):
        for claimed in (size, 8 + len(rest)):
            garbage = struct.pack(">II", claimed, magic) + rest
            check_record(garbage, 0, len(garbage), verify_crc=False)
            with contextlib.suppress(RecordError):
                locate_record(garbage, 0, len(garbage))


def test_a_changed_body_fails_its_checksum() -> None:
    record = bytearray(encode_record(draft(), 0, 0, 0))
    record[RECORD_HEADER.body] ^= 1
    assert check_record(record, 0, len(record)) is None
    assert check_record(record, 0, len(record), verify_crc=False) is not None


def test_reads_any_buffer() -> None:
    record = encode_record(draft(), 0, 0, 0)
    with mmap.mmap(-1, len(record)) as mapped:
        mapped[:] = record
        found = check_record(mapped, 0, len(record))
        assert found is not None
        for buffer in (record, bytearray(record), memoryview(record)):
            assert check_record(buffer, 0, len(record)) == found


def test_a_body_may_be_a_memoryview() -> None:
    assert encode_record(draft(body=memoryview(b"hello")), 1, 2, 3) == encode_record(
        draft(), 1, 2, 3
    )


def test_tags_code_comes_from_the_tags() -> None:
    record = encode_record(draft(properties=encode_properties({"TAGS": "标签"})), 0, 0, 0)
    info = check_record(record, 0, len(record))
    assert info is not None
    assert info.tags_code == tags_code("标签") != 0


def test_the_topic_decides_the_version() -> None:
    for topic, magic in (("t" * 127, MAGIC_V1), ("t" * 128, MAGIC_V2), ("é" * 64, MAGIC_V2)):
        record = encode_record(draft(topic=topic), 0, 0, 0)
        assert struct.unpack_from(">I", record, RECORD_HEADER.magic) == (magic,)


def test_a_v1_topic_length_is_signed_as_in_java() -> None:
    record = bytearray(encode_record(draft(topic="t" * 127, properties=b"\x00"), 0, 0, 0))
    at = RECORD_HEADER.body + len(b"hello")
    assert record[at] == 127
    record[at] = 128  # its lengths would agree if it were taken as 128
    record[at + 129 : at + 131] = b"\x00\x00"
    assert check_record(record, 0, len(record)) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "\ud800"},
        {"topic": "t" * 32768},
        {"properties": bytes(32768)},
        {"queue_id": 2**31},
        {"flag": -(2**31) - 1},
        {"sys_flag": 2**31},
        {"born_timestamp": 2**63},
        {"born_host": b"1234567"},
        {"store_host": b"1" * 16},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_what_does_not_fit_raises_record_error(changes: dict[str, Any]) -> None:
    with pytest.raises(RecordError):
        encode_record(draft(**changes), 0, 0, 0)


def test_the_longest_parts_fit() -> None:
    record = encode_record(draft(topic="t" * 32767, properties=b"p" * 32767, body=b""), 0, 0, 0)
    info = check_record(record, 0, len(record))
    assert info is not None
    assert (len(info.topic), len(info.properties)) == (32767, 32767)


def test_layouts() -> None:
    # MessageDecoder's position constants, and the fields that IPv6 hosts move.
    assert RECORD_HEADER.magic == 4
    assert RECORD_HEADER.flag == 16
    assert RECORD_HEADER.queue_offset == 20
    assert RECORD_HEADER.physical_offset == 28
    assert RECORD_HEADER.sys_flag == 36
    assert RECORD_HEADER.store_timestamp == 56
    assert RECORD_HEADER.body == 88
    assert [layout.store_timestamp for layout in LAYOUTS] == [56, 68, 56, 68]
    assert [layout.body for layout in LAYOUTS] == [88, 100, 100, 112]
    assert MIN_RECORD_SIZE == 91


def test_blank() -> None:
    blank = encode_blank(100) + bytes(92)
    assert blank[:8] == struct.pack(">II", 100, BLANK_MAGIC)
    assert is_blank(blank, 0, 100)
    assert is_blank(blank, 0, 8)
    assert not is_blank(blank, 0, 7)
    assert not is_blank(blank, 1, 100)
    assert check_record(blank, 0, 100) is None
    record = encode_record(draft(), 0, 0, 0)
    assert not is_blank(record, 0, len(record))


def test_transaction_type() -> None:
    assert transaction_type(0xFF & ~0xC) == 0
    assert transaction_type(0xF3 | TRANSACTION_COMMIT) == TRANSACTION_COMMIT


def test_the_checksum_has_no_sign_bit() -> None:
    body = next(bytes([n]) for n in range(256) if zlib.crc32(bytes([n])) >> 31)
    record = encode_record(draft(body=body), 0, 0, 0)
    assert record[RECORD_HEADER.body_crc] < 128
    assert check_record(record, 0, len(record)) is not None
