"""Walking the commit log's files record by record, for those who must know what is sound."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.store.segment import Segment
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, RecordInfo, check_record

_PIECE: Final = 1 << 20


def records(segment: Segment, start: int) -> Iterator[RecordInfo]:
    """The records from ``start`` on, until the first that is not sound or not at its place.

    Read in pieces, and not through the mapping: touching a hole in it takes memory on tmpfs, and
    ends the process when there is none.
    """
    position, length = start, _PIECE
    while buffer := segment.read(position, length):
        place = 0
        while (info := check_record(buffer, place, len(buffer))) is not None:
            if info.physical_offset != position + place or "\0" in info.topic:
                return
            yield info
            place += info.size
        position += place
        length = _PIECE if place else longer_record(buffer, segment.end - position)


def longer_record(buffer: bytes, room: int) -> int:
    """The length of the record that ``buffer`` is only a part of; 0 when it is not one."""
    length = int.from_bytes(buffer[:4], "big")
    is_record = int.from_bytes(buffer[4:8], "big") in (MAGIC_V1, MAGIC_V2)
    return length if is_record and len(buffer) < length <= room else 0
