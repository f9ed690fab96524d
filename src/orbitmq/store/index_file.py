"""One file of the key index, byte for byte Apache's IndexFile.

A header of 40 bytes, then 4 bytes for each hash slot, then 20 for each entry. A slot holds the
number of the last entry of its keys, and each entry that of the one before it in the same slot: a
chain, the newest first. Entry 0 is never used. See IndexFile and IndexHeader.

Java writes through a mapping; here nothing does, because that ends the process when the disk is
full. New entries are written behind the others at once; the slots, which lie all over their 20 MB,
are kept in memory and go to the file with the header, when save() is called. So after a kill a file
is as it was last saved, and may have more entries than its header says; IndexWriter.cut takes both
back to the last saved number.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from orbitmq.store.file_ops import FileOps, write_fully
from orbitmq.store.segment import create_file, data_ranges

HEADER: Final = struct.Struct(">qqqqii")
"""First and last store time (ms), first and last physical offset, used slots, next entry."""

ENTRY: Final = struct.Struct(">iqii")
"""Hash of the key, physical offset, seconds since the file's first store time, entry before."""

IndexEntry: TypeAlias = tuple[int, int, int]
"""What is put into an index: hash of the key, physical offset, store time in ms."""

_SLOT: Final = struct.Struct(">i")
_SLOT_SIZE: Final = 4
_SLOTS_A_PAGE: Final = 1024
_NO_ENTRY: Final = 0
_MAX_INT: Final = 2**31 - 1
_PIECE: Final = 5_000


class IndexShape(NamedTuple):
    """How many hash slots a file has, and how many entries, of which the first is never used."""

    slots: int
    entries: int

    @property
    def first_entry(self) -> int:
        """Where in the file entry 0 stands."""
        return HEADER.size + self.slots * _SLOT_SIZE

    @property
    def size(self) -> int:
        """The size of the file, bytes."""
        return self.first_entry + self.entries * ENTRY.size


class IndexHeader(NamedTuple):
    """What the first 40 bytes say; ``index_count`` is the next entry's number, 1 at first."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    slot_count: int = 0
    index_count: int = 1


class Walk:
    """One look-up across files: what it wants, what it has found, and how far it may still go.

    ``found`` are physical offsets, ``steps`` how many entries may be looked at.
    """

    def __init__(self, key_hash: int, max_count: int, begin: int, end: int, steps: int) -> None:
        self.key_hash: Final = key_hash
        self.begin: Final = begin
        self.end: Final = end
        self.max_count: Final = max_count
        self.steps = steps
        self.found: list[int] = []

    @property
    def is_done(self) -> bool:
        """Whether nothing more is looked for."""
        return len(self.found) >= self.max_count or self.steps <= 0


class IndexFile:
    """A file that is read. Raises OSError when it cannot be; ``header`` is read at the start.

    The file keeps a descriptor until close(). For one thread at a time.
    """

    def __init__(
        self, ops: FileOps, path: Path, shape: IndexShape, *, create: bool = False
    ) -> None:
        self.path: Final = path
        self.shape: Final = shape
        self._ops = ops
        self._fd = create_file(ops, path, shape.size) if create else ops.open(path, os.O_RDWR)
        self.header = IndexHeader(*HEADER.unpack(os.pread(self._fd, HEADER.size, 0)))
        if self.header.index_count <= 0:
            self.header = self.header._replace(index_count=1)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        return self.header.index_count >= self.shape.entries

    @property
    def is_closed(self) -> bool:
        """Whether close() was called; nothing is found then."""
        return self._fd < 0

    def may_have(self, begin: int, end: int) -> bool:
        """Whether messages of that time, ms, are in it (IndexFile.isTimeMatched)."""
        first, last = self.header.begin_timestamp, self.header.end_timestamp
        return (begin < first and end > last) or first <= begin <= last or first <= end <= last

    def select(self, walk: Walk) -> None:
        """Add what ``walk`` looks for, the newest first (IndexFile.selectPhyOffset)."""
        header = self.header
        number = self.slot(walk.key_hash % self.shape.slots)
        if not _NO_ENTRY < number < header.index_count:
            return
        while not walk.is_done:
            walk.steps -= 1
            key_hash, offset, seconds, previous = ENTRY.unpack(self.entry(number))
            if seconds < 0:
                return
            timestamp = header.begin_timestamp + seconds * 1000
            if key_hash == walk.key_hash and walk.begin <= timestamp <= walk.end:
                walk.found.append(offset)
            is_last = not _NO_ENTRY < previous < header.index_count or previous == number
            if is_last or timestamp < walk.begin:
                return
            number = previous

    def slot(self, index: int) -> int:
        """The number of the newest entry in a slot, 0 for none."""
        data = os.pread(self._fd, _SLOT_SIZE, HEADER.size + index * _SLOT_SIZE)
        return int(_SLOT.unpack(data)[0])

    def entry(self, number: int) -> bytes:
        """An entry as it is stored."""
        return os.pread(self._fd, ENTRY.size, self.shape.first_entry + number * ENTRY.size)

    def entries(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """The entries numbered ``start`` to ``stop`` - 1: the fields of ENTRY."""
        for number in range(start, stop, _PIECE):
            length = (min(number + _PIECE, stop) - number) * ENTRY.size
            place = self.shape.first_entry + number * ENTRY.size
            yield from ENTRY.iter_unpack(os.pread(self._fd, length, place))

    def slots(self) -> Iterator[tuple[int, int]]:
        """The slots in use: their index and the number of their newest entry."""
        for first, values in self._slot_pieces():
            yield from ((first + i, value) for i, value in enumerate(values) if value)

    def _slot_pieces(self) -> Iterator[tuple[int, array[int]]]:
        """The slots that are not in holes of the file, many at once, and the first one's index."""
        for start, stop in data_ranges(self._fd, HEADER.size, self.shape.first_entry):
            values = _swapped(os.pread(self._fd, stop - start, start))
            yield (start - HEADER.size) // _SLOT_SIZE, values

    def close(self) -> None:
        """Give the file back; does nothing the second time."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class IndexWriter(IndexFile):
    """The newest file, which entries are put into; its slots are in memory.

    After put() what was put can be found. Raises OSError where the disk takes no entries: they stay
    in memory, and the next flush() tries again.
    """

    def __init__(
        self, ops: FileOps, path: Path, shape: IndexShape, *, create: bool = False
    ) -> None:
        super().__init__(ops, path, shape, create=create)
        memory = mmap.mmap(-1, shape.slots * _SLOT_SIZE)  # taken where it is touched only
        self._slots: memoryview[int] = memoryview(memory).cast("i")
        self._is_frozen = False
        self._dirty: set[int] = set()
        self._unwritten = bytearray()
        self._written = self.header.index_count
        if not create:
            for first, values in self._slot_pieces():
                self._slots[first : first + len(values)] = memoryview(values)

    @property
    def unwritten(self) -> int:
        """How many bytes of entries the disk did not take yet."""
        return len(self._unwritten)

    def begin_behind(self, previous: IndexHeader) -> None:
        """Start a new file behind another (the constructor of IndexFile)."""
        self.header = IndexHeader(
            previous.end_timestamp, previous.end_timestamp, previous.end_offset, previous.end_offset
        )

    def put(self, entries: Sequence[IndexEntry]) -> int:
        """Put entries in while there is room; how many (IndexFile.putKey)."""
        begin_timestamp, end_timestamp, begin_offset, end_offset, used, count = self.header
        slots, slot_number, touch, pack = self._slots, self.shape.slots, self._dirty.add, ENTRY.pack
        taken = entries[: self.shape.entries - count]
        packed = []
        known: int | None = None  # the store time that ``seconds`` is for
        seconds = 0
        for key_hash, offset, timestamp in taken:
            slot = key_hash % slot_number
            previous = slots[slot]
            if not _NO_ENTRY < previous < count:
                previous = _NO_ENTRY
                used += 1
            if timestamp != known:
                known, seconds = timestamp, _seconds(timestamp, begin_timestamp)
            packed.append(pack(key_hash, offset, seconds, previous))
            slots[slot] = count
            touch(slot // _SLOTS_A_PAGE)
            if count <= 1:
                begin_offset, begin_timestamp, known = offset, timestamp, None
            count += 1
        if taken:
            _, end_offset, end_timestamp = taken[-1]
        self._unwritten += b"".join(packed)
        self.header = IndexHeader(
            begin_timestamp, end_timestamp, begin_offset, end_offset, used, count
        )
        return len(taken)

    def flush(self) -> None:
        """Write the entries to the file. Raises OSError."""
        if self._unwritten:
            place = self.shape.first_entry + self._written * ENTRY.size
            write_fully(self._ops, self._fd, bytes(self._unwritten), place)
            self._written = self.header.index_count
            self._unwritten = bytearray()

    def sync(self) -> None:
        """Bring what was written to the disk. Raises OSError."""
        self._ops.fdatasync(self._fd)

    def save(self) -> None:
        """Write slots and header, so that the file says what is in it. Raises OSError."""
        for first, pages in _runs(self._dirty):
            values = bytes(self._slots[first * _SLOTS_A_PAGE : (first + pages) * _SLOTS_A_PAGE])
            place = HEADER.size + first * _SLOTS_A_PAGE * _SLOT_SIZE
            write_fully(self._ops, self._fd, _swapped(values).tobytes(), place)
        self._dirty.clear()
        write_fully(self._ops, self._fd, HEADER.pack(*self.header), 0)

    def cut(self, header: IndexHeader) -> None:
        """Go back to an earlier state of this file, whose entries are all still there.

        Entries are written before their slots: so those of the slots that are newer than
        ``header`` says are followed back along their chains, the newest first.
        """
        end = max(self.header.index_count, header.index_count)
        newer: list[tuple[int, int, int, int]] = []
        for entry in self.entries(header.index_count, self.shape.entries):
            if not any(entry) and header.index_count + len(newer) >= end:
                break
            newer.append(entry)
        for number in range(header.index_count + len(newer) - 1, header.index_count - 1, -1):
            key_hash, _, _, previous = newer[number - header.index_count]
            slot = abs(key_hash) % self.shape.slots
            if self._slots[slot] == number:
                self._slots[slot] = previous if previous < number else _NO_ENTRY
                self._dirty.add(slot // _SLOTS_A_PAGE)
        self.header = header
        self._written = header.index_count

    def slot(self, index: int) -> int:
        """As of the file, but from memory."""
        return super().slot(index) if self._is_frozen else self._slots[index]

    def entry(self, number: int) -> bytes:
        """As of the file, or from memory when it is not there yet."""
        place = (number - self._written) * ENTRY.size
        if place < 0:
            return super().entry(number)
        return bytes(self._unwritten[place : place + ENTRY.size])

    def freeze(self) -> None:
        """Give the memory back after the last save(): from now on the file is only read."""
        if not self._is_frozen:
            self._is_frozen = True
            self._slots = memoryview(b"").cast("i")

    def close(self) -> None:
        """Give file and memory back."""
        super().close()
        self.freeze()


def _seconds(timestamp: int, begin_timestamp: int) -> int:
    """What an entry says of a store time, in a file that begins with another."""
    if begin_timestamp <= 0:
        return 0
    return max(0, min((timestamp - begin_timestamp) // 1000, _MAX_INT))


def _swapped(data: bytes) -> array[int]:
    """Big-endian integers as an array of them, or the other way round."""
    values = array("i", data)
    if sys.byteorder == "little":
        values.byteswap()
    return values


def _runs(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Neighbours joined: the first page of each run and how many there are."""
    first = length = 0
    for page in sorted(pages):
        if length and page == first + length:
            length += 1
            continue
        if length:
            yield first, length
        first, length = page, 1
    if length:
        yield first, length
