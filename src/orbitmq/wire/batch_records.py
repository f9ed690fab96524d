"""The records of a batch: one pass over what its messages do not have in common.

Each is byte for byte what :func:`~orbitmq.wire.record.encode_record` makes of the message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from functools import cache
from typing import Final

from orbitmq.errors import RecordError
from orbitmq.wire.record import LAYOUTS, BatchItem, Draft, hosts_index, topic_part

_HOSTS_SHIFT: Final = 4
_FIRST: Final = ">iIIiiqq"  # size, magic, checksum, queue id, flag, queue offset, physical offset


@cache
def _packers(born_host: int, store_host: int) -> tuple[Callable[..., bytes], Callable[..., bytes]]:
    """Those of the whole fixed part, and of what is common in it, for hosts of these sizes."""
    common = struct.Struct(f">iq{born_host}sq{store_host}siq")
    return struct.Struct(f"{_FIRST}{common.size}si").pack, common.pack


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
        self._pack, pack_common = _packers(len(common.born_host), len(common.store_host))
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
        pack, crc32 = self._pack, zlib.crc32
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
