"""Walking the commit log's files record by record, for those who must know what is sound."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Final

from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.segment import Segment
from orbitmq.wire.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEADER,
    RecordInfo,
    check_record,
    is_blank,
)

logger = logging.getLogger("orbitmq.store")

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
        length = _PIECE if place else _longer(buffer, segment.end - position)


def _longer(buffer: bytes, room: int) -> int:
    """The length of the record that ``buffer`` is only a part of; 0 when it is not one."""
    length = int.from_bytes(buffer[:4], "big")
    is_record = int.from_bytes(buffer[4:8], "big") in (MAGIC_V1, MAGIC_V2)
    return length if is_record and len(buffer) < length <= room else 0


def records_between(log: CommitLog, start: int, end: Callable[[], int]) -> Iterator[RecordInfo]:
    """The sound records of a log from ``start`` on that begin before what ``end`` says.

    Where something is not a record it is reported, and reading goes on at the next one that is. If
    the log's first files were deleted meanwhile, it goes on with what there is.
    """
    position = start
    while position < (limit := end()):
        position = max(position, log.min_offset)
        segment = log.find(position)
        if segment is None:
            return
        for info in records(segment, position):
            if info.physical_offset >= limit:
                break
            yield info
            position = info.physical_offset + info.size
        if position < min(limit, segment.end):
            position = _behind_unsound(segment, position)


def _behind_unsound(segment: Segment, position: int) -> int:
    """Where to go on when there is no record at ``position``: the filler is there, or damage."""
    rest = segment.read(position, END_BLANK)
    if not rest or is_blank(rest, 0, len(rest)):
        return segment.end
    sound = next_sound(segment, position)
    logger.error(
        "%s is damaged at physical offset %d: the next sound message is at %d",
        segment.path, position, segment.end if sound is None else sound,
    )  # fmt: skip
    return segment.end if sound is None else sound


def next_sound(segment: Segment, start: int) -> int | None:
    """Where the first sound record of a file after ``start`` begins; None: there is none."""
    first = []
    for magic in (MAGIC_V1, MAGIC_V2):
        for found in segment.find_bytes(magic.to_bytes(4, "big"), start):
            offset = found - RECORD_HEADER.magic
            if offset > start and next(records(segment, offset), None) is not None:
                first.append(offset)
                break
    return min(first, default=None)
