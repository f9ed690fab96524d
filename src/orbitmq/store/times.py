"""When messages were stored, and the queue offsets that times stand for."""

from __future__ import annotations

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, ConsumeQueue, first_index


def stored_at(log: CommitLog, queue: ConsumeQueue, offset: int) -> int:
    """When the message at a queue offset was stored, ms; -1 when it is not there."""
    unit = queue.unit(offset)
    if unit is None:
        return -1
    is_filler = unit.size == FILLER_SIZE  # it lies just before the record that comes next
    return log.store_timestamp_at(unit.physical_offset + is_filler)


def offset_by_timestamp(
    log: CommitLog, queue: ConsumeQueue, timestamp: int, *, upper: bool = False
) -> int:
    """The queue offset that store time ``timestamp`` (ms) stands for.

    Without ``upper`` the first message stored at or after it, ``max_offset`` when there is none;
    with ``upper`` the last one stored at or before it, ``min_offset`` when there is none. See
    ConsumeQueue.getOffsetInQueueByTime and BoundaryType.
    """
    low, high = queue.min_offset, queue.max_offset

    def is_behind(offset: int) -> bool:
        stored = stored_at(log, queue, offset)
        return stored > timestamp if upper else stored >= timestamp

    found = first_index(low, high, is_behind)
    return max(found - 1, low) if upper else found
