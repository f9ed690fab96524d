"""Batches that a broker stores as one record: consumers get the messages in them."""

from __future__ import annotations

import zlib

import pytest

from orbitmq.wire.compress import COMPRESSED
from orbitmq.wire.message_view import MessageView, decode_record, decode_records
from orbitmq.wire.properties import INNER_NUM, encode_properties
from orbitmq.wire.record import (
    INNER_BATCH,
    NEED_UNWRAP,
    Draft,
    encode_batch,
    encode_record,
    host_bytes,
)

HOST = host_bytes("127.0.0.1", 10911)
HOST_V6 = host_bytes("::1", 10911)
INNER = [
    (7, b"one", encode_properties({"TAGS": "paid", "UNIQ_KEY": "A1"})),
    (8, b"two", encode_properties({"TAGS": "sent", "UNIQ_KEY": "A2"})),
]


def batch(
    body: bytes, sys_flag: int = INNER_BATCH | NEED_UNWRAP, host: bytes = HOST, offset: int = 20
) -> bytes:
    draft = Draft(
        topic="orders",
        queue_id=3,
        body=body,
        properties=encode_properties({INNER_NUM: "2"}),
        tags_code=0,
        flag=0,
        sys_flag=sys_flag,
        born_timestamp=5,
        born_host=host,
        store_host=host,
    )
    return encode_record(draft, offset, 4000, 6)


def told(views: list[MessageView]) -> list[tuple[int, bytes, str | None, int]]:
    return [(view.queue_offset, view.body, view.tags, view.flag) for view in views]


@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["v4", "v6"])
def test_the_messages_of_a_batch_have_its_place_and_their_own_content(host: bytes) -> None:
    single = batch(b"alone", sys_flag=0, offset=22)
    views = decode_records(batch(encode_batch(INNER), host=host) + single, "broker-a", {"X": "1"})
    assert told(views) == [
        (20, b"one", "paid", 7),
        (21, b"two", "sent", 8),
        (22, b"alone", None, 0),
    ]
    first, second, _ = views
    assert second.message_id == "A2"
    assert (second.topic, second.queue_id, second.broker_name) == ("orders", 3, "broker-a")
    assert (first.born_timestamp, first.store_timestamp, first.physical_offset) == (5, 6, 4000)
    assert first.store_host == decode_record(batch(b"", host=host)).store_host
    assert first.property("X") == "1"


def test_a_compressed_batch_is_decompressed_once() -> None:
    body = zlib.compress(encode_batch(INNER))
    views = decode_records(batch(body, COMPRESSED | INNER_BATCH | NEED_UNWRAP))
    assert [view.body for view in views] == [b"one", b"two"]


@pytest.mark.parametrize("sys_flag", [INNER_BATCH, NEED_UNWRAP])
def test_only_both_flags_make_a_batch_to_unwrap(sys_flag: int) -> None:
    (view,) = decode_records(batch(encode_batch(INNER), sys_flag))
    assert view.body == encode_batch(INNER)


def test_a_batch_that_cannot_be_read_stays_one_message() -> None:
    damaged = encode_batch(INNER)[:-3]
    (view,) = decode_records(batch(damaged))
    assert (view.queue_offset, view.body) == (20, damaged)
