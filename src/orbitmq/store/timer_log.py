"""The timer log: one entry for each timer, chained to the one before it that is due at its time.

Byte for byte Apache's TimerLog: files of ``mappedFileSizeTimerLog`` bytes under ``timerlog/``, in
them units of 52 bytes. A file's end, where no further unit fits, is a blank of 16 bytes: how many
bytes remain, 8 zero bytes, a magic number.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.store.file_ops import FileOps
from orbitmq.store.segment import Segment, list_segments

NORMAL: Final = 1
ROLL: Final = 1 << 1
DELETE: Final = 1 << 2
"""Bits of a unit's magic: each unit has the first; the second: its message goes round once more;
the third: it recalls another (TimerMessageStore.MAGIC_DEFAULT, MAGIC_ROLL, MAGIC_DELETE)."""

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_SIZE: Final = UNIT.size
_BLANK: Final = struct.Struct(">iqi")
_BLANK_MAGIC: Final = 0xBBCCDDEE - (1 << 32) ^ 1880681586 + 8
_KNOWN_MAGIC: Final = 0xF
_SCAN_UNITS: Final = 20_000
_BLOCK: Final = 1024 * UNIT_SIZE


class TimerUnit(NamedTuple):
    """An entry: ``previous`` is the place of the one before it in its chain, -1 for the first.

    ``write_ms`` and ``delay_ms`` add up to the time of its slot; ``physical_offset`` and ``size``
    say where the message is in the commit log; ``topic_hash`` is that of the topic it goes to.
    """

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int

    @property
    def time_ms(self) -> int:
        """The time of its slot."""
        return self.write_ms + self.delay_ms

    @property
    def rolls(self) -> bool:
        """Whether its message goes round once more."""
        return self.magic & ROLL != 0

    def encode(self) -> bytes:
        """The unit's 52 bytes."""
        return UNIT.pack(UNIT_SIZE, *self, 0)


def decode_unit(data: bytes, position: int = 0) -> TimerUnit | None:
    """The unit that stands there; None when none does (TimerMessageStore.isMagicOK)."""
    size, *fields, _ = UNIT.unpack_from(data, position)
    unit = TimerUnit(*fields)
    return unit if size == UNIT_SIZE and unit.magic | _KNOWN_MAGIC == _KNOWN_MAGIC else None


class TimerLog:
    """The files in ``directory``; ``end`` is where the next unit goes, unless its file is full.

    Raises CorruptStoreError when they are not of ``file_size`` bytes, or one is missing. Methods
    raise OSError. For one thread; :meth:`sync` may be called on another.
    """

    def __init__(self, ops: FileOps, directory: Path, file_size: int) -> None:
        self._ops = ops
        self._directory = directory
        bases = list_segments(directory, file_size, "timer log file", "timer_log_file_size")
        self.file_size: Final = file_size
        self._segments = {base: Segment(ops, directory, base, file_size) for base in bases}
        self.end = max(self._segments, default=0)
        self._block_start = 0
        self._block = b""

    @property
    def begin(self) -> int:
        """Where the first file begins."""
        return min(self._segments, default=0)

    def place_after(self, end: int) -> int:
        """Where a unit goes in a log that ends at ``end``: there, or into the next file."""
        room = self.file_size - end % self.file_size
        return end if room >= UNIT_SIZE + _BLANK.size else end + room

    def append(self, units: Sequence[tuple[int, TimerUnit]]) -> None:
        """Write units at the places that :meth:`place_after` gave. After an error none is there."""
        position, data = self.end, b""
        for place, unit in units:
            if place != position + len(data):  # the next file
                self._finish_file(position, data)
                position, data = place, b""
            data += unit.encode()
        self._write(position, data)
        self.end = position + len(data)

    def unit_at(self, place: int) -> TimerUnit | None:
        """The unit at ``place``; None when none is there any more.

        It is read with those around it: chains are followed backwards, then forwards.
        """
        at = place - self._block_start
        if not 0 <= at <= len(self._block) - UNIT_SIZE:
            segment = self._segments.get(place - place % self.file_size)
            if segment is None or place + UNIT_SIZE > self.end:
                return None
            at = (place - segment.base) % _BLOCK
            self._block_start = place - at
            self._block = segment.read(self._block_start, min(_BLOCK, self.end - self._block_start))
        return decode_unit(self._block, at)

    def scan(self, start: int) -> Iterator[tuple[int, TimerUnit]]:
        """All units from place ``start`` on, with their places, until no unit stands there."""
        position = start
        while (segment := self._segments.get(position - position % self.file_size)) is not None:
            while position + UNIT_SIZE <= segment.end:
                data = segment.read(position, _SCAN_UNITS * UNIT_SIZE)
                for at in range(0, len(data) - UNIT_SIZE + 1, UNIT_SIZE):
                    unit = decode_unit(data, at)
                    if unit is None:
                        if _is_blank(data, at):
                            position = segment.end
                            break
                        return
                    yield position + at, unit
                else:
                    position += len(data) - len(data) % UNIT_SIZE
            position = segment.end

    def cut(self, end: int) -> None:
        """Let the log end at ``end``, and nothing stand behind it."""
        for base in sorted(self._segments):
            if base > end:
                self._segments.pop(base).delete()
            elif end < base + self.file_size:
                self._segments[base].zero(end, base + self.file_size)
        self.end = end
        self._block = b""

    def delete_before(self, min_physical_offset: int) -> None:
        """Delete the files all of whose messages the commit log has no more.

        Never the last; MappedFileQueue.deleteExpiredFileByOffsetForTimerLog.
        """
        for base in sorted(self._segments)[:-1]:
            last = self.file_size - (self.file_size - _BLANK.size) % UNIT_SIZE
            last += base - _BLANK.size - UNIT_SIZE
            unit = decode_unit(self._segments[base].read(last, UNIT_SIZE))
            if unit is None or unit.physical_offset >= min_physical_offset:
                return
            self._segments.pop(base).delete()

    def delete_all(self) -> None:
        """Delete all files."""
        while self._segments:
            self._segments.popitem()[1].delete()
        self.end, self._block = 0, b""

    def files_of(self, start: int, stop: int) -> list[Segment]:
        """The files with what stands from ``start`` to ``stop``."""
        return [
            segment
            for segment in list(self._segments.values())
            if segment.base < stop and start < segment.end
        ]

    def close(self) -> None:
        """Give the files back."""
        for segment in self._segments.values():
            segment.close()

    def _finish_file(self, position: int, data: bytes) -> None:
        room = self.file_size - (position + len(data)) % self.file_size
        self._write(position, data + _BLANK.pack(room, 0, _BLANK_MAGIC))

    def _write(self, position: int, data: bytes) -> None:
        if not data:
            return
        base = position - position % self.file_size
        segment = self._segments.get(base)
        if segment is None:
            self._directory.mkdir(exist_ok=True)
            segment = Segment.create(self._ops, self._directory, base, self.file_size)
            self._segments[base] = segment
        try:
            segment.write(position, data)
        except OSError:
            segment.zero(position, position + len(data))
            raise


def _is_blank(data: bytes, position: int) -> bool:
    magic: int = _BLANK.unpack_from(data, position)[2]
    return magic == _BLANK_MAGIC
