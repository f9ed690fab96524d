"""Pull answers to Arrow columns, without a Python object for each message.

A pull answer is commit-log records, one after another. The records' fixed parts are gathered at
once with numpy; bodies, tags, keys, ids and property maps are cut out of the answer by Arrow: an
array whose elements are alternately a wanted piece and what lies between is laid over the bytes as
they are, and ``take`` copies every other element out of it. A column nobody asks for costs nothing.
Rows are looked at one by one only for what is rare: compressed bodies, messages without a unique
id, text that is not UTF-8, properties with stray separators.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.errors import RecordError
from orbitmq.wire.compress import COMPRESSED, decompress
from orbitmq.wire.ids import offset_message_id
from orbitmq.wire.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from orbitmq.wire.record import LAYOUTS, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE

Positions: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

_SIZE = struct.Struct(">i")

# The part of a record that lies in one place whatever its hosts; then what follows each host.
_HEAD: Final = np.dtype(
    {
        "names": ["magic", "queue_id", "queue_offset", "physical_offset", "sys_flag", "born"],
        "formats": [">u4", ">i4", ">i8", ">i8", ">i4", ">i8"],
        "offsets": [
            LAYOUTS[0].magic,
            LAYOUTS[0].queue_id,
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
_TIMESTAMP: Final = np.dtype(">i8")
_LENGTH: Final = np.dtype(">i2")
_STORE_TIMESTAMP: Final = np.array([layout.store_timestamp for layout in LAYOUTS])
_RECONSUME_TIMES: Final = np.array([layout.reconsume_times for layout in LAYOUTS])
_BODY: Final = np.array([layout.body for layout in LAYOUTS])


class Entries(NamedTuple):
    """The key-value pairs of all records' properties, in order.

    ``record`` is the index of a pair's record; the positions count in the properties' bytes.
    """

    record: Positions
    key: Positions
    key_end: Positions
    value: Positions
    value_end: Positions


class Records:
    """The records in ``data``, which must hold whole records and nothing else.

    Raises RecordError when it does not. Everything is computed when first asked for.
    """

    def __init__(self, data: bytes, starts: Positions | None = None) -> None:
        self.data = data
        self.starts = _record_starts(data) if starts is None else starts

    def __len__(self) -> int:
        return len(self.starts)

    def only(self, wanted: npt.NDArray[np.bool_]) -> Records:
        """The records for which ``wanted`` is true."""
        return Records(self.data, self.starts[wanted])

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

    @cached_property
    def body(self) -> Positions:
        """Where each body begins."""
        begin: Positions = self.starts + _BODY[self._layout]
        return begin

    @cached_property
    def body_end(self) -> Positions:
        """Where each body ends and the topic's length stands."""
        length: Positions = self.tail["body_length"].astype(np.int64)
        if (length < 0).any():
            raise RecordError("a record has a body of negative length")
        return self.body + length

    @cached_property
    def properties(self) -> Any:
        """Each record's properties as stored: an Arrow binary array."""
        body_end = self.body_end
        data = np.frombuffer(self.data, np.uint8)
        try:
            topic_length = data[body_end].astype(np.int64)
            topic = body_end + 1
            long_topic = self.head["magic"] == MAGIC_V2
            if long_topic.any():
                wide = _gather(self.data, body_end[long_topic], _LENGTH)
                topic_length[long_topic] = wide
                topic[long_topic] += 1
        except IndexError as error:
            raise RecordError("a record ends within its body") from error
        start = topic + topic_length + 2
        end = start + _gather(self.data, start - 2, _LENGTH)
        sizes = _gather(self.data, self.starts, np.dtype(">i4"))
        if (end < start).any() or (end != self.starts + sizes).any():
            raise RecordError("the parts of a record do not add up to its size")
        return _pieces(self.data, start, end)

    @cached_property
    def entries(self) -> Entries | None:
        """The properties pair by pair; None when a stray separator stands in the way."""
        data, bounds = _contents(self.properties)
        separator = np.flatnonzero(data == 1)
        terminator = np.flatnonzero(data == 2)
        following = terminator + 1
        # Brokers before 5.x leave out the terminator of the last pair: add one, of no width.
        ends = bounds[1:]
        open_end = ends[ends > bounds[:-1]]
        open_end = open_end[data[open_end - 1] != 2]
        if open_end.size:
            order = np.argsort(np.concatenate((terminator, open_end)), kind="stable")
            terminator = np.concatenate((terminator, open_end))[order]
            following = np.concatenate((following, open_end))[order]
        key = np.concatenate((bounds[:1], following[:-1])) if following.size else following
        if len(separator) != len(terminator):
            return None
        if (separator < key).any() or (separator >= terminator).any():
            return None
        last = np.searchsorted(separator, ends)
        counts = np.diff(last, prepend=0)
        record = np.repeat(np.arange(len(self)), counts)
        found = (separator > key) & (terminator > separator + 1)  # readers drop what is empty
        entries = Entries(record, key, separator, separator + 1, terminator)
        return entries if found.all() else Entries(*(column[found] for column in entries))

    def property_column(self, name: str) -> Any:
        """The values of the property ``name``, null where a record has none: Arrow strings.

        Names are compared as one integer, so ``name`` must take 4 or 8 bytes.
        """
        entries = self.entries
        if entries is None:
            return pa.array([pairs.get(name) for pairs in self._decoded_properties], pa.string())
        data, _ = _contents(self.properties)
        wanted = np.frombuffer(name.encode(), f"u{len(name)}")
        candidate = np.flatnonzero(entries.key_end - entries.key == len(name))
        match = candidate[_gather(data, entries.key[candidate], wanted.dtype) == wanted]
        values = _pieces(data, entries.value[match], entries.value_end[match])
        record = entries.record[match]
        if len(match) == len(self) and (np.diff(record) == 1).all():
            return _text(values)
        # Of a repeated name the last counts, as in Java's HashMap.
        place = np.full(len(self), -1, np.int32)
        place[record] = np.arange(len(match), dtype=np.int32)
        return _text(values.take(pa.array(place, mask=place < 0)))

    def property_maps(self, map_type: Any) -> Any:
        """All properties of each record: an Arrow array of ``map_type``."""
        entries = self.entries
        if entries is None:
            pairs = [list(properties.items()) for properties in self._decoded_properties]
            return pa.array(pairs, map_type)
        data, _ = _contents(self.properties)
        offsets = np.zeros(len(self) + 1, np.int32)
        np.cumsum(np.bincount(entries.record, minlength=len(self)), out=offsets[1:])
        keys = _text(_pieces(data, entries.key, entries.key_end))
        values = _text(_pieces(data, entries.value, entries.value_end))
        return pa.MapArray.from_arrays(pa.array(offsets), keys, values, type=map_type)

    @property
    def _layout(self) -> npt.NDArray[Any]:
        return self.head["sys_flag"] >> 4 & 3

    @cached_property
    def _decoded_properties(self) -> list[dict[str, str]]:
        return [decode_properties(properties) for properties in self.properties.to_pylist()]


def _topic(_records: Records, context: Context) -> Any:
    return pa.repeat(pa.scalar(context.topic), len(_records))


def _broker_name(records: Records, context: Context) -> Any:
    return pa.repeat(pa.scalar(context.broker_name), len(records))


def _queue_id(records: Records, _: Context) -> Any:
    return pa.array(records.head["queue_id"].astype(np.int32))


def _queue_offset(records: Records, _: Context) -> Any:
    return pa.array(records.head["queue_offset"].astype(np.int64))


def _message_id(records: Records, _: Context) -> Any:
    """The producer's unique id, else the offset message id (MessageClientExt.getMsgId)."""
    ids = records.property_column(UNIQ_KEY)
    if not ids.null_count:
        return ids
    found = ids.to_pylist()
    for row, message_id in enumerate(found):
        if message_id is None:
            layout = LAYOUTS[records.head["sys_flag"][row] >> 4 & 3]
            start = int(records.starts[row])
            host = records.data[start + layout.store_host : start + layout.reconsume_times]
            offset = int(records.head["physical_offset"][row])
            found[row] = offset_message_id(host, offset)
    return pa.array(found, pa.string())


def _tags(records: Records, _: Context) -> Any:
    return records.property_column(TAGS)


def _keys(records: Records, _: Context) -> Any:
    return records.property_column(KEYS)


def _body(records: Records, _: Context) -> Any:
    sys_flag = records.head["sys_flag"]
    bodies = _pieces(records.data, records.body, records.body_end)
    if not (sys_flag & COMPRESSED).any():
        return bodies
    rows = zip(bodies.to_pylist(), sys_flag.tolist(), strict=True)
    return pa.array([decompress(body, flag) for body, flag in rows], pa.binary())


def _born_timestamp(records: Records, _: Context) -> Any:
    return _timestamps(records.head["born"])


def _store_timestamp(records: Records, _: Context) -> Any:
    return _timestamps(records.store_timestamp)


def _reconsume_times(records: Records, _: Context) -> Any:
    return pa.array(records.tail["reconsume_times"].astype(np.int32))


def _properties(records: Records, context: Context) -> Any:
    return records.property_maps(context.properties_type)


class Context(NamedTuple):
    """What a column may need besides the records."""

    topic: str
    broker_name: str
    properties_type: Any


_COLUMNS: Final[dict[str, Callable[[Records, Context], Any]]] = {
    "topic": _topic,
    "brokername": _broker_name,
    "queueid": _queue_id,
    "queueoffset": _queue_offset,
    "msgid": _message_id,
    "tags": _tags,
    "keys": _keys,
    "body": _body,
    "borntimestamp": _born_timestamp,
    "storetimestamp": _store_timestamp,
    "reconsumetimes": _reconsume_times,
    "properties": _properties,
}


class ColumnDecoder:
    """Decodes records of ``topic`` into record batches of ``schema``, an Arrow schema.

    ``tags``, where given, are the only tags to let through: a broker filters by their hash codes,
    so a message of another tag with the same code may come.
    """

    def __init__(self, schema: Any, topic: str, tags: frozenset[str] | None = None) -> None:
        self._schema = schema
        self._topic = topic
        self._columns = [_COLUMNS[name.lower()] for name in schema.names]
        self._tags = None if tags is None else pa.array(sorted(tags), pa.string())
        self._properties_type = next(
            (field.type for field in schema if field.name.lower() == "properties"), None
        )

    def decode(self, data: bytes, broker_name: str) -> Any:
        """The record batch of the records in ``data``, all from one broker."""
        records = Records(data)
        if self._tags is not None:
            wanted = pc.is_in(records.property_column(TAGS), value_set=self._tags)
            if not pc.all(wanted).as_py():
                records = records.only(wanted.to_numpy(zero_copy_only=False))
        context = Context(self._topic, broker_name, self._properties_type)
        arrays = [column(records, context) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def cut_at(data: bytes, end_offset: int) -> bytes:
    """The records in ``data``, an answer of one queue, that stand before ``end_offset``."""
    records = Records(data)
    kept = int(np.searchsorted(records.head["queue_offset"].astype(np.int64), end_offset))
    return data if kept == len(records) else data[: int(records.starts[kept])]


def _record_starts(data: bytes) -> Positions:
    starts = []
    position, end = 0, len(data)
    unpack = _SIZE.unpack_from
    try:
        while position < end:
            starts.append(position)
            (size,) = unpack(data, position)
            if size < MIN_RECORD_SIZE:
                raise RecordError(f"no record at byte {position}: size {size}")
            position += size
    except struct.error:
        position = -1
    if position != end:
        raise RecordError(f"{end} bytes do not end with a whole record")
    return np.array(starts, np.int64)


def _gather(data: bytes | Bytes, positions: Positions, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The ``dtype`` that stands at each of ``positions``; each is copied as one piece."""
    size = dtype.itemsize
    windows: npt.NDArray[Any] = np.ndarray(
        max(len(data) - size + 1, 0), f"V{size}", data, strides=(1,)
    )
    try:
        return windows[positions].view(dtype)
    except IndexError as error:
        raise RecordError("a record's lengths lead out of the pull answer") from error


def _pieces(data: bytes | Bytes, starts: Positions, ends: Positions) -> Any:
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


def _timestamps(milliseconds: npt.NDArray[Any]) -> Any:
    microseconds = milliseconds.astype(np.int64) * 1000
    return pa.array(microseconds).view(pa.timestamp("us", tz="UTC"))
