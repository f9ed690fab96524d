"""Reading messages of a queue, with the outcomes and next offsets of Apache's store.

Follows DefaultMessageStore.getMessage. Its limits for a single pull (32 messages, 256 KiB from
memory) are the broker's to pass as ``max_count`` and ``max_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from orbitmq.compiled import compiled
from orbitmq.store.commit_log import CommitLog, LogPart
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE, ConsumeQueue

_MIN_SCANNED_UNITS: Final = 16_000 // UNIT_SIZE  # MessageStoreConfig.maxFilterMessageSize
_MIN_PULL_BYTES: Final = 100
_MAX_PULL_BYTES: Final = 128 << 20
_ANYWHERE: Final = -(1 << 63)
_NO_PART: Final = LogPart(memoryview(b""), -1, -1)


class GetStatus(Enum):
    """How a read ended (Java's GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    OFFSET_RESET = "OFFSET_RESET"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class GetResult(msgspec.Struct, gc=False):
    """What a read found; ``slices`` concatenated are the records, in the form pulls answer.

    Slices look into the commit log's mapping; neighbouring records share one. ``size`` is their
    bytes, ``count`` their messages.
    """

    status: GetStatus
    next_begin_offset: int
    min_offset: int
    max_offset: int
    slices: list[memoryview] = []
    count: int = 0
    size: int = 0


class ScanStopped(Exception):  # noqa: N818 - no error: the read ends there, with what it has
    """Raised by a ``match_record`` that will not look at any more records now."""


def get_messages(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    limits: tuple[int, int],
    match: Callable[[int], bool] | None,
    match_record: Callable[[memoryview], bool] | None,
) -> GetResult:
    """See MessageStore.get_messages; ``limits`` are max_count and max_bytes."""
    max_count, max_bytes = limits
    if queue is None:
        return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
    low, high = queue.min_offset, queue.max_offset
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    if not _MIN_PULL_BYTES <= max_bytes <= _MAX_PULL_BYTES:
        max_bytes = min(max(max_bytes, _MIN_PULL_BYTES), _MAX_PULL_BYTES)
    is_any = match is None and match_record is None
    most = max(_MIN_SCANNED_UNITS, max_count)
    few = max(1, max_count) if is_any else most
    units = queue.read(offset, few)
    if not units:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file(offset), low, high)
    if is_any:
        part = log.part(int.from_bytes(units[:8], "big", signed=True))
        taken = part and neighbours(*part, units, max_count, max_bytes)
        if taken:  # mostly all are in the same part of the log, and wanted
            slices, count, size = taken
            return GetResult(GetStatus.FOUND, offset + count, low, high, slices, count, size)
    records = _Records(log, match, match_record)
    records.take(units, max_count, max_bytes)
    if records.missed and few < most:  # seldom: there may be more to take behind these
        records = _Records(log, None, None)
        records.take(queue.read(offset, most), max_count, max_bytes)
    return GetResult(
        records.status,
        offset + records.count + records.missed,
        low,
        high,
        records.slices,
        records.count,
        records.size,
    )


class _Records:
    """The records that a pull takes, and how many units without such a one it ``missed``.

    ``status`` is FOUND, or why the last unit was missed; the rest is that of a GetResult.
    """

    __slots__ = (
        "_log", "_match", "_match_record", "_skip_to", "count", "missed", "size", "slices",
        "status",
    )  # fmt: skip

    def __init__(
        self,
        log: CommitLog,
        match: Callable[[int], bool] | None,
        match_record: Callable[[memoryview], bool] | None,
    ) -> None:
        self.status = GetStatus.NO_MATCHED_MESSAGE
        self.slices: list[memoryview] = []
        self.count = self.size = self.missed = 0
        self._log = log
        self._match = match
        self._match_record = match_record
        self._skip_to = _ANYWHERE

    def take(self, units: bytes, max_count: int, max_bytes: int) -> None:
        """Take records of ``units`` up to the limits, one by one; the first whatever its size.

        Those that lie behind each other in the log become one slice.
        """
        view, base, _ = _NO_PART
        start = end = count = missed = 0  # start and end of the slice to come
        room = max_bytes
        append = self.slices.append
        try:
            for position, size, tags_code in UNIT.iter_unpack(units):
                if size > room and count:
                    break
                part = self._find(position, size, tags_code)
                if part is None:
                    missed += 1
                    continue
                if position != end or part.base != base:
                    if start < end:
                        append(view[start - base : end - base])
                    start = position
                    view, base, _ = part
                end = position + size
                room -= size
                count += 1
                if count >= max_count:
                    break
        except ScanStopped:
            pass
        if count:
            append(view[start - base : end - base])
            self.status = GetStatus.FOUND
        self.count, self.size, self.missed = count, max_bytes - room, missed

    def _find(self, position: int, size: int, tags_code: int) -> LogPart | None:
        """The part of the log where a unit's record is; None if it is not there, or not wanted."""
        if position < self._skip_to:
            return None
        if self._match is not None and not self._match(tags_code):
            self.status = GetStatus.NO_MATCHED_MESSAGE
            return None
        part = self._log.part(position)
        if part is None or not 0 < size <= part.end - position:
            self.status = GetStatus.MESSAGE_WAS_REMOVING
            if size != FILLER_SIZE:
                self._skip_to = self._log.next_file(position)
            return None
        if self._match_record is not None:
            place = position - part.base
            if not self._match_record(part.view[place : place + size]):
                self.status = GetStatus.NO_MATCHED_MESSAGE
                return None
        self._skip_to = _ANYWHERE
        return part


@compiled
def neighbours(
    view: memoryview, base: int, end: int, units: bytes, max_count: int, max_bytes: int
) -> tuple[list[memoryview], int, int] | None:
    """The records of ``units`` in a part of the log (LogPart); the first whatever the limits.

    Those right behind each other are one slice. With the slices come how many records they are, and
    of how many bytes. None where one is not in this part.
    """
    slices: list[memoryview] = []
    start = stop = count = 0
    room = max_bytes
    for position, size, _ in UNIT.iter_unpack(units):
        if size > room and count:
            break
        if not base <= position < position + size <= end:
            return None
        if position != stop or not count:
            if count:
                slices.append(view[start - base : stop - base])
            start = position
        stop = position + size
        room -= size
        count += 1
        if count >= max_count:
            break
    slices.append(view[start - base : stop - base])
    return slices, count, max_bytes - room
