from __future__ import annotations

import sys
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigError, RecordError
from orbitmq.wire.compress import (
    COMPRESSED,
    CompressionType,
    compress,
    compression_type,
    decompress,
)

PACKAGES = {CompressionType.LZ4: "lz4.frame", CompressionType.ZSTD: "zstandard"}
EXTRAS = {CompressionType.LZ4: "lz4", CompressionType.ZSTD: "zstd"}


@pytest.fixture(params=list(CompressionType), ids=lambda each: each.name)
def compression(request: pytest.FixtureRequest) -> CompressionType:
    chosen: CompressionType = request.param
    if chosen in PACKAGES:
        pytest.importorskip(PACKAGES[chosen])
    return chosen


def test_type_is_read_from_the_flag() -> None:
    assert compression_type(0) is None
    assert compression_type(0x300) is None
    assert compression_type(COMPRESSED) is CompressionType.ZLIB
    assert compression_type(0x101) is CompressionType.LZ4
    assert compression_type(0x201 | 0xFC) is CompressionType.ZSTD
    assert compression_type(0x301) is CompressionType.ZLIB
    with pytest.raises(RecordError, match="unknown compression type 5"):
        compression_type(0x501)


def test_flag_and_type_are_inverse() -> None:
    for each in CompressionType:
        assert compression_type(each.flag) is each


def test_what_is_not_compressed_stays_the_same_object() -> None:
    body = b"body"
    assert decompress(body, 0) is body
    assert decompress(b"", COMPRESSED) == b""


@given(st.binary(max_size=2000), st.integers(0, 9))
def test_zlib_round_trip(body: bytes, level: int) -> None:
    packed = compress(body, level)
    assert decompress(packed, COMPRESSED) == body
    assert decompress(packed, CompressionType.ZLIB.flag) == body


@pytest.mark.parametrize("size", [0, 1, 1000, 300_000])
def test_round_trip(compression: CompressionType, size: int) -> None:
    body = (b"0123456789" * (size // 10 + 1))[:size]
    packed = compress(body, compression=compression)
    assert decompress(packed, compression.flag) == body
    assert decompress(packed, compression.flag, limit=size) == body


def test_a_bomb_is_refused(compression: CompressionType) -> None:
    packed = compress(bytes(20_000_000), compression=compression)
    with pytest.raises(RecordError, match="more than 1000000 bytes"):
        decompress(packed, compression.flag, limit=1_000_000)


def test_the_limit_is_exact(compression: CompressionType) -> None:
    packed = compress(bytes(1001), compression=compression)
    with pytest.raises(RecordError, match="more than 1000 bytes"):
        decompress(packed, compression.flag, limit=1000)


def test_every_truncation_is_refused(compression: CompressionType) -> None:
    packed = compress(b"some text, some more text", compression=compression)
    for length in range(1, len(packed)):
        with pytest.raises(RecordError):
            decompress(packed[:length], compression.flag)


@given(data=st.data())
def test_damage_raises_record_error_only(data: st.DataObject) -> None:
    available = [each for each in CompressionType if _installed(each)]
    compression = data.draw(st.sampled_from(available))
    packed = bytearray(compress(b"some text, some more text" * 3, compression=compression))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        decompress(bytes(packed), compression.flag, limit=100_000)
    except RecordError:
        return


@given(st.binary(min_size=1), st.integers(0, 7))
def test_garbage_raises_record_error_only(body: bytes, kind: int) -> None:
    try:
        decompress(body, COMPRESSED | kind << 8, limit=100_000)
    except RecordError:
        return


@pytest.mark.parametrize("kind", list(PACKAGES), ids=lambda each: each.name)
def test_frames_in_a_row_are_read_as_java_reads_them(kind: CompressionType) -> None:
    pytest.importorskip(PACKAGES[kind])
    packed = compress(b"one, ", compression=kind) + compress(b"two", compression=kind)
    assert decompress(packed, kind.flag) == b"one, two"
    with pytest.raises(RecordError, match="more than 6 bytes"):
        decompress(packed, kind.flag, limit=6)


def test_bytes_after_a_zlib_stream_are_ignored_as_in_java() -> None:
    assert decompress(zlib.compress(b"text") + b"more", COMPRESSED) == b"text"


@pytest.mark.parametrize("kind", list(PACKAGES), ids=lambda each: each.name)
def test_a_missing_package_is_named(kind: CompressionType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, PACKAGES[kind], None)
    with pytest.raises(RecordError, match=rf"{kind.name}.*orbitmq\[{EXTRAS[kind]}\]"):
        decompress(b"body", kind.flag)
    with pytest.raises(ConfigError, match=rf"orbitmq\[{EXTRAS[kind]}\]"):
        compress(b"body", compression=kind)


def _installed(compression: CompressionType) -> bool:
    try:
        compress(b"", compression=compression)
    except ConfigError:
        return False
    return True
