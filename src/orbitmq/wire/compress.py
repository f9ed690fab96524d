"""Compressed message bodies: which compression a record names, and both directions of it.

ZLIB is always there. LZ4 (frame format) and ZSTD, which RocketMQ 5 producers may choose, need an
optional package each. The type stands in bits 8-10 of a message's ``sys_flag``, see MessageSysFlag,
CompressionType and the Compressor classes of Java.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from importlib import import_module
from typing import Any, Final

from orbitmq.errors import ConfigError, RecordError

COMPRESSED: Final = 0x1
"""The bit of ``sys_flag`` that says the body is compressed."""

MAX_DECOMPRESSED_BYTES: Final = 64 * 1024 * 1024
"""How large a body may become unless a caller says otherwise; four times the largest frame."""

_TYPE_SHIFT: Final = 8
_TYPE_MASK: Final = 0x7
_ZSTD_STEP: Final = 1024


class CompressionType(IntEnum):
    """The compressions of RocketMQ. Brokers and clients before 5.0 know ZLIB only."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3

    @property
    def flag(self) -> int:
        """What a message compressed so has in its ``sys_flag``."""
        return COMPRESSED | self << _TYPE_SHIFT


_LEVELS: Final = {CompressionType.ZLIB: range(10), CompressionType.ZSTD: range(1, 23)}


def compression_type(sys_flag: int) -> CompressionType | None:
    """How the body of a message with ``sys_flag`` is compressed; None when it is not.

    Type 0 is ZLIB too, from before there was a choice. Raises RecordError for an unknown type.
    """
    if not sys_flag & COMPRESSED:
        return None
    value = sys_flag >> _TYPE_SHIFT & _TYPE_MASK
    try:
        return CompressionType(value or CompressionType.ZLIB)
    except ValueError as error:
        raise RecordError(f"unknown compression type {value} in sysFlag {sys_flag:#x}") from error


def compress(
    body: bytes, level: int = 5, compression: CompressionType = CompressionType.ZLIB
) -> bytes:
    """``body`` compressed; ``level`` counts for ZLIB (0-9) and ZSTD (1-22).

    The producer adds ``compression.flag`` to the message's ``sys_flag``. Raises ConfigError when
    the package for ``compression`` is not installed.
    """
    if compression is CompressionType.ZLIB:
        return zlib.compress(body, level)
    try:
        codec = _codec(compression)
    except ImportError as error:
        raise ConfigError("compression", compression.name, str(error)) from error
    if compression is CompressionType.LZ4:
        return bytes(codec.compress(body))
    return bytes(codec.ZstdCompressor(level=level).compress(body))


def check_compression(compression: CompressionType, level: int) -> None:
    """Raise ConfigError where nothing can be compressed so.

    That is a ``level`` that ZLIB or ZSTD does not have (LZ4 takes none, as in Java), or a package
    that is not installed.
    """
    levels = _LEVELS.get(compression)
    if levels is not None and level not in levels:
        raise ConfigError(
            "compress_level",
            level,
            f"{levels.start} to {levels.stop - 1} for compress_type={compression.name}",
        )
    if compression is not CompressionType.ZLIB:
        try:
            _codec(compression)
        except ImportError as error:
            raise ConfigError("compress_type", compression.name, str(error)) from error


def decompress(body: bytes, sys_flag: int, limit: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The body as its producer had it; ``body`` itself when ``sys_flag`` says nothing was done.

    Raises RecordError when the bytes are damaged or cut short, when the result would take more
    than ``limit`` bytes, or when the package for the compression is not installed.
    """
    compression = compression_type(sys_flag)
    if compression is None or not body:
        return body
    try:
        if compression is CompressionType.ZLIB:
            return _inflate(body, limit)
        codec = _codec(compression)
        if compression is CompressionType.LZ4:
            return _decompress_lz4(codec, body, limit)
        return _decompress_zstd(codec, body, limit)
    except ImportError as error:
        raise RecordError(f"the body is compressed with {compression.name}: {error}") from error


def _inflate(body: bytes, limit: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        plain = inflater.decompress(body, limit + 1)
    except zlib.error as error:
        raise RecordError(f"the ZLIB body is damaged: {error}") from error
    _check_size(len(plain), limit)
    if not inflater.eof:
        raise RecordError("the ZLIB body is cut short")
    return plain


def _decompress_lz4(codec: Any, body: bytes, limit: int) -> bytes:
    plain = bytearray()
    while body:  # one frame follows another where a producer wrote more than one
        decoder = codec.LZ4FrameDecompressor()
        try:
            plain += decoder.decompress(body, max_length=limit + 1 - len(plain))
        except RuntimeError as error:
            raise RecordError(f"the LZ4 body is damaged: {error}") from error
        _check_size(len(plain), limit)
        if not decoder.eof:
            raise RecordError("the LZ4 body is cut short")
        body = decoder.unused_data or b""
    return bytes(plain)


def _decompress_zstd(codec: Any, body: bytes, limit: int) -> bytes:
    # In small steps, because a step's result cannot be bounded: 4 bytes may stand for 128 KiB.
    plain = bytearray()
    context = codec.ZstdDecompressor()
    decoder = context.decompressobj()
    for start in range(0, len(body), _ZSTD_STEP):
        piece = body[start : start + _ZSTD_STEP]
        while piece:
            if decoder.eof:
                decoder = context.decompressobj()
            try:
                plain += decoder.decompress(piece)
            except codec.ZstdError as error:
                raise RecordError(f"the ZSTD body is damaged: {error}") from error
            _check_size(len(plain), limit)
            piece = decoder.unused_data if decoder.eof else b""
    if not decoder.eof:
        raise RecordError("the ZSTD body is cut short")
    return bytes(plain)


def _check_size(size: int, limit: int) -> None:
    if size > limit:
        raise RecordError(f"the decompressed body takes more than {limit} bytes")


def _codec(compression: CompressionType) -> Any:
    module, extra = {
        CompressionType.LZ4: ("lz4.frame", "lz4"),
        CompressionType.ZSTD: ("zstandard", "zstd"),
    }[compression]
    try:
        return import_module(module)
    except ImportError as error:
        message = f"needs the extra package: pip install 'orbitmq[{extra}]'"
        raise ImportError(message) from error
