"""Reading the commit log piece by piece while it is written, past what is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable

from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.damage import next_record
from orbitmq.store.log_records import longer_record
from orbitmq.store.segment import Segment
from orbitmq.wire.record import is_blank

logger = logging.getLogger("orbitmq.store")


def walk_piece(
    log: CommitLog, position: int, length: int, take: Callable[[bytes, int], int]
) -> int:
    """Give ``take`` a piece of the log, from ``position`` on, and say where the next one begins.

    ``take`` gets the bytes and their place, and says how many of them are sound records. They are
    ``length``, at least 8, or a whole record where the first is longer. What is not a record is
    passed over, and reported. If the log's first files were deleted, it goes on with what there is.
    """
    position = max(position, log.min_offset)
    end = log.end
    segment = log.find(position) if position < end else None
    if segment is None:
        return position
    piece = segment.read(position, min(length, end - position))
    taken = take(piece, position)
    if not taken and (longer := longer_record(piece, min(end, segment.end) - position)):
        taken = take(segment.read(position, longer), position)
    return position + taken if taken else _behind_unsound(log, segment, position)


def _behind_unsound(log: CommitLog, segment: Segment, position: int) -> int:
    """Where to go on when there is no record at ``position``: the filler is there, or damage."""
    rest = segment.read(position, END_BLANK)
    if not rest or is_blank(rest, 0, len(rest)):
        return segment.end
    sound = next_record(log, position + 1)
    going_on = log.end if sound is None else sound
    logger.warning("%s is damaged from physical offset %d to %d", segment.path, position, going_on)
    return going_on
