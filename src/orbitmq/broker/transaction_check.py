"""Which half messages are still open, and what is to be done with them: a state machine, no I/O.

A *pass* goes through the half messages that were there when it began, in their order. What has
ended is skipped. What is older than its time-out is stored again at the end of its queue, with the
check counted, and its producer is asked; so the one offset of the queue tells all that is done.
Follows TransactionalMessageServiceImpl.check, but reads every op message before it judges, so that
nobody is asked about what has ended, and does not count a postponement as a check.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

_CHUNK_BITS: Final = 10
_CHUNK: Final = 1 << _CHUNK_BITS
_FULL: Final = (1 << _CHUNK) - 1
_MOST_MARKS: Final = 16
_MAX_LONG: Final = (1 << 63) - 1
_NUMBER: Final = re.compile("[+-]?[0-9]{1,19}")
NO_NUMBER: Final = -1
"""What stands for a text that is no number (getLong, getInt)."""


class Verdict(Enum):
    """What becomes of an open half message."""

    WAIT = "it is too young, and so are those behind it"
    CHECK = "its producer is asked"
    POSTPONE = "it is looked at again later, as its immunity time wants it"
    DISCARD = "it is given up: asked about too often, or too old"


class Rules(NamedTuple):
    """Times in ms: ``transactionTimeOut``, ``transactionCheckMax``, ``fileReservedTime``."""

    timeout_ms: int
    check_max: int
    reserved_ms: int


class Half(NamedTuple):
    """What a verdict depends on. ``checks`` and ``immunity`` are properties, None where absent."""

    born_ms: int
    checks: str | None
    immunity: str | None


def judge(half: Half, now_ms: int, rules: Rules) -> Verdict:
    """What is to be done with a half message that has not ended, by the wall clock."""
    if half.checks is not None and java_long(half.checks) >= rules.check_max:
        return Verdict.DISCARD
    age_ms = now_ms - half.born_ms
    if age_ms > rules.reserved_ms:
        return Verdict.DISCARD
    if half.immunity is not None:
        if age_ms <= immunity_ms(half.immunity, rules.timeout_ms):
            return Verdict.POSTPONE
    elif 0 <= age_ms <= rules.timeout_ms:
        return Verdict.WAIT
    return Verdict.CHECK


def immunity_ms(text: str, timeout_ms: int) -> int:
    """How long a message with CHECK_IMMUNITY_TIME_IN_SECONDS=``text`` is left alone, in ms."""
    seconds = java_long(text)
    return timeout_ms if seconds == NO_NUMBER else seconds * 1000


def next_check(checks: str | None) -> int:
    """Which check the next one is (needDiscard)."""
    return 1 if checks is None else java_long(checks) + 1


def java_long(text: str) -> int:
    """The number in ``text``, -1 where there is none of 64 bits."""
    number = int(text) if _NUMBER.fullmatch(text) else NO_NUMBER
    return number if -_MAX_LONG <= number <= _MAX_LONG else NO_NUMBER


class OffsetSet:
    """Queue offsets, a bit each where they lie close together."""

    def __init__(self) -> None:
        self._chunks: dict[int, int] = {}

    def __contains__(self, offset: int) -> bool:
        return bool(self._chunks.get(offset >> _CHUNK_BITS, 0) >> (offset % _CHUNK) & 1)

    def add(self, offset: int) -> None:
        """Take in an offset."""
        chunk = offset >> _CHUNK_BITS
        self._chunks[chunk] = self._chunks.get(chunk, 0) | 1 << (offset % _CHUNK)

    def first_absent(self, offset: int) -> int:
        """The first offset from ``offset`` on that is not in it."""
        while mask := self._chunks.get(offset >> _CHUNK_BITS, 0):
            rest = mask >> (offset % _CHUNK)
            run = _CHUNK - offset % _CHUNK if mask == _FULL else (~rest & rest + 1).bit_length() - 1
            offset += run
            if offset % _CHUNK or not run:
                break
        return offset

    def forget(self, start: int, stop: int) -> None:
        """Drop what lies from ``start`` to before ``stop``, but for the chunk ``stop`` is in."""
        for chunk in range(start >> _CHUNK_BITS, stop >> _CHUNK_BITS):
            self._chunks.pop(chunk, None)


class _Mark(NamedTuple):
    """Op messages before ``op_offset`` are done with once half messages before ``half_offset`` are.

    ``late`` are those that had been passed already when their op message was read.
    """

    op_offset: int
    half_offset: int
    late: OffsetSet


class Progress:
    """How far the two queues are done with.

    Everything before ``half_offset`` and ``op_offset`` is: from there on a restart goes on, and
    ``op_read`` is the next op message to read in this run.
    """

    def __init__(self, half_offset: int, op_offset: int) -> None:
        self.half_offset = half_offset
        self.op_offset = op_offset
        self.op_read = op_offset
        self._ended = OffsetSet()
        self._late = OffsetSet()
        self._marks: deque[_Mark] = deque()

    def take_op(self, ended: Iterable[int], half_end: int) -> None:
        """Take in the op message at ``op_read``: the half messages that ended.

        None can be at or behind ``half_end``, the end of their queue.
        """
        self.op_read += 1
        for offset in ended:
            if offset >= half_end or offset < 0:
                continue
            if offset >= self.half_offset:
                self._ended.add(offset)
            else:
                self._late.add(offset)

    def mark(self, half_end: int) -> None:
        """Note that all op messages before ``op_read`` are of half messages before ``half_end``."""
        if len(self._marks) < _MOST_MARKS:
            self._marks.append(_Mark(self.op_read, half_end, self._late))
            self._late = OffsetSet()

    def skip_op(self, op_offset: int) -> None:
        """Go on reading at ``op_offset``: what was before is gone."""
        self.op_read = max(self.op_read, op_offset)

    def has_ended(self, offset: int) -> bool:
        """Whether the half message at ``offset`` is known to have ended."""
        return offset in self._ended

    def ended_before(self, offset: int) -> bool:
        """Whether the one that was at ``offset``, before it was postponed, is known to have."""
        return (
            offset in self._ended
            or offset in self._late
            or any(offset in mark.late for mark in self._marks)
        )

    def skip_ended(self, limit: int) -> None:
        """Pass what has ended, up to ``limit``."""
        self.move(min(limit, self._ended.first_absent(self.half_offset)))

    def move(self, half_offset: int) -> None:
        """Everything before ``half_offset`` is done with."""
        if half_offset > self.half_offset:
            self._ended.forget(self.half_offset, half_offset)
            self.half_offset = half_offset
        while self._marks and self._marks[0].half_offset <= self.half_offset:
            self.op_offset = self._marks.popleft().op_offset
