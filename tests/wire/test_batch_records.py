"""The body of a batch turned into records at once: in Python, and compiled where that is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.compiled import TWINS
from orbitmq.wire.batch_records import BatchRecords
from orbitmq.wire.ids import host_bytes
from orbitmq.wire.record import Draft, encode_batch

MARKER = b"\x02TAGS\x01"
PLAIN = host_bytes("127.0.0.1", 10911)

properties = st.lists(
    st.sampled_from([MARKER, b"TAGS", b"TAGS\x01A\x02", b"\x01", b"\x02", b"k\x01v\x02", b"\0"])
    | st.text(max_size=4).map(str.encode)
    | st.binary(max_size=4),
    max_size=4,
).map(b"".join)
items = st.lists(
    st.tuples(st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=40), properties),
    max_size=5,
)
heads = st.tuples(
    st.integers(0, (1 << 32) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    st.binary(max_size=60),
    st.binary(max_size=12),
)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Those of batches, some of them cut short or with other bytes somewhere."""
    body = bytearray(encode_batch(draw(items)))
    changes = st.dictionaries(st.integers(0, 200), st.integers(0, 255), max_size=2)
    for place, byte in draw(changes).items():
        if place < len(body):
            body[place] = byte
    return bytes(body[: draw(st.integers(0, 300) | st.just(len(body)))])


@given(
    bodies() | st.binary(max_size=80),
    heads,
    st.integers(0, 45) | st.just(1 << 22),
    st.integers(0, 1 << 62),
    st.integers(0, 1 << 50),
    st.integers(0, 900) | st.just(1 << 30),
)
def test_compiled_records_are_those_of_python(
    body: bytes,
    head: tuple[int, int, bytes, bytes],
    most: int,
    queue_offset: int,
    position: int,
    room: int,
) -> None:
    python, twin = TWINS["encode_body"]
    if twin is None:
        pytest.skip("there is no compiled core")
    arguments = (body, head, MARKER, most, (queue_offset, position, position + room))
    assert twin(*arguments) == python(*arguments)


@pytest.mark.parametrize(
    ("body", "most", "room"),
    [
        (encode_batch([(1, b"body", b"")])[:-1], 100, 1000),
        (encode_batch([(1, b"body", b""), (1, b"more", b"a\x01b\x02")])[:-1], 100, 1000),
        (b"\0" * 16 + b"\xff" * 20, 100, 1000),
        (b"\0" * 20 + b"\xff" * 4, 100, 1000),
        (encode_batch([(1, b"body", b"torn\0")]), 100, 1000),
        (encode_batch([(1, b"body", b"")]), 3, 1000),
        (encode_batch([(1, b"body", b"")]), 4, 50),
    ],
    ids=["no length", "no end", "body length", "properties length", "NUL", "too long", "no room"],
)
@pytest.mark.parametrize("which", [0, 1], ids=["python", "compiled"])
def test_what_needs_a_look_is_left_alone(body: bytes, most: int, room: int, which: int) -> None:
    code = TWINS["encode_body"][which] or TWINS["encode_body"][0]
    common = Draft("T", 1, b"", b"", 0, 0, 0, 7, PLAIN, PLAIN)
    records = BatchRecords(common, 9)
    fine = encode_batch([(1, b"", b"")])
    heads = (1, 2, b"common", b"\x01T")
    assert code(body, heads, MARKER, most, (5, 100, 100 + room)) is None
    assert code(fine + body, heads, MARKER, most, (5, 100, 100 + room)) is None
    assert records.encode_body(fine + body, most, 5, 100, 100 + room) is None
