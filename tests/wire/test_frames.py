"""The frame decoder yields the same commands however the bytes are cut, within its bounds."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FrameError, WireError
from orbitmq.wire.command import encode_request
from orbitmq.wire.frames import FrameDecoder

bodies = st.lists(st.binary(max_size=400) | st.just(bytes(3000)), min_size=1, max_size=12)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@given(
    bodies=bodies,
    cuts=st.lists(st.integers(0, 1 << 20), max_size=20),
    first_size=st.sampled_from([16, 100, 512]),
)
def test_any_cut_of_the_stream_gives_the_same_commands(
    bodies: list[bytes], cuts: list[int], first_size: int
) -> None:
    stream = b"".join(encode_request(10, n, {"n": str(n)}, body) for n, body in enumerate(bodies))
    decoder = FrameDecoder(buffer_size=512, first_size=first_size)
    got = [command for chunk in chunks(stream, cuts) for command in decoder.feed(chunk)]
    assert [(command.opaque, bytes(command.body)) for command in got] == list(enumerate(bodies))
    assert decoder.pending == 0


def test_the_buffer_is_small_until_much_is_received() -> None:
    decoder = FrameDecoder()
    list(decoder.feed(encode_request(10, 1, None, bytes(4000)) * 8))
    assert len(decoder.get_buffer()) <= 32 * 1024
    list(decoder.feed(encode_request(10, 1, None, bytes(4000)) * 80))
    assert len(decoder.get_buffer()) == 256 * 1024
    list(decoder.feed(encode_request(10, 1, None, bytes(1 << 20)) + b"123"))
    assert len(decoder.get_buffer()) > 128 * 1024


def test_commands_stay_valid_when_the_buffer_is_used_again() -> None:
    decoder = FrameDecoder(buffer_size=512)
    (first,) = decoder.feed(encode_request(10, 1, {"k": "first"}, b"first body"))
    (large,) = decoder.feed(encode_request(10, 2, {"k": "large"}, b"L" * 5000))
    list(decoder.feed(encode_request(10, 3, {"k": "other"}, b"other body") * 20))
    assert (first.body, first.ext_fields) == (b"first body", {"k": "first"})
    assert (bytes(large.body), large.ext_fields) == (b"L" * 5000, {"k": "large"})


@pytest.mark.parametrize("length", [0, 3, 16 * 1024 * 1024 - 3, 0xFFFFFFFF])
def test_an_impossible_length_is_refused_before_anything_is_held(length: int) -> None:
    decoder = FrameDecoder()
    with pytest.raises(FrameError, match=str(length + 4)):
        list(decoder.feed(length.to_bytes(4, "big") + bytes(4)))


def test_a_frame_at_the_limit_passes() -> None:
    frame = encode_request(10, 1, None, bytes(1000))
    (command,) = FrameDecoder(limit=len(frame)).feed(frame)
    assert len(command.body) == 1000
    with pytest.raises(FrameError):
        list(FrameDecoder(limit=len(frame) - 1).feed(frame))


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(FrameError, match="header"):
        list(FrameDecoder().feed(b"\x00\x00\x00\x08\x00\x00\x00\x09abcd"))


@given(data=st.binary(max_size=600))
def test_garbage_raises_only_wire_errors_and_is_not_hoarded(data: bytes) -> None:
    decoder = FrameDecoder(limit=4096, buffer_size=128)
    with suppress(WireError):
        list(decoder.feed(data))
    assert decoder.pending <= 4096


def test_commands_before_the_garbage_are_delivered() -> None:
    commands = FrameDecoder().feed(encode_request(10, 5) + b"\xff" * 16)
    assert next(commands).opaque == 5
    with pytest.raises(FrameError):
        next(commands)


def test_an_error_ends_the_stream_and_what_is_held_of_it() -> None:
    decoder = FrameDecoder(buffer_size=512)
    stream = encode_request(10, 5) + encode_request(10, 6) + b"\xff" * 16 + encode_request(10, 7)
    decoder.get_buffer()[: len(stream)] = stream
    assert [command.opaque for command in decoder.received(len(stream))] == [5, 6]
    assert isinstance(decoder.error, FrameError)
    for _ in range(3):  # whatever comes until the connection is closed
        room = len(decoder.get_buffer())
        assert room == 512
        assert not decoder.received(room)
        assert (decoder.pending, decoder.unfinished) == (0, 0)


def held_by(decoder: FrameDecoder, data: bytes) -> int:
    """The bytes that a decoder takes more of when ``data`` has come."""
    tracemalloc.start()
    try:
        assert not list(decoder.feed(data))
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def test_memory_is_taken_for_what_has_come_and_not_for_what_is_announced() -> None:
    limit = 16 * 1024 * 1024
    announced = (limit - 4).to_bytes(4, "big") + (100).to_bytes(4, "big")
    decoder = FrameDecoder(limit)
    assert held_by(decoder, announced) < 64 * 1024
    assert held_by(decoder, bytes(3 << 20)) < 5 << 20
    assert decoder.pending == 8 + (3 << 20)


def test_a_connection_at_rest_gives_its_buffer_back() -> None:
    decoder = FrameDecoder()
    frame = encode_request(10, 1, None, bytes(1 << 20))
    assert len(list(decoder.feed(frame))) == 1
    assert not list(decoder.feed(frame[:100]))
    decoder.shrink()  # not while part of a frame is there
    assert len(decoder.get_buffer()) > 128 * 1024
    assert len(list(decoder.feed(frame[100:]))) == 1
    decoder.shrink()
    assert len(decoder.get_buffer()) == 8 * 1024
    assert len(list(decoder.feed(frame))) == 1
