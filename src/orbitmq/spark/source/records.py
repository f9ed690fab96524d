"""The records of a pull answer, looked at all at once.

A pull answer is commit-log records, one after another. Here numpy finds where each begins, gathers
the fixed parts of all of them, and takes their properties apart, without a Python object for each
record. Variable parts are cut out by Arrow: an array whose elements are alternately a wanted piece
and what lies between is laid over the bytes as they are, and ``take`` copies every other element.
"""

from __future__ import annotations

import struct
from array import array
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.errors import RecordError
from orbitmq.wire.properties import decode_properties
from orbitmq.wire.record import LAYOUTS, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE

Positions: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_SIZE = struct.Struct(">I")
_SIZE_TYPE: Final = np.dtype(">u4")
_MAGIC_BYTES: Final = MAGIC_V1.to_bytes(4, "big")
_RECORDS_PER_LANE: Final = 20
_LEAST_LANES: Final = 50
_MOST_STEPS: Final = 10 * _RECORDS_PER_LANE

_HEX: Final = np.frombuffer(b"".join(b"%02X" % byte for byte in range(256)), np.uint16)
_SEPARATOR: Final = 1  # between a property's name and value
_TERMINATOR: Final = 2  # behind the value
_CODE: Final = np.dtype("=u4")

# The part of a record that lies in one place whatever its hosts; then what follows each host.
_HEAD: Final = np.dtype(
    {
        "names": [
            "magic",
            "queue_id",
            "flag",
            "queue_offset",
            "physical_offset",
            "sys_flag",
            "born",
        ],
        "formats": [">u4", ">i4", ">i4", ">i8", ">i8", ">i4", ">i8"],
        "offsets": [
            LAYOUTS[0].magic,
            LAYOUTS[0].queue_id,
            LAYOUTS[0].flag,
            LAYOUTS[0].queue_offset,
            LAYOUTS[0].physical_offset,
            LAYOUTS[0].sys_flag,
            LAYOUTS[0].born_timestamp,
        ],
        "itemsize": LAYOUTS[0].born_host,
    }
)
_TAIL: Final = np.dtype(
    [("reconsume_times", ">i4"), ("prepared_transaction", ">i8"), ("body_length", ">i4")]
)
_ID: Final = np.dtype([("host", "V8"), ("offset", ">i8")])
_TIMESTAMP: Final = np.dtype(">i8")
_LENGTH: Final = np.dtype(">i2")
_STORE_TIMESTAMP: Final = np.array([layout.store_timestamp for layout in LAYOUTS])
_RECONSUME_TIMES: Final = np.array([layout.reconsume_times for layout in LAYOUTS])
_BODY: Final = np.array([layout.body for layout in LAYOUTS])


class Entries(NamedTuple):
    """The key-value pairs of all records' properties, in order.

    ``per_record`` tells how many each record has, as one number where all have the same. The
    positions count in the properties' bytes.
    """

    per_record: int | Positions
    key: Positions
    key_end: Positions
    value: Positions
    value_end: Positions


class Records:
    """The records in ``data``, which must hold whole records and nothing else.

    Raises RecordError when it does not. Everything is computed when first asked for.
    """

    def __init__(self, data: bytes, bounds: tuple[Positions, Positions] | None = None) -> None:
        self.data = data
        self.starts, self.ends = bounds or _record_bounds(data)

    def __len__(self) -> int:
        return len(self.starts)

    def only(self, wanted: npt.NDArray[np.bool_]) -> Records:
        """The records for which ``wanted`` is true."""
        return Records(self.data, (self.starts[wanted], self.ends[wanted]))

    @cached_property
    def head(self) -> npt.NDArray[Any]:
        """The fields before the born host."""
        head = _gather(self.data, self.starts, _HEAD)
        magic = head["magic"]
        if not ((magic == MAGIC_V1) | (magic == MAGIC_V2)).all():
            raise RecordError("the pull answer holds something that is not a record")
        return head

    @cached_property
    def store_timestamp(self) -> npt.NDArray[Any]:
        """When the broker stored each message, ms since the epoch."""
        return _gather(self.data, self.starts + _STORE_TIMESTAMP[self._layout], _TIMESTAMP)

    @cached_property
    def tail(self) -> npt.NDArray[Any]:
        """The fields after the store host."""
        return _gather(self.data, self.starts + _RECONSUME_TIMES[self._layout], _TAIL)

    @property
    def store_host_and_offset(self) -> Bytes | None:
        """The 16 bytes each offset message id is made of; None unless all hosts are IPv4."""
        if not isinstance(self._layout, int):
            return None
        hosts = _gather(self.data, self.starts + LAYOUTS[0].store_host, _ID)
        parts = np.empty(len(self), _ID)
        parts["host"] = hosts["host"]
        parts["offset"] = self.head["physical_offset"]
        return parts.view(np.uint8).reshape(len(self), _ID.itemsize)

    @property
    def store_hosts(self) -> list[bytes]:
        """The store host of each record as stored: its address and port."""
        layouts = np.broadcast_to(self._layout, len(self)).tolist()
        return [
            self.data[start + LAYOUTS[layout].store_host : start + LAYOUTS[layout].reconsume_times]
            for start, layout in zip(self.starts.tolist(), layouts, strict=True)
        ]

    @cached_property
    def body(self) -> Positions:
        """Where each body begins."""
        begin: Positions = self.starts + _BODY[self._layout]
        return begin

    @cached_property
    def body_end(self) -> Positions:
        """Where each body ends and the topic's length stands."""
        length = self.tail["body_length"].astype(np.int64)
        end: Positions = self.body + length
        if (length < 0).any() or (end >= self.ends).any():
            raise RecordError("the body of a record does not fit into it")
        return end

    @cached_property
    def properties(self) -> Any:
        """Each record's properties as stored: an Arrow binary array."""
        topic = self.body_end + 1
        topic_length = np.frombuffer(self.data, np.uint8)[self.body_end].astype(np.int64)
        long_topic = self.head["magic"] == MAGIC_V2
        if long_topic.any():
            wide = _gather(self.data, self.body_end[long_topic], _LENGTH)
            if (wide < 0).any():
                raise RecordError("a record has a topic of negative length")
            topic[long_topic] += 1
            topic_length[long_topic] = wide
        start = topic + topic_length + 2
        length = _gather(self.data, start - 2, _LENGTH)
        if (length < 0).any() or (start + length != self.ends).any():
            raise RecordError("the parts of a record do not add up to its size")
        return pieces(self.data, start, self.ends)

    @cached_property
    def entries(self) -> Entries | None:
        """The properties pair by pair; None when a stray separator stands in the way."""
        data, bounds = _contents(self.properties)
        begins, ends = bounds[:-1], bounds[1:]
        if len(data) < _CODE.itemsize:
            return None  # too short to compare names in
        # Two searches for what is rare take less time than one for what is common.
        separator = np.flatnonzero(data == _SEPARATOR)
        terminator = np.flatnonzero(data == _TERMINATOR)
        key = np.empty_like(separator)
        last = ends[ends > begins]
        last = last[data[last - 1] != _TERMINATOR]
        if last.size:
            # Brokers before 5.x leave out the terminator of the last pair: add one, of no width.
            terminator = np.sort(np.concatenate((terminator, last)))
        if len(separator) != len(terminator):
            return None
        key[:1] = 0
        np.add(terminator[:-1], 1, out=key[1:])
        if last.size:
            key[1:] -= np.isin(terminator[:-1], last)
        if not ((separator > key) & (terminator > separator + 1)).all():
            return None  # readers drop pairs without a name or a value
        return Entries(
            _pairs_per_record(terminator, begins, ends), key, separator, separator + 1, terminator
        )

    @cached_property
    def _codes(self) -> Any:
        """The last four bytes of each property's name, as one number."""
        entries = self.entries
        if entries is None:
            return np.empty(0, _CODE)
        data, _ = _contents(self.properties)
        return _gather(data, np.maximum(entries.key_end - _CODE.itemsize, 0), _CODE)

    def property_column(self, name: str) -> Any:
        """The values of the property ``name``, null where a record has none: Arrow strings.

        Names are compared four bytes at a time, so ``name`` must take a multiple of that.
        """
        entries, count = self.entries, len(self)
        if entries is None:
            return pa.array([pairs.get(name) for pairs in self._decoded_properties], pa.string())
        data, _ = _contents(self.properties)
        wanted = name.encode()
        named = self._codes == np.frombuffer(wanted[-_CODE.itemsize :], _CODE)
        if not named.any():
            return pa.nulls(count, pa.string())
        place, per_record = int(named.argmax()), entries.per_record
        if isinstance(per_record, int) and place < per_record:
            # Most often all records of a pull have the same properties in the same order.
            rows = slice(place, None, per_record)
            if (
                np.count_nonzero(named) == count
                and named[rows].all()
                and _has_name(wanted, data, entries, rows).all()
            ):
                return _text(pieces(data, entries.value[rows], entries.value_end[rows]))
        match = np.flatnonzero(named)
        match = match[_has_name(wanted, data, entries, match)]
        values = pieces(data, entries.value[match], entries.value_end[match])
        record = np.repeat(np.arange(count), per_record)[match]
        # Of a repeated name the last counts, as in Java's HashMap.
        chosen = np.full(count, -1, np.int32)
        chosen[record] = np.arange(len(match), dtype=np.int32)
        return _text(values.take(pa.array(chosen, mask=chosen < 0)))

    def property_maps(self, map_type: Any) -> Any:
        """All properties of each record: an Arrow array of ``map_type``."""
        entries = self.entries
        if entries is None:
            pairs = [list(properties.items()) for properties in self._decoded_properties]
            return pa.array(pairs, map_type)
        data, _ = _contents(self.properties)
        offsets = np.zeros(len(self) + 1, np.int32)
        offsets[1:] = entries.per_record
        np.cumsum(offsets, out=offsets)
        keys = _text(pieces(data, entries.key, entries.key_end))
        values = _text(pieces(data, entries.value, entries.value_end))
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=map_type)

    @cached_property
    def _layout(self) -> int | npt.NDArray[Any]:
        """Which of LAYOUTS each record has; one number where all have IPv4 hosts."""
        layouts = self.head["sys_flag"] >> 4 & 3
        return layouts if layouts.any() else 0

    @cached_property
    def _decoded_properties(self) -> list[dict[str, str]]:
        return [decode_properties(properties) for properties in self.properties.to_pylist()]


def cut_at(data: bytes, end_offset: int) -> bytes:
    """The records in ``data``, an answer of one queue, that stand before ``end_offset``."""
    records = Records(data)
    kept = int(np.searchsorted(records.head["queue_offset"].astype(np.int64), end_offset))
    return data if kept == len(records) else data[: int(records.starts[kept])]


def _record_bounds(data: bytes) -> tuple[Positions, Positions]:
    """Where each record begins and ends."""
    bounds = _of_one_size(data)
    if bounds is None:
        bounds = _walk_side_by_side(data)
    if bounds is None:
        bounds = _walk(data)
    if bounds[-1] != len(data) or (np.diff(bounds) < MIN_RECORD_SIZE).any():
        raise RecordError(f"a pull answer of {len(data)} bytes is not made of whole records")
    return bounds[:-1], bounds[1:]


def _walk(data: bytes) -> Positions:
    """Follow the sizes from record to record; what comes last is the end, if all is well."""
    bounds = array("q")
    add, size_at = bounds.append, _SIZE.unpack_from
    position, end = 0, len(data)
    beyond = end + 1
    try:
        while position < end:
            add(position)
            (size,) = size_at(data, position)
            position += size or beyond
    except struct.error:
        position = beyond
    add(position)
    return np.frombuffer(bounds, np.int64)


def _of_one_size(data: bytes) -> Positions | None:
    """As :func:`_walk` where all records are as long as the first; None where they are not."""
    end, size = len(data), int.from_bytes(data[:4], "big")
    if size < MIN_RECORD_SIZE or end % size:
        return None
    bounds = np.arange(0, end + 1, size)
    sizes = _gather(data, bounds[:-1], _SIZE_TYPE)
    return bounds if (sizes == size).all() else None


def _walk_side_by_side(data: bytes) -> Positions | None:
    """As :func:`_walk`, some times as fast where there are many records; None where there are not.

    The data is cut into lanes at records found by their magic, and all lanes are walked at the
    same time. Each must end where the next begins: otherwise a magic stood in a body.
    """
    end = len(data)
    lane = int.from_bytes(data[:4], "big") * _RECORDS_PER_LANE
    if lane < MIN_RECORD_SIZE or end < lane * _LEAST_LANES:
        return None
    begins = [0]
    for guess in range(lane, end, lane):
        begin = data.find(_MAGIC_BYTES, guess + 4) - 4
        if begin > begins[-1]:
            begins.append(begin)
    if len(begins) < _LEAST_LANES // 2:  # other magics, or sizes that differ widely
        return None
    first = np.array(begins)
    stop = np.append(first[1:], end)
    size_at = _windows(data, _SIZE_TYPE)
    last = len(size_at) - 1
    steps = [first]
    for _ in range(_MOST_STEPS):
        # A lane at its end stays there. One that leads beyond is noticed at the end of it all.
        size = size_at[np.minimum(steps[-1], last)].view(_SIZE_TYPE)
        steps.append(np.minimum(steps[-1] + size, stop))
        if len(steps) > _RECORDS_PER_LANE and (steps[-1] == stop).all():
            break
    else:
        return None
    lanes = np.stack(steps, axis=1)
    bounds = np.append(lanes[lanes < stop[:, np.newaxis]], end)
    sizes = size_at[bounds[:-1]].view(_SIZE_TYPE)
    return bounds if (np.diff(bounds) == sizes).all() else None


def _has_name(
    name: bytes, data: Bytes, entries: Entries, which: slice | Positions
) -> npt.NDArray[np.bool_]:
    """Whether the entries chosen by ``which``, whose names end as ``name`` does, have that name."""
    end = entries.key_end[which]
    same: npt.NDArray[np.bool_] = end - entries.key[which] == len(name)
    for at in range(0, len(name) - _CODE.itemsize, _CODE.itemsize):
        there = _gather(data, np.maximum(end + (at - len(name)), 0), _CODE)
        same &= there == np.frombuffer(name[at : at + _CODE.itemsize], _CODE)
    return same


def _pairs_per_record(terminator: Positions, begins: Positions, ends: Positions) -> int | Positions:
    """How many pairs each record has, given where pairs and records end."""
    pairs, records = len(terminator), len(ends)
    if records and pairs and pairs % records == 0:
        each = pairs // records
        last = terminator[each - 1 :: each]
        if ((last == ends - 1) | (last == ends)).all() and (ends > begins).all():
            return each
    return np.diff(np.searchsorted(terminator, ends, "right"), prepend=0)


def _gather(data: bytes | Bytes, positions: Positions, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The ``dtype`` that stands at each of ``positions``; each is copied as one piece."""
    try:
        return _windows(data, dtype)[positions].view(dtype)
    except IndexError as error:
        raise RecordError("a record's lengths lead out of the pull answer") from error


def _windows(data: bytes | Bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """What stands at each position of ``data``, as opaque pieces of the size of ``dtype``."""
    size = dtype.itemsize
    return np.ndarray(max(len(data) - size + 1, 0), f"V{size}", data, strides=(1,))


def pieces(data: bytes | Bytes, starts: Positions, ends: Positions) -> Any:
    """``data[start:end]`` for each pair of ``starts`` and ``ends``, which must ascend: binary."""
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = starts
    bounds[1::2] = ends
    if (np.diff(bounds) < 0).any() or bounds[-1] > len(data):
        raise RecordError("the records' lengths overlap")
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    joined = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    return joined.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def hex_strings(rows: Bytes) -> Any:
    """Each row of bytes in hexadecimal digits, upper case: Arrow strings."""
    digits = _HEX[rows]
    offsets = np.arange(0, digits.size * 2 + 1, 2 * rows.shape[1], dtype=np.int32)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))]
    return pa.Array.from_buffers(pa.string(), len(rows), buffers)


def _contents(binary: Any) -> tuple[Bytes, Positions]:
    """The bytes of a binary array end to end, and the ``len + 1`` bounds of its elements."""
    _, offsets, data = binary.buffers()
    bounds = np.frombuffer(offsets, np.int32)[: len(binary) + 1].astype(np.int64)
    content = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return content[: bounds[-1]], bounds


def _text(binary: Any) -> Any:
    """Binary as strings; bytes that are not UTF-8 become U+FFFD."""
    try:
        return binary.cast(pa.string())
    except pa.ArrowInvalid:
        rows = binary.to_pylist()
        decoded = [None if row is None else row.decode("utf-8", "replace") for row in rows]
        return pa.array(decoded, pa.string())
