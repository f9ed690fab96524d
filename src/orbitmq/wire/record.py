"""Commit-log records: their layout, how a message becomes one, and how one is checked.

A record is the form a message has on disk and in pull answers alike. Its fixed part has four
layouts, because the born and the store host are 8 (IPv4) or 20 (IPv6) bytes each; body, topic and
properties follow. Magic V2 stands for a topic of more than 127 bytes. The layout is that of
MessageExtEncoder.encode and MessageDecoder.decode; checks follow
CommitLog.checkMessageAndReturnSize. Reading a record's fields lazily is in message_view.py.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec

from orbitmq.errors import InvalidMessageError, RecordError
from orbitmq.wire.compress import COMPRESSED
from orbitmq.wire.ids import host_bytes, tags_code
from orbitmq.wire.properties import MAX_PROPERTIES_BYTES, TAGS, find_property

__all__ = [
    "BATCH_HEAD_SIZE",
    "BLANK_MAGIC",
    "BORN_HOST_V6",
    "COMPRESSED",
    "HEADERS",
    "HOSTS_V6",
    "INNER_BATCH",
    "LAYOUTS",
    "MAGIC_V1",
    "MAGIC_V2",
    "MAX_TOPIC_BYTES",
    "MAX_V1_TOPIC_BYTES",
    "MIN_RECORD_SIZE",
    "MULTI_TAGS",
    "NEED_UNWRAP",
    "QUEUE_UNIT",
    "RECORD_HEADER",
    "STORE_HOST_V6",
    "TRANSACTION_COMMIT",
    "TRANSACTION_MASK",
    "TRANSACTION_PREPARED",
    "TRANSACTION_ROLLBACK",
    "BatchItem",
    "Buffer",
    "Draft",
    "RecordInfo",
    "RecordLayout",
    "RecordParts",
    "batch_probe",
    "check_record",
    "decode_batch",
    "encode_batch",
    "encode_blank",
    "encode_record",
    "host_bytes",
    "hosts_index",
    "is_blank",
    "locate_record",
    "properties_of",
    "record_size",
    "topic_part",
    "transaction_type",
]

Buffer: TypeAlias = bytes | bytearray | memoryview | mmap.mmap
"""What records are read from."""

# Bits of sysFlag (MessageSysFlag). COMPRESSED and the compression type: see compress.py.
MULTI_TAGS: Final = 0x2
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
NEED_UNWRAP: Final = 0x40
INNER_BATCH: Final = 0x80

HOSTS_V6: Final = BORN_HOST_V6 | STORE_HOST_V6
"""The bits of sysFlag that tell the layout."""

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
BLANK_MAGIC: Final = 0xCBD43194
"""Magic of the filler at the end of a commit-log file."""

MAX_V1_TOPIC_BYTES: Final = 127
"""A longer topic, in UTF-8, makes the record a V2 record."""

MAX_TOPIC_BYTES: Final = 32767
"""The topic's length field in a V2 record is a signed 16-bit integer."""


def transaction_type(sys_flag: int) -> int:
    """0 (no transaction), TRANSACTION_PREPARED, TRANSACTION_COMMIT or TRANSACTION_ROLLBACK."""
    return sys_flag & TRANSACTION_MASK


class RecordLayout(NamedTuple):
    """Where each field of a record's fixed part begins, counted from the record's first byte."""

    total_size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp: int
    born_host: int
    store_timestamp: int
    store_host: int
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    body: int


def _layout(born: int, store: int) -> RecordLayout:
    sizes = (0, 4, 4, 4, 4, 4, 8, 8, 4, 8, born, 8, store, 4, 8, 4)
    return RecordLayout(*(sum(sizes[: index + 1]) for index in range(len(sizes))))


def _header(born: int, store: int) -> struct.Struct:
    return struct.Struct(f">iIIiiqqiq{born}sq{store}siqi")


LAYOUTS: Final = (_layout(8, 8), _layout(20, 8), _layout(8, 20), _layout(20, 20))
"""The layouts, to be picked by ``sys_flag >> 4 & 3``."""

RECORD_HEADER: Final = LAYOUTS[0]
"""The layout of a record with IPv4 hosts."""

MIN_RECORD_SIZE: Final = RECORD_HEADER.body + 1 + 2
"""The size of a record without body, topic and properties."""

HEADERS: Final = (_header(8, 8), _header(20, 8), _header(8, 20), _header(20, 20))
"""The fixed parts, to be picked as LAYOUTS are."""
_HOST_SIZES: Final = {8: 0, 20: 1}
_pack_v4 = HEADERS[0].pack
_PROBE: Final = struct.Struct(">iI28xi44xi")  # of IPv4 hosts: size, magic, sysFlag, body length
_INT: Final = struct.Struct(">i")
_SIZE_AND_MAGIC: Final = struct.Struct(">iI")
_LENGTH: Final = struct.Struct(">h")

QUEUE_UNIT: Final = struct.Struct(">qiq")
"""A record's entry in its consume queue: physical offset, size, tags code."""


class Draft(msgspec.Struct, gc=False):
    """A message about to be stored: all that a record holds but its place and time.

    ``properties`` are in stored form (encode_properties); ``tags_code`` does not go into the
    record but into the consume queue beside it. ``born_host`` and ``store_host`` come from
    host_bytes; the IPv6 bits of ``sys_flag`` are set by them when the record is written.
    Timestamps are ms since the epoch.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes
    tags_code: int
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0


def encode_record(
    draft: Draft, queue_offset: int, physical_offset: int, store_timestamp: int
) -> bytes:
    """The record of ``draft`` at its place. Raises RecordError when a field does not fit."""
    body = draft.body
    properties = draft.properties
    born_host = draft.born_host
    store_host = draft.store_host
    sys_flag = draft.sys_flag & ~HOSTS_V6
    body_length = len(body)
    magic, topic = topic_part(draft.topic, len(properties))
    size = RECORD_HEADER.body + body_length + len(topic) + len(properties)
    pack = _pack_v4
    if len(born_host) != 8 or len(store_host) != 8:
        hosts = hosts_index(born_host, store_host)
        sys_flag |= hosts << 4
        size += LAYOUTS[hosts].body - RECORD_HEADER.body
        pack = HEADERS[hosts].pack
    try:
        header = pack(
            size,
            magic,
            zlib.crc32(body) & 0x7FFFFFFF,
            draft.queue_id,
            draft.flag,
            queue_offset,
            physical_offset,
            sys_flag,
            draft.born_timestamp,
            born_host,
            store_timestamp,
            store_host,
            draft.reconsume_times,
            draft.prepared_transaction_offset,
            body_length,
        )
    except struct.error as error:
        raise RecordError(f"a field of the message does not fit its record: {error}") from error
    return b"".join((header, body, topic, properties))


def record_size(draft: Draft) -> int:
    """The number of bytes encode_record will make of ``draft``; raises what it would raise."""
    hosts = hosts_index(draft.born_host, draft.store_host)
    _, topic = topic_part(draft.topic, len(draft.properties))
    return LAYOUTS[hosts].body + len(draft.body) + len(topic) + len(draft.properties)


def hosts_index(born_host: bytes, store_host: bytes) -> int:
    """Which of LAYOUTS hosts of these sizes make. Raises RecordError for others."""
    try:
        return _HOST_SIZES[len(born_host)] | _HOST_SIZES[len(store_host)] << 1
    except KeyError:
        sizes = f"{len(born_host)} and {len(store_host)}"
        raise RecordError(f"hosts take 8 or 20 bytes, not {sizes}") from None


@lru_cache(maxsize=4096)
def topic_part(topic: str, properties_length: int) -> tuple[int, bytes]:
    """The magic for ``topic``, and what stands between body and properties. Raises RecordError."""
    try:
        name = topic.encode()
    except UnicodeEncodeError as error:
        raise RecordError(f"the topic is not valid Unicode: {error}") from error
    if len(name) > MAX_TOPIC_BYTES or properties_length > MAX_PROPERTIES_BYTES:
        raise RecordError(
            f"topic ({len(name)} bytes) or properties ({properties_length} bytes) take more "
            f"than {MAX_PROPERTIES_BYTES} bytes"
        )
    properties = _LENGTH.pack(properties_length)
    if len(name) <= MAX_V1_TOPIC_BYTES:
        return MAGIC_V1, bytes((len(name),)) + name + properties
    return MAGIC_V2, _LENGTH.pack(len(name)) + name + properties


def encode_blank(size: int) -> bytes:
    """The filler's first 8 bytes, for the last ``size`` (>= 8) bytes of a commit-log file."""
    return _SIZE_AND_MAGIC.pack(size, BLANK_MAGIC)


def is_blank(buffer: Buffer, position: int, limit: int) -> bool:
    """Whether the filler that ends a commit-log file begins at ``position``."""
    if limit - position < _SIZE_AND_MAGIC.size:
        return False
    return bool(_SIZE_AND_MAGIC.unpack_from(buffer, position)[1] == BLANK_MAGIC)


class RecordParts(msgspec.Struct, gc=False):
    """Where the parts of one record lie in its buffer; ``end`` is where the next record begins."""

    sys_flag: int
    body: int
    body_end: int
    topic: int
    topic_end: int
    properties: int
    end: int


def locate_record(buffer: Buffer, position: int, limit: int) -> RecordParts:
    """Find the parts of the record at ``position``; nothing at or after ``limit`` is read.

    Raises RecordError, saying what is wrong, unless the lengths in the record agree with each
    other and with its size.
    """
    left = limit - position
    if left < MIN_RECORD_SIZE:
        raise _not_a_record(position, f"only {left} bytes are left")
    size, magic, sys_flag, body_length = _PROBE.unpack_from(buffer, position)
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise _not_a_record(position, f"magic {magic:#x}")
    if not MIN_RECORD_SIZE <= size <= left:
        raise _not_a_record(position, f"size {size}, but {left} bytes are left")
    end = position + size
    topic_prefix = 1 if magic == MAGIC_V1 else 2
    body = position + RECORD_HEADER.body
    if sys_flag & HOSTS_V6:
        body = position + LAYOUTS[sys_flag >> 4 & 3].body
        body_length = _INT.unpack_from(buffer, body - 4)[0] if body <= end else -1
    body_end = body + body_length
    topic = body_end + topic_prefix
    if body_length < 0 or topic + 2 > end:
        raise _not_a_record(position, f"size {size} does not hold a body of {body_length} bytes")
    topic_end = topic + int.from_bytes(buffer[body_end:topic], "big", signed=True)
    if not topic <= topic_end <= end - 2:
        raise _not_a_record(position, f"a topic of {topic_end - topic} bytes")
    properties = topic_end + 2
    (properties_length,) = _LENGTH.unpack_from(buffer, topic_end)
    if properties_length < 0 or properties + properties_length != end:
        raise _not_a_record(
            position, f"its parts take {properties + properties_length - position} of {size} bytes"
        )
    return RecordParts(sys_flag, body, body_end, topic, topic_end, properties, end)


def _not_a_record(position: int, reason: str) -> RecordError:
    return RecordError(f"no record at byte {position}: {reason}")


def properties_of(record: Buffer) -> bytes:
    """The properties in a record, in stored form. Raises RecordError."""
    parts = locate_record(record, 0, len(record))
    return bytes(record[parts.properties : parts.end])


class RecordInfo(msgspec.Struct, gc=False):
    """What recovery and dispatch need of a stored record (Java's DispatchRequest)."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    store_timestamp: int
    prepared_transaction_offset: int
    properties: bytes

    @property
    def tags_code(self) -> int:
        """The code of the message's tags; a delayed message's entry holds a time instead."""
        return tags_code(find_property(self.properties, TAGS))


def check_record(
    buffer: Buffer, position: int, limit: int, verify_crc: bool = True
) -> RecordInfo | None:
    """The record at ``position``, or None when there is no whole and sound one before ``limit``.

    None also stands for the filler at the end of a file, see is_blank. ``verify_crc`` checks the
    body (an empty one has no checksum). As CommitLog.checkMessageAndReturnSize; Java's
    ``DUP_INFO`` and ``__CRC32#`` checks, both off by default, are not made.
    """
    try:
        parts = locate_record(buffer, position, limit)
    except RecordError:
        return None
    header = HEADERS[parts.sys_flag >> 4 & 3].unpack_from(buffer, position)
    _, _, body_crc, queue_id, _, queue_offset, physical_offset, sys_flag, _, _ = header[:10]
    store_timestamp, _, _, prepared_transaction_offset, body_length = header[10:]
    if (
        verify_crc
        and body_length
        and zlib.crc32(buffer[parts.body : parts.body_end]) & 0x7FFFFFFF != body_crc
    ):
        return None
    return RecordInfo(
        parts.end - position,
        str(buffer[parts.topic : parts.topic_end], "utf-8", "replace"),
        queue_id,
        queue_offset,
        physical_offset,
        sys_flag,
        store_timestamp,
        prepared_transaction_offset,
        bytes(buffer[parts.properties : parts.end]),
    )


BatchItem: TypeAlias = tuple[int, bytes, bytes]
"""One message within the body of a batch: its flag, body, and properties in stored form."""

_BATCH_HEAD: Final = struct.Struct(">iIIii")
BATCH_HEAD_SIZE: Final = _BATCH_HEAD.size
"""What stands before the body of a message within a batch, bytes."""

batch_probe: Final = struct.Struct(">12xii").unpack_from
"""Reads of that the flag and the length of the body."""


def encode_batch(messages: Iterable[tuple[int, bytes, bytes]]) -> bytes:
    """The body of a batch: for each message its flag, body and properties in stored form.

    Magic and checksum are 0, the broker makes its own (MessageDecoder.encodeMessages). Raises
    InvalidMessageError when a field does not fit.
    """
    parts: list[bytes] = []
    for flag, body, properties in messages:
        size = _BATCH_HEAD.size + len(body) + 2 + len(properties)
        try:
            parts += (
                _BATCH_HEAD.pack(size, 0, 0, flag, len(body)),
                body,
                _LENGTH.pack(len(properties)),
                properties,
            )
        except struct.error as error:
            raise InvalidMessageError(
                f"flag {flag} or properties of {len(properties)} bytes do not fit: {error}"
            ) from error
    return b"".join(parts)


def decode_batch(body: bytes | memoryview) -> list[BatchItem]:
    """The messages of a batch's ``body``; size, magic and checksum in it are not looked at.

    As MessageDecoder.decodeMessages. Raises RecordError when the body ends within a message.
    """
    data = bytes(body)
    items: list[BatchItem] = []
    probe, length_at, head = batch_probe, _LENGTH.unpack_from, _BATCH_HEAD.size
    position, end = 0, len(data)
    try:
        while position < end:
            flag, body_length = probe(data, position)
            start = position + head
            stop = start + body_length
            (properties_length,) = length_at(data, stop)
            position = stop + 2 + properties_length
            if body_length < 0 or properties_length < 0 or position > end:
                raise RecordError(
                    f"message {len(items)} of the batch has impossible lengths: "
                    f"body {body_length}, properties {properties_length}"
                )
            items.append((flag, data[start:stop], data[stop + 2 : position]))
    except struct.error as error:
        raise RecordError(f"the batch ends within its message {len(items)}") from error
    return items
