"""Pull answers to Arrow columns: each column a function of all records of an answer.

A column nobody asks for costs nothing. Rows are looked at one by one only for what is rare:
compressed bodies, messages without a unique id, text that is not UTF-8, properties with stray
separators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.spark.source.records import Records, hex_strings, pieces
from orbitmq.wire.compress import COMPRESSED, decompress
from orbitmq.wire.ids import offset_message_id
from orbitmq.wire.properties import KEYS, TAGS, UNIQ_KEY


class Context(NamedTuple):
    """What a column may need besides the records."""

    topic: str
    broker_name: str
    properties_type: Any


def _topic(records: Records, context: Context) -> Any:
    return pa.repeat(pa.scalar(context.topic), len(records))


def _broker_name(records: Records, context: Context) -> Any:
    return pa.repeat(pa.scalar(context.broker_name), len(records))


def _queue_id(records: Records, _: Context) -> Any:
    return pa.array(records.head["queue_id"].astype(np.int32))


def _queue_offset(records: Records, _: Context) -> Any:
    return pa.array(records.head["queue_offset"].astype(np.int64))


def _message_id(records: Records, context: Context) -> Any:
    """The producer's unique id, else the offset message id (MessageClientExt.getMsgId)."""
    ids = records.property_column(UNIQ_KEY)
    return pc.coalesce(ids, _offset_message_id(records, context)) if ids.null_count else ids


def _offset_message_id(records: Records, _: Context) -> Any:
    """Where the broker stored each message (MessageDecoder.createMessageId)."""
    parts = records.store_host_and_offset
    if parts is not None:
        return hex_strings(parts)
    offsets = records.head["physical_offset"].tolist()
    ids = [offset_message_id(*part) for part in zip(records.store_hosts, offsets, strict=True)]
    return pa.array(ids, pa.string())


def _flag(records: Records, _: Context) -> Any:
    return pa.array(records.head["flag"].astype(np.int32))


def _tags(records: Records, _: Context) -> Any:
    return records.property_column(TAGS)


def _keys(records: Records, _: Context) -> Any:
    return records.property_column(KEYS)


def _body(records: Records, _: Context) -> Any:
    sys_flag = records.head["sys_flag"]
    bodies = pieces(records.data, records.body, records.body_end)
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


_COLUMNS: Final[dict[str, Callable[[Records, Context], Any]]] = {
    "topic": _topic,
    "brokername": _broker_name,
    "queueid": _queue_id,
    "queueoffset": _queue_offset,
    "msgid": _message_id,
    "offsetmsgid": _offset_message_id,
    "flag": _flag,
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


def _timestamps(milliseconds: npt.NDArray[Any]) -> Any:
    microseconds = milliseconds.astype(np.int64) * 1000
    return pa.array(microseconds).view(pa.timestamp("us", tz="UTC"))
