"""Messages in the form a batch carries them in, many at a time, without an object for each.

Arrow's kernels put head, body and properties of every row beside each other; what comes out is the
body of a batch, to be cut wherever a message ends (MessageDecoder.encodeMessages).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = npt.NDArray[np.int64]
Ids: TypeAlias = npt.NDArray[np.uint8]
"""A row of 32 hexadecimal digits, as ASCII, for each message."""

ALONE: Final = 1 << 30
"""In a message's kind: it may not travel in a batch, which a delayed message may not."""

_HEAD: Final = np.dtype(
    [("size", ">i4"), ("magic", ">i4"), ("crc", ">i4"), ("flag", ">i4"), ("body_length", ">i4")]
)
_LENGTH: Final = np.dtype(">i2")
BESIDE: Final = _HEAD.itemsize + _LENGTH.itemsize
"""What a message takes in a batch beside its body and properties."""


class Parts(NamedTuple):
    """One message of a batch's body."""

    flag: int
    body: bytes
    properties: bytes


class Frames:
    """Messages as they lie in the body of a batch, one behind the other.

    ``offsets`` tell where in ``data`` each begins, and where the last one ends. ``kinds`` has the
    sysFlag of each, and ALONE; ``rows`` its number among the rows of the task; ``ids`` the 32
    digits of its unique id.
    """

    __slots__ = ("data", "ids", "kinds", "offsets", "rows")

    def __init__(
        self, data: memoryview, offsets: Numbers, kinds: Numbers, rows: Numbers, ids: Ids
    ) -> None:
        self.data = data
        self.offsets = offsets
        self.kinds = kinds
        self.rows = rows
        self.ids = ids

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, wanted: Numbers) -> Frames:
        """The messages with these indices, in their order."""
        taken = _array(self.data, self.offsets).take(pa.array(wanted))
        return frames_of(taken, self.kinds[wanted], self.rows[wanted], self.ids[wanted])

    def run_end(self, begin: int) -> int:
        """Where the messages of one kind that begin with number ``begin`` end."""
        other = np.flatnonzero(self.kinds[begin:] != self.kinds[begin])
        return begin + int(other[0]) if len(other) else len(self)

    def cut(self, begin: int, count: int, size: int) -> int:
        """The end of the messages from ``begin`` on that ``size`` bytes hold, ``count`` at most."""
        last = int(np.searchsorted(self.offsets, self.offsets[begin] + size, "right")) - 1
        return max(begin, min(begin + count, last))

    def bytes_of(self, begin: int, end: int) -> memoryview:
        """The body of a batch of some of them."""
        return self.data[self.offsets[begin] : self.offsets[end]]


def joined(body: Any, properties: Any, flags: Any) -> Any:
    """Each message of Arrow's binary arrays ``body`` and ``properties`` as a batch has it."""
    count = len(body)
    body_lengths, property_lengths = lengths(body), lengths(properties)
    heads = np.zeros(count, _HEAD)
    heads["size"] = BESIDE + body_lengths + property_lengths
    heads["flag"] = flags
    heads["body_length"] = body_lengths
    return pc.binary_join_element_wise(
        fixed(heads.view(np.uint8).reshape(count, _HEAD.itemsize)),
        body,
        fixed(property_lengths.astype(_LENGTH).view(np.uint8).reshape(count, _LENGTH.itemsize)),
        properties,
        b"",
    )


def frames_of(array: Any, kinds: Numbers, rows: Numbers, ids: Ids) -> Frames:
    """What :func:`joined` gave, with what belongs to it."""
    offsets, data = bytes_of(array)
    return Frames(data, offsets, kinds, rows, ids)


def parts_of(frame: memoryview | bytes) -> Parts:
    """Flag, body and properties of the one message in ``frame``."""
    head = np.frombuffer(frame, _HEAD, 1)[0]
    end = _HEAD.itemsize + int(head["body_length"])
    begin = end + _LENGTH.itemsize
    return Parts(int(head["flag"]), bytes(frame[_HEAD.itemsize : end]), bytes(frame[begin:]))


def fixed(table: npt.NDArray[np.uint8]) -> Any:
    """The rows of ``table`` as an Arrow binary array, without a copy."""
    count, width = table.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(table))]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def lengths(array: Any) -> Numbers:
    """The length of each element of a binary or text array; 0 of a null."""
    found = pc.binary_length(array)
    if found.null_count:
        found = found.fill_null(0)
    numbers: Numbers = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers


def bytes_of(array: Any) -> tuple[Numbers, memoryview]:
    """Where each element of a binary array begins, and the last one ends, in which bytes."""
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return ends.astype(np.int64), memoryview(data or b"")


def _array(data: memoryview, offsets: Numbers) -> Any:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)
