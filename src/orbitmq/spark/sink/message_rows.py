"""The rows of Spark's Arrow batches as messages, column by column.

What a row cannot be is an error that names the first such row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.client.namespace import with_namespace
from orbitmq.errors import IllegalNameError, InvalidMessageError
from orbitmq.names import check_topic
from orbitmq.spark.sink.frames import ALONE, Frames, Ids, Numbers, fixed, frames_of, joined, lengths
from orbitmq.spark.sink.options import AT_LEAST_ONCE, WriteOptions
from orbitmq.spark.sink.placing import Placing, by_function, by_hash, by_queue
from orbitmq.wire.compress import compress
from orbitmq.wire.properties import (
    DELAY,
    KEYS,
    MAX_PROPERTIES_BYTES,
    SHARDING_KEY,
    TAGS,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    encode_properties,
)

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
"""What brokers take by default."""

_TEXTS: Final = {"tags": TAGS, "keys": KEYS, "shardingKey": SHARDING_KEY}
_DELAYS: Final = {
    "delayTimeLevel": DELAY,
    "delayMs": TIMER_DELAY_MS,
    "deliverTime": TIMER_DELIVER_MS,
}
_DELAY_PROPERTIES: Final = (*_DELAYS.values(), TIMER_DELAY_SEC)
_ID_BEGIN: Final = np.frombuffer(f"{UNIQ_KEY}\x01".encode(), np.uint8)
_ID_END: Final = 2

Mask: TypeAlias = npt.NDArray[np.bool_]


class Messages(NamedTuple):
    """Rows of one topic as messages, and how their queues are found; None: in turn."""

    topic: str
    frames: Frames
    placing: Placing | None


class MessageRows:
    """The rows of one Arrow ``batch``; the first has the number ``first`` in its task.

    Explicit columns count more than the same property in the column properties, and options count
    for rows that have neither.
    """

    def __init__(self, batch: Any, options: WriteOptions, first: int = 0) -> None:
        names = [name.lower() for name in batch.schema.names]
        self._columns = {name: batch.column(index) for index, name in enumerate(names)}
        self._options = options
        self._first = first
        self.count: int = batch.num_rows

    def messages(self, ids: Ids, *, ids_win: bool = False) -> Iterator[Messages]:
        """All rows, topic by topic, with unique ``ids``.

        One in the column properties counts more, unless ``ids_win``. Raises InvalidMessageError for
        the first row that is not a message.
        """
        self._check()
        bodies, kinds = self._compressed()
        pairs = [_id_pairs(ids), self.properties]
        properties = pc.binary_join_element_wise(*(pairs[::-1] if ids_win else pairs), b"")
        too_long = f"its properties take more than {MAX_PROPERTIES_BYTES} bytes together"
        self.refuse(lengths(properties) > MAX_PROPERTIES_BYTES, too_long)
        rows = np.arange(self._first, self._first + self.count, dtype=np.int64)
        messages = joined(bodies, properties, self._flags())
        frames = frames_of(messages, kinds | self._alone(), rows, ids)
        for topic, indices in self._topics():
            some = frames if indices is None else frames.only(indices)
            yield Messages(topic, some, self._placing(indices))

    @property
    def first(self) -> int:
        """The number of the first row in its task."""
        return self._first

    def identities(self) -> Any:
        """What tells each row from others, an Arrow binary array.

        That is its column rowKey where there is one, or all that its message holds but a unique id.
        """
        keys = self.column("rowKey")
        if keys is None:
            return joined(self.bodies, self.properties, self._flags())
        self.refuse(lengths(keys) == 0, "its rowKey is null or empty")
        return _binary(keys)

    def column(self, name: str) -> Any:
        """The column ``name``, None where there is none."""
        return self._columns.get(name.lower())

    @cached_property
    def bodies(self) -> Any:
        """The bodies as they were given, an Arrow binary array."""
        return _binary(self._columns["body"])

    @cached_property
    def properties(self) -> Any:
        """The stored form of all properties but the unique id, an Arrow binary array.

        Of a name that is there twice the last counts, for every reader.
        """
        constant = encode_properties(self._options.properties)
        pieces = [pa.scalar(constant, pa.binary()), self._mapped()]
        pieces += [_pairs(name, self._text(column)) for column, name in _TEXTS.items()]
        pieces += [_pairs(_DELAYS[column], values) for column, values in self._delays().items()]
        given = [piece for piece in pieces if piece is not None]
        begin = fixed(np.zeros((self.count, 0), np.uint8))
        return pc.binary_join_element_wise(begin, *given, b"")

    def refuse(self, wrong: Mask, reason: str) -> None:
        """Raise InvalidMessageError for the first row that is ``wrong``, if any is."""
        if wrong.any():
            index = int(np.argmax(wrong))
            keys = self.column("keys")
            known = "" if keys is None else f" (keys {keys[index].as_py()!r})"
            raise InvalidMessageError(f"row {self._first + index}{known}: {reason}")

    def _check(self) -> None:
        sizes = lengths(self.bodies)
        self.refuse(
            sizes == 0, "a null or empty body, which RocketMQ does not send; filter such rows out"
        )
        self.refuse(
            sizes > MAX_BODY_BYTES,
            f"a body of {sizes.max(initial=0)} bytes; brokers take {MAX_BODY_BYTES} at most",
        )
        for name in _TEXTS:
            column = self.column(name)
            if column is not None:
                wrong = pc.match_substring_regex(column, "[\x01\x02]").fill_null(False)
                self.refuse(_mask(wrong), f"a separator, U+0001 or U+0002, in the column {name}")

    def _compressed(self) -> tuple[Any, Numbers]:
        """The bodies as they are sent, and the sysFlag of each."""
        how = self._options.compression
        kinds = np.zeros(self.count, np.int64)
        if how is None:
            return self.bodies, kinds
        large = lengths(self.bodies) >= how.over
        if not large.any():
            return self.bodies, kinds
        kinds[large] = how.kind.flag
        bodies = [
            compress(body, how.level, how.kind) if is_large else body
            for body, is_large in zip(self.bodies.to_pylist(), large.tolist(), strict=True)
        ]
        return pa.array(bodies, pa.binary()), kinds

    def _flags(self) -> Any:
        flags = self.column("flag")
        return 0 if flags is None else flags.fill_null(0).to_numpy()

    def _text(self, name: str) -> Any:
        """The column or option ``name``: an array, one text for all, or None."""
        column, default = self.column(name), self._options.texts.get(name)
        if column is None or default is None:
            return default if column is None else column
        return pc.if_else(_given(column), column, default)

    def _delays(self) -> dict[str, Any]:
        """The columns of delays as numbers, where they are more than 0, or else the option."""
        found = {name: self.column(name) for name in _DELAYS if self.column(name) is not None}
        numbers = {name: _positive(name, column) for name, column in found.items()}
        given = sum((_mask(array.is_valid()).astype(np.int8) for array in numbers.values()),
                    np.zeros(self.count, np.int8))  # fmt: skip
        self.refuse(given > 1, f"more than one of {', '.join(found)}; leave all but one null")
        for name, value in self._options.delay.items():
            rest = pa.array(np.full(self.count, value), mask=given > 0)
            numbers[name] = pc.coalesce(numbers[name], rest) if name in numbers else rest
        return {name: array.cast(pa.string()) for name, array in numbers.items()}

    def _alone(self) -> Numbers:
        """ALONE for each message with a delay."""
        delayed = np.zeros(self.count, np.bool_)
        for values in self._delays().values():
            delayed |= _mask(values.is_valid())
        entries = self._entries
        if entries is not None:
            delayed[entries.rows_with(_DELAY_PROPERTIES)] = True
        if self._options.guarantee != AT_LEAST_ONCE:
            self.refuse(delayed, f"a delay, which needs deliveryGuarantee={AT_LEAST_ONCE}")
        return np.where(delayed, ALONE, 0)

    @cached_property
    def _entries(self) -> _Entries | None:
        column = self.column("properties")
        return None if column is None else _Entries(column)

    def _mapped(self) -> Any:
        """The column properties in stored form."""
        entries = self._entries
        if entries is None:
            return None
        for name, text in (
            ("[\x01\x02]", "a separator, U+0001 or U+0002, in the name of a property"),
        ):
            self._refuse_entries(pc.match_substring_regex(entries.names, name), text)
        self._refuse_entries(
            pc.match_substring(entries.values, "\x02"), "a separator, U+0002, in a property"
        )
        self._refuse_entries(
            pc.equal(entries.names, TRANSACTION_PREPARED),
            f"the property {TRANSACTION_PREPARED} makes half a transaction of a message, "
            "which nobody would complete; leave it out of the column properties",
        )
        return entries.stored()

    def _refuse_entries(self, wrong: Any, reason: str) -> None:
        mask = np.zeros(self.count, np.bool_)
        if self._entries is not None:
            mask[self._entries.rows[_mask(wrong.fill_null(False))]] = True
        self.refuse(mask, reason)

    def _topics(self) -> Iterator[tuple[str, Numbers | None]]:
        """Each topic, as brokers know it, and its rows, None for all."""
        column, default = self.column("topic"), self._options.topic
        namespace = self._options.namespace
        if column is None:
            yield with_namespace(namespace, default or ""), None
            return
        names = column if default is None else pc.if_else(_given(column), column, default)
        self.refuse(~_mask(_given(names)), "no topic, and there is no option topic")
        encoded = names.dictionary_encode()
        numbers, topics = encoded.indices.to_numpy(), encoded.dictionary.to_pylist()
        for number, topic in enumerate(topics):
            try:
                check_topic(topic)
            except IllegalNameError as error:
                self.refuse(numbers == number, str(error))
            rows = None if len(topics) == 1 else np.flatnonzero(numbers == number)
            yield with_namespace(namespace, topic), rows

    def _placing(self, indices: Numbers | None) -> Placing | None:
        """How the queues of the rows ``indices``, None for all, are found."""

        def chosen(column: Any) -> Any:
            return column if indices is None or column is None else column.take(pa.array(indices))

        def refuse(wrong: Mask, reason: str) -> None:
            everywhere = np.zeros(self.count, np.bool_)
            everywhere[slice(None) if indices is None else indices] = wrong
            self.refuse(everywhere, reason)

        keys = chosen(self._sharding_keys())
        queue_ids = chosen(self.column("queueId"))
        if queue_ids is not None:
            return by_queue(queue_ids, chosen(self.column("brokerName")), keys, refuse)
        if self._options.queue_selector is not None:
            return by_function(self._options.queue_selector, refuse)
        return None if keys is None else by_hash(keys)

    def _sharding_keys(self) -> Any:
        keys = self._text("shardingKey")
        if isinstance(keys, str):
            keys = pa.array([keys] * self.count)
        mapped = None if self._entries is None else self._entries.value_of(SHARDING_KEY, self.count)
        if keys is None or mapped is None:
            return mapped if keys is None else keys
        return pc.if_else(_given(keys), keys, mapped)


class _Entries:
    """The entries of all maps in a column, one after the other, and the row of each."""

    def __init__(self, column: Any) -> None:
        offsets = column.offsets.to_numpy().astype(np.int64)
        begin, end = int(offsets[0]), int(offsets[-1])
        self._offsets = offsets - begin
        self.names = column.keys[begin:end]
        self.values = column.items[begin:end]
        self.rows = np.repeat(np.arange(len(column)), np.diff(offsets))

    def rows_with(self, names: tuple[str, ...]) -> Numbers:
        """The rows that have one of ``names``."""
        found: Numbers = self.rows[_mask(pc.is_in(self.names, pa.array(names)))]
        return found

    def value_of(self, name: str, rows: int) -> Any:
        """The value of ``name`` by row, None where no row has it."""
        at = np.flatnonzero(_mask(pc.equal(self.names, name)))
        if not len(at):
            return None
        found = np.full(rows, -1, np.int64)
        found[self.rows[at]] = at
        return self.values.take(pa.array(found, mask=found < 0))

    def stored(self) -> Any:
        """The entries of each row in the form properties are stored in."""
        one = pc.binary_join_element_wise(
            _binary(self.names), b"\x01", _binary(self.values), b"\x02", b""
        )
        lists = pa.ListArray.from_arrays(pa.array(self._offsets, pa.int32()), one.fill_null(b""))
        return pc.binary_join(lists, b"")


def _pairs(name: str, values: Any) -> Any:
    """The property ``name`` in stored form, of an array or one text; nothing where it is empty."""
    if values is None:
        return None
    begin = f"{name}\x01".encode()
    if isinstance(values, str):
        return pa.scalar(begin + values.encode() + b"\x02", pa.binary())
    joined = pc.binary_join_element_wise(begin, _binary(values), b"\x02", b"")
    return pc.if_else(_given(values), joined, b"")


def _id_pairs(ids: Ids) -> Any:
    count, digits = ids.shape
    pairs = np.empty((count, len(_ID_BEGIN) + digits + 1), np.uint8)
    pairs[:, : len(_ID_BEGIN)] = _ID_BEGIN
    pairs[:, len(_ID_BEGIN) : -1] = ids
    pairs[:, -1] = _ID_END
    return fixed(pairs)


def _positive(name: str, column: Any) -> Any:
    """A column of delays as whole numbers, null where it is 0 or less."""
    if name == "deliverTime":
        column = pc.divide(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()), 1000)
    numbers = column.cast(pa.int64())
    return pc.if_else(pc.greater(numbers, 0), numbers, pa.scalar(None, pa.int64()))


def _given(texts: Any) -> Any:
    """Where a text is, and is not empty."""
    return pc.greater(pc.binary_length(texts), 0).fill_null(False)


def _binary(array: Any) -> Any:
    return array if array.type == pa.binary() else array.cast(pa.binary())


def _mask(array: Any) -> Mask:
    mask: Mask = array.to_numpy(zero_copy_only=False)
    return mask
