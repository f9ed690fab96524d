"""Reading messages of a queue, with the outcomes and next offsets of Apache's store.

Follows DefaultMessageStore.getMessage. Its limits for a single pull (32 messages, 256 KiB from
memory) are the broker's to pass as ``max_count`` and ``max_bytes``.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

import msgspec

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE, ConsumeQueue
from orbitmq.store.segment import Segment

_MIN_SCANNED_UNITS: Final = 16_000 // UNIT_SIZE  # MessageStoreConfig.maxFilterMessageSize
_MIN_PULL_BYTES: Final = 100
_MAX_PULL_BYTES: Final = 128 << 20


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


class GetResult(msgspec.Struct):
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
    units = queue.read(offset, max(_MIN_SCANNED_UNITS, max_count))
    if not units:
        return GetResult(GetStatus.OFFSET_FOUND_NULL, queue.next_file(offset), low, high)
    result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, high)
    limit = min(max(max_bytes, _MIN_PULL_BYTES), _MAX_PULL_BYTES)
    _collect(log, units, result, (max_count, limit), match, match_record)
    return result


def _collect(
    log: CommitLog,
    units: bytes,
    result: GetResult,
    limits: tuple[int, int],
    match: Callable[[int], bool] | None,
    match_record: Callable[[memoryview], bool] | None,
) -> None:
    max_count, max_bytes = limits
    runs = _Runs(log)
    offset = result.next_begin_offset
    status = result.status
    takes_all = match is None and match_record is None
    count = total = skip_to = 0
    for position, size, tags_code in UNIT.iter_unpack(units):
        if count and (count >= max_count or total + size > max_bytes):
            break
        offset += 1
        if takes_all and position == runs.end and position + size <= runs.limit:
            runs.end += size
            count += 1
            total += size
            continue
        if position < skip_to:
            continue
        if match is not None and not match(tags_code):
            outcome = GetStatus.NO_MATCHED_MESSAGE
        else:
            try:
                outcome = runs.take(position, size, match_record)
            except ScanStopped:
                offset -= 1
                break
        if outcome is GetStatus.FOUND:
            count += 1
            total += size
        elif outcome is GetStatus.MESSAGE_WAS_REMOVING and size != FILLER_SIZE:
            skip_to = log.next_file(position)
        if not count or outcome is GetStatus.FOUND:
            status = outcome
    result.status, result.next_begin_offset = status, offset
    result.slices, result.count, result.size = runs.finish(), count, total


class _Runs:
    """Records taken from the log; those that lie behind each other become one slice.

    ``end`` is where the last one ends, ``limit`` up to where it could go on in the same slice.
    """

    def __init__(self, log: CommitLog) -> None:
        self.end = self.limit = 0
        self._start = 0
        self._log = log
        self._slices: list[memoryview] = []
        self._segment: Segment | None = None

    def take(
        self, position: int, size: int, match_record: Callable[[memoryview], bool] | None
    ) -> GetStatus:
        """Add the record at ``position``, if the log still has it and it matches."""
        record = self._log.slice(position, size)
        if not record:
            return GetStatus.MESSAGE_WAS_REMOVING
        if match_record is not None and not match_record(record):
            return GetStatus.NO_MATCHED_MESSAGE
        end = position + size
        if position != self.end or end > self.limit:
            self._begin(position)
        self.end = end
        return GetStatus.FOUND

    def _begin(self, start: int) -> None:
        self.finish()
        self._segment = segment = self._log.find(start)
        self._start = start
        self.limit = min(segment.end, self._log.end) if segment is not None else 0

    def finish(self) -> list[memoryview]:
        """All slices, the last one included."""
        if self._segment is not None:
            base = self._segment.base
            self._slices.append(self._segment.view[self._start - base : self.end - base])
        return self._slices
