"""The ``timerwheel`` file: for each moment at which timers are due, where their chain begins.

Byte for byte Apache's TimerWheel and Slot: 1,209,600 slots of 32 bytes, two weeks at a precision of
a second. Slot ``time / precision % 1,209,600`` holds that quotient, the places in the timer log of
its first and last entry, how many there are, and four bytes of no use. A slot stays when its time
is over; the next one with its index takes its place, so a reader compares the quotient.

The slots are worked on in memory, of which only touched pages exist, and what changed goes to the
file now and then, in pages. Nothing is written through a mapping (see segment.py).
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.store.file_ops import FileOps, write_fully
from orbitmq.store.segment import any_byte, create_file, data_ranges

logger = logging.getLogger("orbitmq.store")

SLOT: Final = struct.Struct(">qqqii")
SLOTS: Final = 2 * 7 * 24 * 3600
"""How many slots the wheel has, whatever its precision (TimerMessageStore.slotsTotal * 2)."""
WHEEL_SIZE: Final = SLOTS * SLOT.size
NO_PLACE: Final = -1
"""The first and last place of a slot without entries, and what ends a chain."""

_PAGE: Final = 4096
_PAGE_SLOTS: Final = _PAGE // SLOT.size
_QUOTIENT: Final = struct.Struct(">q")


class Slot(NamedTuple):
    """The timers due at ``time_ms``: places in the timer log, and their ``number``.

    That is less by one for each recall among them (TimerMessageStore.doEnqueue).
    """

    time_ms: int
    first: int
    last: int
    number: int
    magic: int


class TimerWheel:
    """The slots of one store, at a precision of ``precision_ms``.

    ``existed`` says whether there was a file, of the right size, with slots of this precision.
    Raises OSError. For one thread, but what :meth:`take_changes` gave may be written on another.
    """

    def __init__(self, ops: FileOps, path: Path, precision_ms: int) -> None:
        self.precision_ms: Final = precision_ms
        self.path: Final = path
        self._ops = ops
        self._slots = mmap.mmap(-1, WHEEL_SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self._used: set[int] = set()  # pages that may have slots
        self._changed: set[int] = set()  # pages that differ from the file
        self.existed = self._load()

    def slot(self, time_ms: int) -> Slot | None:
        """The slot of a time; None when nothing is due then (TimerWheel.getSlot)."""
        quotient = time_ms // self.precision_ms
        found, *places = SLOT.unpack_from(self._slots, quotient % SLOTS * SLOT.size)
        if found != quotient:
            return None
        return Slot(quotient * self.precision_ms, *places)

    def put(self, slot: Slot) -> None:
        """Set a slot, whatever its place held (TimerWheel.putSlot)."""
        quotient = slot.time_ms // self.precision_ms
        index = quotient % SLOTS
        SLOT.pack_into(self._slots, index * SLOT.size, quotient, *slot[1:])
        self._used.add(index // _PAGE_SLOTS)
        self._changed.add(index // _PAGE_SLOTS)

    def remove(self, time_ms: int) -> None:
        """Empty the slot of a time. Apache leaves it as it was."""
        index = time_ms // self.precision_ms % SLOTS
        SLOT.pack_into(self._slots, index * SLOT.size, 0, 0, 0, 0, 0)
        self._changed.add(index // _PAGE_SLOTS)

    def next_time(self, start_ms: int, stop_ms: int) -> int | None:
        """The first time from ``start_ms`` on, and before ``stop_ms``, that has a slot."""
        start = start_ms // self.precision_ms
        stop = -(-stop_ms // self.precision_ms)
        if stop - start > SLOTS:
            times = (slot.time_ms for slot in self.slots() if start_ms <= slot.time_ms < stop_ms)
            return min(times, default=None)
        while start < stop:
            index = start % SLOTS
            page, first = divmod(index, _PAGE_SLOTS)
            count = min(stop - start, _PAGE_SLOTS - first)
            if page in self._used:
                for place in range(count):
                    at = (index + place) * SLOT.size
                    if _QUOTIENT.unpack_from(self._slots, at)[0] == start + place:
                        return (start + place) * self.precision_ms
            start += count
        return None

    def slots(self) -> Iterator[Slot]:
        """All slots that are not empty, in no order; in Apache's wheel most may be over."""
        for page in sorted(self._used):
            for quotient, *places in SLOT.iter_unpack(self._page(page)):
                if quotient > 0:
                    yield Slot(quotient * self.precision_ms, *places)

    def clear(self) -> None:
        """Forget all slots."""
        for page in self._used:
            self._slots[page * _PAGE : (page + 1) * _PAGE] = bytes(_PAGE)
        self._changed |= self._used
        self._used.clear()

    def take_changes(self) -> dict[int, bytes]:
        """The pages that changed since the last call, by number; the caller is to write them."""
        pages = {page: self._page(page) for page in sorted(self._changed)}
        self._changed.clear()
        return pages

    def give_back(self, pages: dict[int, bytes]) -> None:
        """Take pages for changed again: they could not be written."""
        self._changed.update(pages)

    def write(self, pages: dict[int, bytes]) -> None:
        """Bring pages to the disk, on any thread. Raises OSError."""
        if not pages:
            return
        if self.path.exists():
            fd = self._ops.open(self.path, os.O_RDWR)
        else:
            fd = create_file(self._ops, self.path, WHEEL_SIZE)
        try:
            for page, data in pages.items():
                write_fully(self._ops, fd, data, page * _PAGE)
            self._ops.fdatasync(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give the memory back."""
        self._slots.close()

    def _page(self, page: int) -> bytes:
        return self._slots[page * _PAGE : (page + 1) * _PAGE]

    def _load(self) -> bool:
        try:
            fd = os.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            size = os.fstat(fd).st_size
            if size != WHEEL_SIZE:
                logger.warning("%s has %d bytes, not %d: made anew", self.path, size, WHEEL_SIZE)
                self._ops.unlink(self.path)
                return False
            for start, stop in data_ranges(fd, 0, WHEEL_SIZE):
                data = os.pread(fd, stop - start, start)
                if any_byte(data):
                    self._slots[start : start + len(data)] = data
                    self._used.update(range(start // _PAGE, (start + len(data) - 1) // _PAGE + 1))
        finally:
            os.close(fd)
        return True
