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

import os
import struct
from collections.abc import Iterable, Iterator
from itertools import compress, count
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.store.file_ops import FileOps, write_fully
from orbitmq.store.index_keys import KEY
from orbitmq.store.index_slots import (
    ENTRY,
    NO_ENTRY,
    SLOT_SIZE,
    SLOTS_A_PAGE,
    IndexSlots,
    swapped,
)
from orbitmq.store.segment import create_file, data_ranges

HEADER: Final = struct.Struct(">qqqqii")
"""First and last store time (ms), first and last physical offset, used slots, next entry."""

_SLOT: Final = struct.Struct(">i")
_PIECE: Final = 5_000


class IndexShape(NamedTuple):
    """How many hash slots a file has, and how many entries, of which the first is never used."""

    slots: int
    entries: int

    @property
    def first_entry(self) -> int:
        """Where in the file entry 0 stands."""
        return HEADER.size + self.slots * SLOT_SIZE

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
        if not NO_ENTRY < number < header.index_count:
            return
        while not walk.is_done:
            walk.steps -= 1
            key_hash, offset, seconds, previous = ENTRY.unpack(self.entry(number))
            if seconds < 0:
                return
            timestamp = header.begin_timestamp + seconds * 1000
            if key_hash == walk.key_hash and walk.begin <= timestamp <= walk.end:
                walk.found.append(offset)
            is_last = not NO_ENTRY < previous < header.index_count or previous == number
            if is_last or timestamp < walk.begin:
                return
            number = previous

    def slot(self, index: int) -> int:
        """The number of the newest entry in a slot, 0 for none."""
        data = os.pread(self._fd, SLOT_SIZE, HEADER.size + index * SLOT_SIZE)
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
        for first, stored in self._slot_pieces():
            yield from ((first + i, value) for i, value in enumerate(swapped(stored)) if value)

    def _slot_pieces(self) -> Iterator[tuple[int, bytes]]:
        """The slots that are not in holes of the file, many at once, and the first one's index."""
        for start, stop in data_ranges(self._fd, HEADER.size, self.shape.first_entry):
            yield (start - HEADER.size) // SLOT_SIZE, os.pread(self._fd, stop - start, start)

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
        self._slots = IndexSlots(shape.slots)
        self._is_frozen = False
        self._unwritten = bytearray()
        self._written = self.header.index_count
        if not create:
            for first, stored in self._slot_pieces():
                self._slots.load(first, stored)

    @property
    def unwritten(self) -> int:
        """How many bytes of entries the disk did not take yet."""
        return len(self._unwritten)

    def begin_behind(self, previous: IndexHeader) -> None:
        """Start a new file behind another (the constructor of IndexFile)."""
        self.header = IndexHeader(
            previous.end_timestamp, previous.end_timestamp, previous.end_offset, previous.end_offset
        )

    def put(self, keys: bytes) -> int:
        """Put KEYs in while there is room; how many bytes of them (IndexFile.putKey)."""
        begin_timestamp, end_timestamp, begin_offset, end_offset, used, count = self.header
        room = (self.shape.entries - count) * KEY.size
        first = KEY.size if count <= 1 else 0  # by which the others count their seconds
        for part in (keys[:first], keys[first:room]):
            if part:
                entries, newly = self._slots.put(part, count, begin_timestamp)
                self._unwritten += entries
                if count <= 1:
                    begin_offset, begin_timestamp, _ = KEY.unpack_from(part)
                end_offset, end_timestamp, _ = KEY.unpack_from(part, len(part) - KEY.size)
                count += len(part) // KEY.size
                used += newly
        self.header = IndexHeader(
            begin_timestamp, end_timestamp, begin_offset, end_offset, used, count
        )
        return min(len(keys), room)

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
        for page, pages in _runs(compress(count(), self._slots.touched())):
            first = page * SLOTS_A_PAGE
            stored = self._slots.stored(first, first + pages * SLOTS_A_PAGE)
            write_fully(self._ops, self._fd, stored, HEADER.size + first * SLOT_SIZE)
        self._slots.forget_touched()
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
                self._slots[slot] = previous if previous < number else NO_ENTRY
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
            self._slots = IndexSlots(1)

    def close(self) -> None:
        """Give file and memory back."""
        super().close()
        self.freeze()


def _runs(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Neighbours among ascending ones joined: the first of each run and how many there are."""
    first = length = 0
    for page in pages:
        if length and page == first + length:
            length += 1
            continue
        if length:
            yield first, length
        first, length = page, 1
    if length:
        yield first, length
