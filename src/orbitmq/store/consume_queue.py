"""A consume queue: for each message of one queue, where its record is and its tags code.

Entries ("units" in Apache's words) of 20 bytes, in files under ``consumequeue/<topic>/<queue>/``.
New ones are kept in memory, the tail, and go to files in batches from a background thread; a
reader sees files and tail as one. Losing the tail costs nothing: recovery makes it anew from the
commit log.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from orbitmq.store.file_ops import FileOps, write_fully
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.segment import create_file, list_segments, segment_name, write_again, zero_range
from orbitmq.wire.record import QUEUE_UNIT

logger = logging.getLogger("orbitmq.store")

UNIT: Final = QUEUE_UNIT
"""One entry: physical offset, size of the record, tags code (ConsumeQueue.CQ_STORE_UNIT_SIZE)."""

UNIT_SIZE: Final = UNIT.size
FILLER_SIZE: Final = 2**31 - 1
"""The size field of an entry without a record (ConsumeQueue.fillPreBlank)."""

_AHEAD: Final = 400
"""How many entries are read from a file at a time, where some of them are asked for."""
_FILL: Final = 50_000
_CREATING: Final = Lock()
"""Held while a queue makes a file: two threads may write to it."""
_MOST_OFFSET: Final = (2**63 - 1) // UNIT_SIZE - 2**31  # the last file's end is still a long
_FIRST_FILLER: Final = UNIT.pack(0, FILLER_SIZE, 0)


class QueueUnit(NamedTuple):
    """An entry of a consume queue: the message at ``queue_offset`` of the queue."""

    queue_offset: int
    physical_offset: int
    size: int
    tags_code: int


class _Tail(NamedTuple):
    """Entries not in files yet; the first is that of queue offset ``start``."""

    start: int
    units: bytearray


class ConsumeQueue:
    """One queue. ``lock`` guards the tail between the thread that adds and the one that flushes.

    Files are read through ``open_files``, on the thread that adds, and on the cleaner's.
    ``max_offset`` is the queue offset after the last entry, ``next_offset`` the one after the
    last staged message, ``min_offset`` that of the first message still in the commit log.
    Removed queues keep taking entries, for messages already staged, but write no files. One that
    ``begins_anew`` leaves alone what is in its directory, which is about to be removed.
    """

    def __init__(
        self,
        ops: FileOps,
        directory: Path,
        topic: str,
        queue_id: int,
        file_units: int,
        lock: Lock,
        open_files: OpenFiles,
        *,
        begins_anew: bool = False,
    ) -> None:
        self.topic: Final = topic
        self.queue_id: Final = queue_id
        self.directory: Final = directory
        self.min_offset = 0
        self.max_offset = 0
        self.next_offset = 0
        self.removed = False
        self._ops = ops
        self._file_units = file_units
        self._file_size = file_units * UNIT_SIZE
        self._lock = lock
        self._open_files = open_files
        self._tail = _Tail(0, bytearray())
        kind, setting = "consume-queue file", "consume_queue_units"
        size = self._file_size
        bases = [] if begins_anew else list_segments(directory, size, kind, setting)
        self._files = {base // UNIT_SIZE: directory / segment_name(base) for base in bases}
        self._unsynced: set[Path] = set()
        self._doubtful: set[Path] = set()  # a sync of these failed: their pages only look clean
        self._written: set[int] = set()  # files whose names are on the disk, or will be by sync()

    # Adding: the caller holds the lock, unless it is recovery.

    def add(self, units: bytes) -> None:
        """Put entries behind the others, the first at queue offset ``max_offset``."""
        tail = self._tail.units
        tail += units
        self.max_offset += len(units) // UNIT_SIZE

    # Reading: on the thread that adds, so only the flusher's exchange of the tail can interfere,
    # and that is one assignment.

    def read(self, offset: int, max_count: int) -> bytes:
        """Up to ``max_count`` entries from queue offset ``offset``, not past the end of its file.

        b"" when there are none, or the file is gone. The limit of one file is that of
        ConsumeQueue.getIndexBuffer.
        """
        place = offset % self._file_units
        base = offset - place
        stop = min(offset + max_count, base + self._file_units, self.max_offset)
        if offset < 0 or offset >= stop:
            return b""
        tail = self._tail
        if offset >= tail.start:
            return _units(tail, offset, stop)
        path = self._files.get(base)
        if path is None:
            return b""
        from_file = min(stop, tail.start)
        length = (from_file - offset) * UNIT_SIZE
        ahead = 0 if max_count == 1 else min(_AHEAD, tail.start - offset) * UNIT_SIZE
        try:
            data = self._open_files.read(path, length, place * UNIT_SIZE, ahead)
        except FileNotFoundError:  # deleted since
            return b""
        if stop > from_file and len(data) == length:
            data += _units(tail, from_file, stop)
        return data

    def next_file(self, offset: int) -> int:
        """The queue offset the file after that of ``offset`` begins with (rollNextFile)."""
        return offset + self._file_units - offset % self._file_units

    def unit(self, offset: int) -> QueueUnit | None:
        """The entry of queue offset ``offset``; None when there is none."""
        data = self.read(offset, 1)
        return QueueUnit(offset, *UNIT.unpack(data)) if data else None

    def close_files(self) -> None:
        """Read no more from the files there are: they are about to go."""
        for path in list(self._files.values()):
            self._open_files.close(path)

    # Flushing: on the background thread.

    def flush(self) -> None:
        """Write the tail to the files. Raises OSError; the tail is kept then."""
        with self._lock:
            start, data = self._tail.start, bytes(self._tail.units)
        if not data:
            return
        self._write_files(start, data)
        with self._lock:
            rest = self._tail.units[len(data) :]
            self._tail = _Tail(start + len(data) // UNIT_SIZE, rest)

    def write_down(self, start: int) -> None:
        """Write the entries from queue offset ``start`` on to the files now, on any thread.

        They stay in memory, and flush() writes them again. Raises OSError.
        """
        with self._lock:
            tail = self._tail
            data = _units(tail, start, self.max_offset) if start >= tail.start else b""
        self._write_files(start, data)

    def _write_files(self, start: int, data: bytes) -> None:
        position = 0
        while position < len(data):
            offset = start + position // UNIT_SIZE
            place = offset % self._file_units
            length = min(len(data) - position, (self._file_units - place) * UNIT_SIZE)
            piece = memoryview(data)[position : position + length]
            self._write_file(offset - place, piece, place * UNIT_SIZE)
            position += length

    def _create_file(self, base: int) -> int:
        with _CREATING:
            path = self._files.get(base)
            if path is not None:
                return self._ops.open(path, os.O_RDWR)
            path = self.directory / segment_name(base * UNIT_SIZE)
            self.directory.mkdir(parents=True, exist_ok=True)
            fd = create_file(self._ops, path, self._file_size)
            self._files[base] = path
            return fd

    def _write_file(self, base: int, data: memoryview, position: int) -> None:
        known = self._files.get(base)
        fd = self._create_file(base) if known is None else self._ops.open(known, os.O_RDWR)
        path = self._files[base]
        if base not in self._written:
            self._written.add(base)
            self._unsynced |= {self.directory, self.directory.parent, self.directory.parent.parent}
        try:
            write_fully(self._ops, fd, data, position)
        finally:
            os.close(fd)
        self._unsynced.add(path)

    def sync(self) -> None:
        """Bring what flush wrote to the disk. Raises OSError."""
        while self._unsynced:
            path = self._unsynced.pop()
            try:
                self._sync_path(path)
            except OSError:
                self._unsynced.add(path)
                raise

    def _sync_path(self, path: Path) -> None:
        if path.is_dir():
            self._ops.fsync_directory(path)
            return
        fd = self._ops.open(path, os.O_RDWR)
        try:
            if path in self._doubtful:
                write_again(self._ops, fd, 0, self._file_size)
            self._doubtful.add(path)
            self._ops.fdatasync(fd)
            self._doubtful.remove(path)
        finally:
            os.close(fd)

    # Retention: on the cleaner's thread, while no flush runs.

    def correct_min_offset(self, log_min: int) -> None:
        """Find the first entry whose record is in the log (ConsumeQueue.correctMinOffset)."""
        lowest = max(self.min_offset, next(iter(self._files), self._tail.start))
        if not self._is_live_at(lowest, log_min):
            lowest = first_index(
                lowest, self.max_offset, lambda offset: self._is_live_at(offset, log_min)
            )
        self.min_offset = lowest

    def _is_live_at(self, offset: int, log_min: int) -> bool:
        unit = self.unit(offset)
        return unit is not None and is_live(unit, log_min)

    def delete_expired(self) -> int:
        """Delete the files before that of ``min_offset``, never the last; how many. Raises OSError.

        The oldest go first, and their names leave the disk in that order.
        """
        expired = [base for base in self._files if base + self._file_units <= self.min_offset]
        last = max(self._files, default=0)
        deleted = 0
        for base in sorted(expired):
            if base != last:
                path = self._files[base]
                self._ops.unlink(path)
                del self._files[base]
                self._open_files.close(path)
                self._unsynced.discard(path)
                self._doubtful.discard(path)
                self._ops.fsync_directory(self.directory)
                deleted += 1
        return deleted

    # Recovery: alone, before the threads start.

    def cut(self, physical_offset: int) -> None:
        """Keep the entries of records before ``physical_offset``; zero or delete the others.

        Raises OSError.
        """
        self._tail = _Tail(0, bytearray())
        self.max_offset = 0
        while self._files:
            base, path = self._files.popitem()
            fd = self._ops.open(path, os.O_RDWR)
            try:
                count = self._count_before(fd, physical_offset)
                if zero_range(self._ops, fd, count * UNIT_SIZE, self._file_size):
                    self._ops.fdatasync(fd)
            finally:
                os.close(fd)
            if count or not self._files:
                self._files[base] = path
                self.max_offset = base + count
                break
            self._open_files.close(path)
            self._ops.unlink(path)
            self._unsynced.add(self.directory)
        self._tail = _Tail(self.max_offset, bytearray())

    def _count_before(self, fd: int, physical_offset: int) -> int:
        """How many entries at the front of a file are of records before ``physical_offset``.

        Entries that were on disk before a crash are in order and without holes, so halving finds
        where the others begin: zeros, or entries of later records.
        """
        return first_index(
            0,
            self._file_units,
            lambda index: (
                not _is_before(os.pread(fd, UNIT_SIZE, index * UNIT_SIZE), physical_offset)
            ),
        )

    def put_out_of_order(
        self, offset: int, unit: bytes, log_min: int, most_missing: int = 0
    ) -> None:
        """Put the entry of a record from the log whose queue offset is not ``max_offset``.

        One beyond the end starts the queue, if nothing before it is in the log any more, with
        filler in front (ConsumeQueue.fillPreBlank). 0 starts it anew: the topic was deleted and
        made again. Otherwise as in ConsumeQueue.putMessagePositionInfo, with a warning: one
        below the end is left out, a gap becomes filler. A gap of more than a file, and of more
        than ``most_missing`` messages, is no gap but a wrong offset.
        """
        last = self.unit(self.max_offset - 1)
        is_live_queue = last is not None and is_live(last, log_min)
        filler = _FIRST_FILLER
        if offset > _MOST_OFFSET:
            logger.warning("%s: offset %d left out, it is impossible", self, offset)
            return
        if offset == 0 or (offset > self.max_offset and not is_live_queue):
            self._start_at(offset)
        elif self.max_offset < offset <= self.max_offset + max(self._file_units, most_missing):
            logger.warning("%s has no entries from %d to %d", self, self.max_offset, offset - 1)
            filler = _filler_before(UNIT.unpack(unit)[0])
        else:
            logger.warning("%s: offset %d left out, %d is next", self, offset, self.max_offset)
            return
        self._fill(filler, offset)
        self.add(unit)

    def fill_to(self, offset: int, physical_offset: int) -> None:
        """Let the queue reach ``offset``: the messages missing were before ``physical_offset``."""
        if self.max_offset < offset:
            logger.warning("%s has no entries from %d to %d", self, self.max_offset, offset - 1)
            filler = _filler_before(physical_offset)
            if not self.max_offset:
                self._start_at(offset)
                filler = _FIRST_FILLER
            self._fill(filler, offset)

    def _fill(self, filler: bytes, stop: int) -> None:
        while self.max_offset < stop:
            count = min(stop - self.max_offset, _FILL)
            self._tail.units.extend(filler * count)
            self.max_offset += count
            if len(self._tail.units) > _FILL * UNIT_SIZE:
                self.flush()

    def _start_at(self, offset: int) -> None:
        """Drop all entries; the queue's first file will be the one that holds ``offset``."""
        self.delete_files()
        start = offset - offset % self._file_units
        self._tail = _Tail(start, bytearray())
        self.max_offset = start

    def delete_files(self) -> None:
        """Remove the queue's files. Raises OSError."""
        self.close_files()
        while self._files:
            _, path = self._files.popitem()
            self._ops.unlink(path)
        self._unsynced.clear()
        self._doubtful.clear()
        self._written.clear()

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.topic}"


def offset_before(physical_offset: int, directory: Path, file_units: int) -> int:
    """Up to which queue offset a damaged queue's records were before ``physical_offset``.

    As far as its last file tells. Raises OSError.
    """
    files = [path for path in directory.iterdir() if path.name.isascii() and path.name.isdigit()]
    if not files:
        return 0
    last = max(files)
    data = last.read_bytes()
    whole = data[: min(len(data) // UNIT_SIZE, file_units) * UNIT_SIZE]
    places = [place for place, size, _ in UNIT.iter_unpack(whole) if size > 0]
    count: int = sum(0 <= place < physical_offset for place in places)
    return int(last.name) // UNIT_SIZE + count


def first_index(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """The first index in ``low`` to ``high`` - 1 for which ``holds``; ``high`` if there is none.

    ``holds`` must be true from some index on and false before it.
    """
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def is_live(unit: QueueUnit, log_min: int) -> bool:
    """Whether the entry's record is still in a commit log that begins at ``log_min``.

    Filler for a gap lies just before the record after it, so that entries stay in order.
    """
    is_first_filler = unit.size == FILLER_SIZE and unit.physical_offset == 0
    return unit.physical_offset >= log_min and not is_first_filler


def _filler_before(physical_offset: int) -> bytes:
    """Filler for a gap before a record: in order, and where no record begins."""
    return UNIT.pack(max(physical_offset - 1, 0), FILLER_SIZE, 0)


def _is_before(data: bytes, physical_offset: int) -> bool:
    offset, size, _ = UNIT.unpack(data)
    return bool(size > 0 and 0 <= offset < physical_offset)


def _units(tail: _Tail, start: int, stop: int) -> bytes:
    return bytes(tail.units[(start - tail.start) * UNIT_SIZE : (stop - tail.start) * UNIT_SIZE])
