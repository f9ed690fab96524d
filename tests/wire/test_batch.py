from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import InvalidMessageError, RecordError
from orbitmq.wire.properties import decode_properties, encode_properties
from orbitmq.wire.record import decode_batch, encode_batch

GOLDEN = Path(__file__).parent / "golden"

Item: TypeAlias = tuple[int, bytes, bytes]
items = st.lists(
    st.tuples(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=50), st.binary(max_size=50))
)


def test_encodes_and_decodes_as_java() -> None:
    (case,) = json.loads((GOLDEN / "record_batch.json").read_text())["cases"]
    given_items = [
        (each["flag"], bytes.fromhex(each["body"]), encode_properties(each["properties"]))
        for each in case["messages"]
    ]
    encoded = bytes.fromhex(case["hex"])
    assert encode_batch(given_items) == encoded
    assert decode_batch(encoded) == given_items
    assert [decode_properties(each[2]) for each in decode_batch(encoded)] == [
        each["properties"] for each in case["messages"]
    ]


@given(items)
def test_round_trip(messages: list[Item]) -> None:
    encoded = encode_batch(messages)
    assert decode_batch(encoded) == messages
    assert decode_batch(memoryview(encoded)) == messages


@given(items.filter(bool))
def test_a_batch_cut_short_is_refused(messages: list[Item]) -> None:
    encoded = encode_batch(messages)
    ends = {len(encode_batch(messages[:count])) for count in range(len(messages) + 1)}
    for length in range(len(encoded)):
        if length not in ends:
            with pytest.raises(RecordError):
                decode_batch(encoded[:length])


@given(st.binary(max_size=200))
def test_garbage_raises_record_error_only(body: bytes) -> None:
    try:
        decode_batch(body)
    except RecordError:
        return


@pytest.mark.parametrize("field", [16, 20])
def test_negative_lengths_are_refused(field: int) -> None:
    encoded = bytearray(encode_batch([(0, b"", b""), (0, b"", b"")]))
    encoded[field] |= 0x80
    with pytest.raises(RecordError):
        decode_batch(bytes(encoded))


def test_size_magic_and_checksum_are_not_looked_at() -> None:
    encoded = encode_batch([(1, b"body", b"")])
    assert decode_batch(b"\xff" * 12 + encoded[12:]) == [(1, b"body", b"")]


@pytest.mark.parametrize("item", [(2**31, b"", b""), (0, b"", bytes(32768))])
def test_what_does_not_fit_is_refused(item: Item) -> None:
    with pytest.raises(InvalidMessageError, match="do not fit"):
        encode_batch([item])
