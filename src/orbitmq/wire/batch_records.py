"""The records of a batch: one pass over what its messages do not have in common.

Most batches go from their body to records at once (encode_body), for which there may be compiled
code (orbitmq/compiled.py). Each record is byte for byte what
:func:`~orbitmq.wire.record.encode_record` makes of the message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from orbitmq.compiled import compiled
from orbitmq.errors import RecordError
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import TAGS, find_property
from orbitmq.wire.record import (
    BATCH_HEAD_SIZE,
    LAYOUTS,
    QUEUE_UNIT,
    BatchItem,
    Draft,
    batch_probe,
    hosts_index,
    topic_part,
)

_HOSTS_SHIFT: Final = 4
_LENGTH: Final = struct.Struct(">h")
_TAGS_MARKER: Final = f"\x02{TAGS}\x01".encode()
_NUL: Final = b"\0"
_FIRST: Final = ">iIIiiqq"  # size, magic, checksum, queue id, flag, queue offset, physical offset


@cache
def _common_packer(born_host: int, store_host: int) -> Callable[..., bytes]:
    """That of what is common in the fixed part, for hosts of these sizes."""
    return struct.Struct(f">iq{born_host}sq{store_host}siq").pack


@cache
def _packer(common: int) -> Callable[..., bytes]:
    """That of the whole fixed part, of which so many bytes are common."""
    return struct.Struct(f"{_FIRST}{common}si").pack


class BatchRecords:
    """Encodes messages that have all of ``common`` but its flag, body and properties.

    Raises RecordError when a field of it does not fit.
    """

    def __init__(self, common: Draft, store_timestamp: int) -> None:
        hosts = hosts_index(common.born_host, common.store_host)
        self._magic, topic = topic_part(common.topic, 0)
        self._topic = common.topic
        self._queue_id = common.queue_id
        self._beside = LAYOUTS[hosts].body + len(topic)
        pack_common = _common_packer(len(common.born_host), len(common.store_host))
        try:
            self._common = pack_common(
                common.sys_flag & ~(3 << _HOSTS_SHIFT) | hosts << _HOSTS_SHIFT,
                common.born_timestamp,
                common.born_host,
                store_timestamp,
                common.store_host,
                common.reconsume_times,
                common.prepared_transaction_offset,
            )
        except struct.error as error:
            raise RecordError(f"a field of the batch does not fit its records: {error}") from error

    def encode_body(
        self, body: bytes, most: int, queue_offset: int, position: int, limit: int
    ) -> tuple[bytes, bytes] | None:
        """See the function of this name."""
        _, topic = topic_part(self._topic, 0)
        heads = self._magic, self._queue_id, self._common, topic[: -_LENGTH.size]
        return encode_body(body, heads, _TAGS_MARKER, most, (queue_offset, position, limit))

    def sizes(self, items: Sequence[BatchItem]) -> list[int]:
        """How many bytes each record takes."""
        beside = self._beside
        return [beside + len(body) + len(properties) for _, body, properties in items]

    def encode(
        self,
        items: Sequence[BatchItem],
        queue_offsets: Sequence[int],
        physical_offsets: Sequence[int],
        sizes: Sequence[int],
    ) -> list[bytes]:
        """The records, in pieces. Raises RecordError when a field does not fit."""
        pack, crc32 = _packer(len(self._common)), zlib.crc32
        magic, queue_id, topic, common = self._magic, self._queue_id, self._topic, self._common
        pieces: list[bytes] = []
        length, separator = -1, b""  # of properties, and what stands before those of this length
        try:
            for (flag, body, properties), queue_offset, physical_offset, size in zip(
                items, queue_offsets, physical_offsets, sizes, strict=True
            ):
                checksum = crc32(body) & 0x7FFFFFFF
                if len(properties) != length:
                    length = len(properties)
                    _, separator = topic_part(topic, length)
                pieces += (
                    pack(
                        size, magic, checksum, queue_id, flag, queue_offset, physical_offset,
                        common, len(body),
                    ),
                    body,
                    separator,
                    properties,
                )  # fmt: skip
        except struct.error as error:
            raise RecordError(f"a field of the batch does not fit its records: {error}") from error
        return pieces


@compiled
def encode_body(
    body: bytes,
    heads: tuple[int, int, bytes, bytes],
    tags_marker: bytes,
    most: int,
    place: tuple[int, int, int],
) -> tuple[bytes, bytes] | None:
    """The records of a batch's ``body``, and their entries in a consume queue.

    ``heads`` are magic, queue id, the common bytes and the topic behind its length; ``place`` are
    the first one's queue and physical offset, and the limit. None where a look at each message is
    due: when one is not whole, has a body of more than ``most`` bytes or properties that end in
    NUL, or its record would end behind the limit.
    """
    (magic, queue_id, common, topic), (queue_offset, position, limit) = heads, place
    pack, pack_unit, crc32 = _packer(len(common)), QUEUE_UNIT.pack, zlib.crc32
    probe, head, length_at, short = batch_probe, BATCH_HEAD_SIZE, _LENGTH.unpack_from, _LENGTH.size
    tags = tags_marker[1:-1].decode() if tags_marker[1:] in body else ""
    pieces: list[bytes] = []
    units: list[bytes] = []
    beside = len(pack(0, 0, 0, 0, 0, 0, 0, common, 0)) + len(topic)
    at, end, code = 0, len(body), 0
    try:
        while at < end:
            flag, body_length = probe(body, at)
            start = at + head
            stop = start + body_length
            if not 0 <= body_length <= most:
                return None
            (properties_length,) = length_at(body, stop)
            at = stop + short + properties_length
            if properties_length < 0 or at > end:
                return None
            content, properties = body[start:stop], body[stop + short : at]
            size = beside + at - start
            if properties.endswith(_NUL) or position + size > limit:
                return None
            pieces += (
                pack(
                    size, magic, crc32(content) & 0x7FFFFFFF, queue_id, flag, queue_offset,
                    position, common, body_length,
                ),
                content,
                topic,
                body[stop:at],
            )  # fmt: skip
            if tags:
                code = tags_code(find_property(properties, tags))
            units.append(pack_unit(position, size, code))
            position += size
            queue_offset += 1
    except struct.error:
        return None
    return b"".join(pieces), b"".join(units)
