"""Received messages, read lazily: a MessageView looks into the bytes it came in.

A pull brings many records at once; most of their fields are never asked for. So only what every
message needs is read when records are decoded, together with the lengths that prove each record
whole; everything else when it is asked for. The fields are those of MessageExt and
MessageClientExt, read as MessageDecoder.decode reads them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from orbitmq.errors import RecordError
from orbitmq.message import Message, MessageQueue
from orbitmq.wire.compress import COMPRESSED, decompress
from orbitmq.wire.ids import host_text
from orbitmq.wire.properties import (
    KEYS,
    NOT_THE_USERS,
    SHARDING_KEY,
    TAGS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    decode_properties,
    find_property_within,
)
from orbitmq.wire.record import (
    BORN_HOST_V6,
    INNER_BATCH,
    LAYOUTS,
    MAGIC_V1,
    MIN_RECORD_SIZE,
    NEED_UNWRAP,
    RECORD_HEADER,
    STORE_HOST_V6,
    Buffer,
    Draft,
    RecordLayout,
    decode_batch,
    encode_record,
    locate_record,
)

# Size, magic, queue offset, sys flag and body length of a record with IPv4 hosts.
_PROBE: Final = struct.Struct(">iI12xq8xi44xi")
_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")
_UNCOMMON: Final = BORN_HOST_V6 | STORE_HOST_V6 | NEED_UNWRAP
_NEGATIVE: Final = 0x80  # as a signed byte
_BATCH_TO_UNWRAP: Final = INNER_BATCH | NEED_UNWRAP
_BODY: Final = RECORD_HEADER.body
_AFTER_BODY: Final = MIN_RECORD_SIZE - _BODY


class MessageView(msgspec.Struct, gc=False, eq=False):
    """A received message. Made by decode_records and decode_record only.

    Fields are read from the received bytes when asked for; a view keeps alive the bytes of the
    whole pull it came with. Two views are equal only when they are the same object. Topic, queue,
    properties and the number of reconsumptions may be set, which changes the view alone.

    Attributes: ``broker_name`` that the message was pulled from, ``queue_offset`` of the message
    in its queue, ``store_size`` of the whole record in bytes, and ``sys_flag`` as stored (it still
    says "compressed" after the body was read).
    """

    _data: bytes
    _start: int
    _body_start: int
    _body_end: int
    _topic_start: int
    _properties_start: int
    store_size: int
    queue_offset: int
    sys_flag: int
    broker_name: str = ""
    _overlay: Mapping[str, str] | None = None
    _topic: str | None = None
    _body: bytes | None = None
    _properties: dict[str, str] | None = None
    _reconsume_times: int | None = None
    _queue: MessageQueue | None = None

    @property
    def topic(self) -> str:
        """The topic; a consumer puts the original one back on a retried message."""
        if self._topic is None:
            self._topic = self.stored_topic
        return self._topic

    @topic.setter
    def topic(self, topic: str) -> None:
        self._topic = topic

    @property
    def stored_topic(self) -> str:
        """The topic the broker stored the message under, for example a ``%RETRY%`` topic."""
        return str(self._data[self._topic_start : self._properties_start - 2], "utf-8", "replace")

    @property
    def body(self) -> bytes:
        """The body, decompressed. Raises RecordError when it cannot be decompressed."""
        if self._body is None:
            stored = self._data[self._body_start : self._body_end]
            if self.sys_flag & COMPRESSED:
                stored = decompress(stored, self.sys_flag)
            self._body = stored
        return self._body

    @property
    def body_size(self) -> int:
        """The size of the body as stored, that is compressed if it is, in bytes."""
        return self._body_end - self._body_start

    @property
    def tags(self) -> str | None:
        """The message's tag."""
        return self.property(TAGS)

    @property
    def keys(self) -> str | None:
        """The message's keys, joined by spaces."""
        return self.property(KEYS)

    @property
    def sharding_key(self) -> str | None:
        """The key that chose the message's queue."""
        return self.property(SHARDING_KEY)

    @property
    def message_id(self) -> str:
        """The id its producer gave it, or else the offset message id (MessageClientExt)."""
        return self.property(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The id that says where the broker stored it: host and commit log offset."""
        start = self._start + RECORD_HEADER.physical_offset
        return (self._store_host_bytes + self._data[start : start + 8]).hex().upper()

    @property
    def transaction_id(self) -> str | None:
        """The id of the transaction it was sent in, which is its message id; None without one."""
        prepared = self.property(TRANSACTION_PREPARED)
        return self.property(UNIQ_KEY) if prepared and prepared.lower() == "true" else None

    @property
    def properties(self) -> dict[str, str]:
        """All properties; the dict is the view's own, what is changed in it stays changed."""
        if self._properties is None:
            end = self._start + self.store_size
            found = decode_properties(self._data[self._properties_start : end])
            if self._overlay:
                found.update(self._overlay)
            self._properties = found
        return self._properties

    @properties.setter
    def properties(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def set_property(self, name: str, value: str) -> None:
        """Give a property another value, without reading the others."""
        set_property_of_all((self,), name, value)

    def to_message(self, topic: str | None = None) -> Message:
        """A new message of this content, to be sent on: to ``topic``, or to its own again.

        Body, tags, keys, sharding key, flag and the user's properties are taken over. What belongs
        to this one alone is not: its id, delay, retries and transaction.
        """
        return Message(
            self.topic if topic is None else topic,
            self.body,
            tags=self.tags,
            keys=self.keys,
            sharding_key=self.sharding_key,
            properties={
                name: value for name, value in self.properties.items() if name not in NOT_THE_USERS
            },
            flag=self.flag,
        )

    @property
    def message_queue(self) -> MessageQueue:
        """The queue the message was read from."""
        if self._queue is not None:
            return self._queue
        return MessageQueue(self.stored_topic, self.broker_name, self.queue_id)

    @message_queue.setter
    def message_queue(self, queue: MessageQueue) -> None:
        self._queue = queue

    @property
    def body_crc(self) -> int:
        """The CRC-32 of the stored body, without its top bit."""
        return self._int(RECORD_HEADER.body_crc)

    @property
    def queue_id(self) -> int:
        """The number of the queue it was stored in."""
        return self._int(RECORD_HEADER.queue_id)

    @property
    def flag(self) -> int:
        """The integer of the user's own that the producer gave."""
        return self._int(RECORD_HEADER.flag)

    @property
    def physical_offset(self) -> int:
        """Where it lies in the broker's commit log."""
        return self._long(RECORD_HEADER.physical_offset)

    @property
    def born_timestamp(self) -> int:
        """When the producer sent it, ms since the epoch by the producer's clock."""
        return self._long(RECORD_HEADER.born_timestamp)

    @property
    def store_timestamp(self) -> int:
        """When the broker stored it, ms since the epoch by the broker's clock."""
        return self._long(self._layout.store_timestamp)

    @property
    def born_host(self) -> str:
        """The producer's address as the broker saw it: ``ip:port``, or ``[ip]:port``."""
        return host_text(self._born_host_bytes)

    @property
    def store_host(self) -> str:
        """The broker's address: ``ip:port``, or ``[ip]:port``."""
        return host_text(self._store_host_bytes)

    @property
    def reconsume_times(self) -> int:
        """How often it was consumed before, without success."""
        if self._reconsume_times is None:
            self._reconsume_times = self._int(self._layout.reconsume_times)
        return self._reconsume_times

    @reconsume_times.setter
    def reconsume_times(self, times: int) -> None:
        self._reconsume_times = times

    @property
    def prepared_transaction_offset(self) -> int:
        """Where the half message of its transaction lies in the commit log, 0 for none."""
        return self._long(self._layout.prepared_transaction_offset)

    @property
    def _layout(self) -> RecordLayout:
        return LAYOUTS[self.sys_flag >> 4 & 3]

    @property
    def _born_host_bytes(self) -> bytes:
        start = self._start + RECORD_HEADER.born_host
        return self._data[start : start + (20 if self.sys_flag & BORN_HOST_V6 else 8)]

    @property
    def _store_host_bytes(self) -> bytes:
        start = self._start + self._layout.store_host
        return self._data[start : start + (20 if self.sys_flag & STORE_HOST_V6 else 8)]

    def _int(self, offset: int) -> int:
        value: int = _INT.unpack_from(self._data, self._start + offset)[0]
        return value

    def _long(self, offset: int) -> int:
        value: int = _LONG.unpack_from(self._data, self._start + offset)[0]
        return value

    def __repr__(self) -> str:
        return (
            f"MessageView(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, message_id={self.message_id!r}, "
            f"{self.body_size} bytes)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # Only this record travels, not the pull it came with.
        changes = (
            *(self._overlay, self._topic, self._properties, self._reconsume_times),
            self._queue,
        )
        record = self._data[self._start : self._start + self.store_size]
        return _restore, (record, self.broker_name, *changes)

    # Last in the class, because from here on its name hides the decorator's.
    def property(self, name: str) -> str | None:
        """The value of one property, or None, without reading the others."""
        if self._properties is not None:
            return self._properties.get(name)
        if self._overlay and name in self._overlay:
            return self._overlay[name]
        end = self._start + self.store_size
        return find_property_within(self._data, self._properties_start, end, name)


def set_property_of_all(messages: Iterable[MessageView], name: str, value: str) -> None:
    """Give a property of all ``messages`` this value; what they share of others they still do."""
    before: Mapping[str, str] | None = None
    after: Mapping[str, str] = {name: value}
    for message in messages:
        if message._properties is not None:
            message._properties[name] = value
            continue
        if message._overlay is not before:
            before = message._overlay
            after = {**before, name: value} if before else {name: value}
        message._overlay = after


def decode_records(
    buffer: Buffer, broker_name: str = "", extra: Mapping[str, str] | None = None
) -> list[MessageView]:
    """The messages of consecutive records that fill ``buffer``, such as a pull's answer.

    A record that is a batch, as brokers store one in a topic with batch consume queues, gives the
    messages in it (PullAPIWrapper.processPullResult).

    Each is checked to be whole; the checksum is not. A buffer other than bytes is copied once, so
    that the views stay valid. ``extra`` properties are seen on every message as if they were
    stored (one mapping for all, not to be changed afterwards). Raises RecordError where something
    else than a whole record begins: one bad record, and there are none.
    """
    data = buffer if type(buffer) is bytes else bytes(buffer)
    unpack = _PROBE.unpack_from
    views: list[MessageView] = []
    add = views.append
    position, limit = 0, len(data)
    while position < limit:
        # The common record, checked inline; everything else, or wrong, goes the slow way.
        try:
            size, magic, queue_offset, sys_flag, body_length = unpack(data, position)
            body_end = position + _BODY + body_length
            topic_length = data[body_end]
            properties = body_end + _AFTER_BODY + topic_length
            high_byte = data[properties - 2]  # of the length of the properties
            end = properties + (high_byte << 8 | data[properties - 1])
            if (
                end == position + size
                and end <= limit
                and magic == MAGIC_V1
                and body_length >= 0
                and topic_length | high_byte < _NEGATIVE
                and not sys_flag & _UNCOMMON
            ):
                add(
                    MessageView(
                        data,
                        position,
                        position + _BODY,
                        body_end,
                        body_end + 1,
                        properties,
                        size,
                        queue_offset,
                        sys_flag,
                        broker_name,
                        extra,
                    )
                )
                position = end
                continue
        except (IndexError, struct.error):
            pass  # shorter than it says
        view = decode_record(data, position, broker_name, extra)
        position += view.store_size
        views += _unwrapped(view)
    return views


def decode_record(
    buffer: Buffer,
    position: int = 0,
    broker_name: str = "",
    extra: Mapping[str, str] | None = None,
) -> MessageView:
    """The message of the one record at ``position``; what follows it is not looked at."""
    data = buffer if type(buffer) is bytes else bytes(buffer)
    parts = locate_record(data, position, len(data))
    (queue_offset,) = _LONG.unpack_from(data, position + RECORD_HEADER.queue_offset)
    return MessageView(
        data,
        position,
        parts.body,
        parts.body_end,
        parts.topic,
        parts.properties,
        parts.end - position,
        queue_offset,
        parts.sys_flag,
        broker_name,
        extra,
    )


def _unwrapped(view: MessageView) -> list[MessageView]:
    """The messages of a batch stored as one (MessageDecoder.decodeMessage), else ``view`` itself.

    So is a batch that cannot be read: better delivered as it is than a queue that stands still.
    """
    if view.sys_flag & _BATCH_TO_UNWRAP != _BATCH_TO_UNWRAP:
        return [view]
    try:
        items = decode_batch(view.body)
    except RecordError:
        items = []
    return [
        decode_record(
            encode_record(
                Draft(
                    topic=view.stored_topic,
                    queue_id=view.queue_id,
                    body=body,
                    properties=properties,
                    tags_code=0,
                    flag=flag,
                    sys_flag=view.sys_flag & ~COMPRESSED,
                    born_timestamp=view.born_timestamp,
                    born_host=view._born_host_bytes,
                    store_host=view._store_host_bytes,
                ),
                view.queue_offset + index,
                view.physical_offset,
                view.store_timestamp,
            ),
            0,
            view.broker_name,
            view._overlay,
        )
        for index, (flag, body, properties) in enumerate(items)
    ] or [view]


def _restore(
    record: bytes,
    broker_name: str,
    overlay: Mapping[str, str] | None,
    topic: str | None,
    properties: dict[str, str] | None,
    reconsume_times: int | None,
    queue: MessageQueue | None,
) -> MessageView:
    view = decode_record(record, 0, broker_name, overlay)
    view._topic = topic
    view._properties = properties
    view._reconsume_times = reconsume_times
    view._queue = queue
    return view
