"""Frames that nobody should send: seeds, changed by chance, the same for a number each time."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence

_LENGTHS = struct.Struct(">II")
_PIECES = [
    *(b'"', b"\\", b"{", b"}", b",", b":", b"\\u0000", b"\\ud800", b"\\u00e9", b'\\"', b"\\n"),
    *(b"null", b"true", b"false", b"1e9", b"-1", b"-0", b"00", b"2147483648", b"9" * 19, b"9" * 40),
    *(b"\x00", b"\x01", b"\x02", b"\xff", b"\x80", "京".encode(), b"\xe4\xba", b"\xf0\x9f\x98\x80"),
    *(b"UNIQ_KEY\x01", b"TAGS\x01", b"KEYS\x01", b"DELAY\x01", b"\x02UNIQ_KEY\x01\x02", b"%d"),
    *(b'"extFields":{', b'"e":"3",', b'"b":"orders",', b'"code":310,', b"\x7f\xff\xff\xff"),
]
_VALUES = [
    *(
        b"",
        b"0",
        b"1",
        b"3",
        b"4",
        b"-1",
        b"007",
        b"-0",
        b"+1",
        b" 1",
        b"1 ",
        b"0x1",
        b"1e3",
        b"true",
    ),
    *(
        b"2147483647",
        b"2147483648",
        b"-2147483648",
        b"-2147483649",
        b"9" * 18,
        b"9" * 19,
        b"orders",
    ),
    *(b"\\u0000", b"\\ud83d\\ude00", b"\\ud83d", b"\\/", b"\\b", b"\\u12", "京😀".encode()),
    *(b"UNIQ_KEY\\u0001K\\u0002", b"UNIQ_KEY\\u0001a b\\u0002", b"UNIQ_KEY\x01K\x02", b"%d%016X"),
    *(b"UNIQ_KEY\\u0001K\\u0002TAGS\\u0001" + b"t" * 300, b"x" * 40_000, b"long-" * 20, b"flights"),
]
"""What fields have instead of what they should; in JSON's text form."""
_UNIT = struct.Struct(">qiq")
_SIZES = (0, 1, -1, -(2**31), 2**31 - 1)
_PLACES = (0, -1, -(2**63), 2**31, 2**63 - 1)
_CHANGES = (0, 1, 1, 1, 2, 3)
_LENGTHS_TOO = (0, 1, 3, 4, 7, 8, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


class Mutations:
    """Makes frames out of ``seeds``, by the chance of ``number``."""

    def __init__(self, seeds: Sequence[bytes], number: int) -> None:
        self.chance = random.Random(number)
        self._seeds = [*map(_parts, seeds)]
        self._ways: list[Callable[[bytearray], None]] = [
            self._flip, self._set, self._insert, self._insert, self._delete, self._repeat,
            self._digit, self._splice, self._end, *[self._value] * 4,
        ]  # fmt: skip

    def frame(self) -> bytes:
        """Another one; in most of them the lengths are what they should be."""
        chance = self.chance.random
        header, body = self._seeds[int(chance() * len(self._seeds))]
        head = bytearray(header)
        for _ in range(_CHANGES[int(chance() * len(_CHANGES))]):
            self._ways[int(chance() * len(self._ways))](head)
        form = 0 if chance() < 0.97 else int(chance() * 256)
        rare = chance()
        if rare > 0.02:
            lengths = 4 + len(head) + len(body), form << 24 | len(head)
        elif rare > 0.01:
            lengths = self.chance.choice(_LENGTHS_TOO), form << 24 | len(head)
        else:
            lengths = 4 + len(head) + len(body), self.chance.choice(_LENGTHS_TOO)
        return _LENGTHS.pack(*lengths) + head + body

    def body(self) -> bytes:
        """A body of a seed, changed: of a batch, mostly, whose messages have lengths in it."""
        body = bytearray(self._seeds[int(self.chance.random() * len(self._seeds))][1])
        for _ in range(_CHANGES[int(self.chance.random() * len(_CHANGES))]):
            self._ways[int(self.chance.random() * len(self._ways))](body)
        return bytes(body)

    def units(self) -> bytes:
        """Entries of a queue, many right behind each other, some where there is no log."""
        chance = self.chance.random
        units, position = [], int(chance() * 500)
        for _ in range(int(chance() * 12)):
            rare = chance()
            size = int(chance() * 200)
            if rare < 0.05:
                position = _PLACES[int(chance() * len(_PLACES))]
            elif rare < 0.1:
                size = _SIZES[int(chance() * len(_SIZES))]
            elif rare < 0.3:
                position += int(chance() * 100)
            position = min(position, _PLACES[-1])
            units.append(_UNIT.pack(position, size, int(chance() * 100)))
            position += max(size, 0)
        return b"".join(units)

    def _at(self, data: bytearray) -> int:
        return int(self.chance.random() * len(data))

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] ^= 1 << int(self.chance.random() * 8)

    def _set(self, data: bytearray) -> None:
        if data:
            data[self._at(data)] = int(self.chance.random() * 256)

    def _insert(self, data: bytearray) -> None:
        at = self._at(data)
        data[at:at] = _PIECES[int(self.chance.random() * len(_PIECES))]

    def _delete(self, data: bytearray) -> None:
        at = self._at(data)
        del data[at : at + int(self.chance.random() * 12)]

    def _repeat(self, data: bytearray) -> None:
        at, to = self._at(data), self._at(data)
        data[to:to] = data[at : at + int(self.chance.random() * 60)]

    def _digit(self, data: bytearray) -> None:
        """Another digit where one is."""
        at = self._at(data)
        for place in range(at, min(at + 40, len(data))):
            if 48 <= data[place] <= 57:
                data[place] = 48 + int(self.chance.random() * 10)
                return

    def _value(self, data: bytearray) -> None:
        """Another value for a field."""
        begin = data.find(b'":"', self._at(data)) + 3
        end = data.find(b'"', begin)
        if 3 <= begin <= end:
            data[begin:end] = _VALUES[int(self.chance.random() * len(_VALUES))]

    def _splice(self, data: bytearray) -> None:
        """Ends as another seed does."""
        other, _ = self._seeds[int(self.chance.random() * len(self._seeds))]
        data[self._at(data) :] = other[int(self.chance.random() * len(other)) :]

    def _end(self, data: bytearray) -> None:
        del data[self._at(data) :]


def _parts(frame: bytes) -> tuple[bytes, bytes]:
    """Header and body."""
    header = 8 + (_LENGTHS.unpack_from(frame)[1] & 0xFFFFFF)
    return frame[8:header], frame[header:]
