"""The hash slots of an index file in memory: each has the number of the newest entry of its keys.

Putting a key in touches a slot anywhere in their 20 MB, so they are not written one by one: what
was touched is remembered by pages, to be saved now and then.
"""

from __future__ import annotations

import mmap
import struct
import sys
from array import array
from typing import Final

from orbitmq.compiled import compiled
from orbitmq.store.index_keys import KEY

ENTRY: Final = struct.Struct(">iqii")
"""Hash of the key, physical offset, seconds since the file's first store time, entry before."""

SLOT_SIZE: Final = 4
SLOTS_A_PAGE: Final = 1024
NO_ENTRY: Final = 0
_MAX_INT: Final = 2**31 - 1


@compiled
class IndexSlots:
    """So many slots, ``number``, without an entry at first. What is not there is an IndexError."""

    def __init__(self, number: int) -> None:
        memory = mmap.mmap(-1, number * SLOT_SIZE)  # taken where it is touched only
        self._slots: memoryview[int] = memoryview(memory).cast("i")
        self._touched = bytearray(number // SLOTS_A_PAGE + 1)

    def __getitem__(self, index: int) -> int:
        return self._slots[index]

    def __setitem__(self, index: int, entry: int) -> None:
        self._slots[index] = entry
        self._touched[index // SLOTS_A_PAGE] = 1

    def put(self, keys: bytes, number: int, begin_timestamp: int) -> tuple[bytes, int]:
        """The ENTRYs for KEYs, from entry ``number`` on; and how many slots had none.

        ``begin_timestamp`` is what their seconds are counted from.
        """
        slots, touched, pack = self._slots, self._touched, ENTRY.pack
        slot_number = len(slots)
        entries: list[bytes] = []
        used = 0
        known: int | None = None  # the store time that ``seconds`` is for
        seconds = 0
        for offset, timestamp, key_hash in KEY.iter_unpack(keys):
            slot = key_hash % slot_number
            previous = slots[slot]
            if not NO_ENTRY < previous < number:
                previous = NO_ENTRY
                used += 1
            if timestamp != known:
                known, seconds = timestamp, _seconds(timestamp, begin_timestamp)
            entries.append(pack(key_hash, offset, seconds, previous))
            slots[slot] = number
            touched[slot // SLOTS_A_PAGE] = 1
            number += 1
        return b"".join(entries), used

    def load(self, first: int, stored: bytes) -> None:
        """Take slots as a file has them, from slot ``first`` on."""
        values = swapped(stored)
        self._slots[first : first + len(values)] = memoryview(values)

    def stored(self, first: int, stop: int) -> bytes:
        """The slots ``first`` to ``stop`` - 1, or less where there are not as many, for a file."""
        return swapped(bytes(self._slots[first:stop])).tobytes()

    def touched(self) -> bytes:
        """A byte for each page of slots, not 0 where one was put in since forget_touched()."""
        return bytes(self._touched)

    def forget_touched(self) -> None:
        """All pages are saved."""
        self._touched = bytearray(len(self._touched))


def _seconds(timestamp: int, begin_timestamp: int) -> int:
    """What an entry says of a store time, in a file that begins with another."""
    if begin_timestamp <= 0:
        return 0
    return max(0, min((timestamp - begin_timestamp) // 1000, _MAX_INT))


def swapped(data: bytes) -> array[int]:
    """Big-endian integers as an array of them, or the other way round."""
    values = array("i", data)
    if sys.byteorder == "little":
        values.byteswap()
    return values
