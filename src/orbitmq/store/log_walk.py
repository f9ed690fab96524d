"""Reading the commit log from one place to another while it is written, past what is damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.damage import next_record
from orbitmq.store.log_records import records
from orbitmq.store.segment import Segment
from orbitmq.wire.record import RecordInfo, is_blank

logger = logging.getLogger("orbitmq.store")


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
            position = _behind_unsound(log, segment, position)


def _behind_unsound(log: CommitLog, segment: Segment, position: int) -> int:
    """Where to go on when there is no record at ``position``: the filler is there, or damage."""
    rest = segment.read(position, END_BLANK)
    if not rest or is_blank(rest, 0, len(rest)):
        return segment.end
    sound = next_record(log, position + 1)
    going_on = log.end if sound is None else sound
    logger.warning("%s is damaged from physical offset %d to %d", segment.path, position, going_on)
    return going_on
