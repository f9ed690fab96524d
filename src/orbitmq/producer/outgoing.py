"""From the user's message to what is sent: checks, properties, compression, batches.

Runs in the caller's thread, so that a message that cannot be sent fails where it was made, and
compression costs the loop nothing. Follows Validators, DefaultMQProducerImpl.tryToCompressMessage,
MessageBatch and DefaultMQProducer.batch. The user's message is left as it is. What is ready has
its topic's name within the namespace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from orbitmq import names
from orbitmq.client.namespace import Namespace
from orbitmq.codes import RequestCode
from orbitmq.errors import InvalidMessageError
from orbitmq.message import Message
from orbitmq.names import check_topic
from orbitmq.producer.checks import check_batch, check_message, check_texts
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.timers import has_timer, timer_property
from orbitmq.wire import properties as property_names
from orbitmq.wire.compress import compress
from orbitmq.wire.ids import create_unique_id
from orbitmq.wire.properties import (
    KEYS,
    MAX_PROPERTIES_BYTES,
    NAME_SEPARATOR,
    PAIR_SEPARATOR,
    REPLY,
    TAGS,
    as_bytes,
    find_property,
    join_properties,
)
from orbitmq.wire.record import encode_batch
from orbitmq.wire.send_request import json_text

_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)  # numbers, which are sooner hashed than members
_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)
_REPLY: Final = int(RequestCode.SEND_REPLY_MESSAGE_V2)


class Member(NamedTuple):
    """What a message is within a batch, besides what an Outgoing tells."""

    properties: bytes
    """In stored form."""
    batch_size: int
    """The bytes it takes there."""
    tags: str | None
    wait: str
    """Its property WAIT, which a batch has one of."""


class Outgoing(Struct, frozen=True, gc=False):
    """A message, or a batch, ready to be sent."""

    topic: str
    body: bytes
    properties: bytes
    """As the JSON string of the request header."""
    sys_flag: int
    flag: int
    message_id: str
    sharding_key: str | None
    code: int = _SEND
    """What it is sent by (MQClientAPIImpl.sendMessage)."""
    given: Message | Sequence[Message] | None = None
    """What the user gave, where hooks are to see it."""
    correlation_id: str | None = None
    """What its reply is known by, if it asks for one."""
    member: Member | None = None
    """What it is in a batch, if it may wait for one."""


def prepare_message(
    message: Message,
    config: ProducerConfig,
    namespace: Namespace,
    own: Mapping[str, str] | None = None,
    hold: bool = False,
) -> Outgoing:
    """Check ``message`` and make it ready; ``own`` are properties that RocketMQ itself sets.

    With ``hold`` it is made ready to wait for a batch too, if it is one that may, and is not
    compressed then, as no batch is.

    Raises IllegalNameError for its topic, InvalidMessageError for anything else.
    """
    check_message(message)
    topic = _sendable_topic(message.topic, namespace)
    body = _checked_body(message, config.max_message_size)
    further = _further_properties(message)
    if own is not None:
        further.update(own)
    if namespace.name is not None:
        further[property_names.INSTANCE_ID] = namespace.name
    message_id = create_unique_id()
    stored = _stored(message, message_id, further)
    member = _member(message, body, further, stored) if hold else None
    sys_flag = 0
    if len(body) >= config.compress_over_bytes and member is None:
        compression = config.compression
        compressed = compress(body, config.compress_level, compression)
        # Java sends what is compressed even where it has grown, and may be over the limit then.
        if len(compressed) < len(body):
            body = compressed
            sys_flag = compression.flag
    return Outgoing(
        topic,
        body,
        json_text(stored),
        sys_flag,
        message.flag,
        message_id,
        message.sharding_key or None,
        _REPLY if further and further.get(property_names.MESSAGE_TYPE) == REPLY else _SEND,
        None,
        None,
        member,
    )


def prepare_batch(
    messages: Sequence[Message],
    config: ProducerConfig,
    namespace: Namespace,
    *,
    placed: bool = False,
) -> Outgoing:
    """Check ``messages`` and make them one batch, which goes to one queue as it is.

    Raises InvalidMessageError for what is no list of messages, an empty batch, messages of several
    topics, of several sharding keys unless the caller has ``placed`` the batch, delayed messages,
    and a batch over ``max_message_size``.
    """
    check_batch(messages)
    first = messages[0]
    topic, sharding_key = _sendable_topic(first.topic, namespace), first.sharding_key or None
    if topic.startswith(names.RETRY_PREFIX):
        raise InvalidMessageError(f"a batch cannot be sent to the retry topic {topic!r}")
    items, ids = [], []
    for message in messages:
        _check_batch_member(message, first)
        if (message.sharding_key or None) != sharding_key and not placed:
            raise InvalidMessageError(
                f"a batch goes to one queue, and the sharding keys {sharding_key!r} and "
                f"{message.sharding_key!r} may have different ones: make a batch for each, or "
                "give its queue"
            )
        body = _checked_body(message, config.max_message_size)
        message_id = create_unique_id()
        stored = _stored(message, message_id, _further_properties(message))
        items.append((message.flag, body, stored.encode()))
        ids.append(message_id)
    body = encode_batch(items)
    if len(body) > config.max_message_size:
        raise InvalidMessageError(
            f"the batch of {len(items)} messages takes {len(body)} bytes, over "
            f"max_message_size={config.max_message_size}: send what split_batch(messages, "
            f"{config.max_message_size}) makes of them, one after the other"
        )
    own = {property_names.UNIQ_KEY: create_unique_id(), _WAIT: _wait_property(first)}
    if namespace.name is not None:
        own[property_names.INSTANCE_ID] = namespace.name
    return _batch(topic, body, own, ids, sharding_key)


def join_batch(members: Sequence[tuple[Outgoing, Member]]) -> Outgoing:
    """Messages that were made ready to wait, of one topic and to one queue, as one batch."""
    outgoing, member = members[0]
    own = {property_names.UNIQ_KEY: create_unique_id(), _WAIT: member.wait}
    if member.tags:
        own[property_names.TAGS] = member.tags
    instance_id = find_property(member.properties, property_names.INSTANCE_ID)
    if instance_id is not None:
        own[property_names.INSTANCE_ID] = instance_id
    body = encode_batch((each.flag, each.body, part.properties) for each, part in members)
    given = [each.given for each, _ in members if isinstance(each.given, Message)]
    batch = _batch(
        outgoing.topic,
        body,
        own,
        [each.message_id for each, _ in members],
        outgoing.sharding_key,
    )
    return replace(batch, given=given) if len(given) == len(members) else batch


def split_batch(
    messages: Iterable[Message], max_bytes: int = 4 * 1024 * 1024
) -> Iterator[list[Message]]:
    """``messages`` in their order, cut into lists that each fit into a batch of ``max_bytes``.

    The default is a producer's ``max_message_size``, and what brokers take. Lists are made one by
    one as they are asked for, so ``messages`` may be endless. Raises InvalidMessageError for a
    message that does not fit alone.
    """
    batch: list[Message] = []
    size = 0
    for message in messages:
        check_message(message)
        stored = _stored(message, create_unique_id(), _further_properties(message))
        length = _BATCH_HEAD + len(message.body) + len(stored.encode())
        if length > max_bytes:
            raise InvalidMessageError(
                f"a message to {message.topic!r} takes {length} bytes in a batch, over "
                f"max_bytes={max_bytes}: send it by itself, or make it smaller"
            )
        if size + length > max_bytes:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield batch


def _batch(
    topic: str, body: bytes, own: dict[str, str], ids: Sequence[str], sharding_key: str | None
) -> Outgoing:
    """A batch; ``own`` are its own properties, besides those of its messages."""
    return Outgoing(
        topic,
        body,
        json_text(join_properties(own)),
        0,
        0,
        ",".join(ids),
        sharding_key,
        _BATCH,
    )


_BATCH_HEAD: Final = 22
"""What a message takes in a batch besides its body and properties."""
_SENT_ALONE: Final = {
    property_names.DELAY,
    property_names.TIMER_DELAY_SEC,
    property_names.TIMER_DELAY_MS,
    property_names.TIMER_DELIVER_MS,
    property_names.PRODUCER_GROUP,
    property_names.TRANSACTION_PREPARED,
    property_names.MESSAGE_TYPE,
}
"""Properties of messages that do not wait for others (DefaultMQProducer.canBatch)."""


def _member(message: Message, body: bytes, further: dict[str, str], stored: str) -> Member | None:
    """What the message is in a batch; None for one that goes by itself."""
    if not _SENT_ALONE.isdisjoint(further) or message.topic.startswith(names.RETRY_PREFIX):
        return None
    text = stored.encode()
    size = _BATCH_HEAD + len(body) + len(text)
    return Member(text, size, message.tags or None, further.get(_WAIT, "true"))


_WAIT: Final = property_names.WAIT
_WAITS: Final = f"{PAIR_SEPARATOR}{_WAIT}{NAME_SEPARATOR}true{PAIR_SEPARATOR}"
"""What follows a value before it, where a message says nothing of WAIT itself."""
_ID: Final = property_names.UNIQ_KEY + NAME_SEPARATOR
_KEYS: Final = KEYS + NAME_SEPARATOR
_TAGS: Final = TAGS + NAME_SEPARATOR


def _further_properties(message: Message) -> dict[str, str]:
    """The properties of ``message`` but for its tags, keys and unique id: most have none."""
    properties = dict(message.properties) if message.properties else {}
    if message.sharding_key:
        properties[property_names.SHARDING_KEY] = message.sharding_key
    if message.delay_level > 0:
        properties[property_names.DELAY] = str(message.delay_level)
    if has_timer(message):
        name, time = timer_property(message)
        properties[name] = time
    return properties


def _stored(message: Message, message_id: str, further: Mapping[str, str]) -> str:
    """All properties of ``message`` in stored form, where their length has 15 bits."""
    tags, keys = message.tags, message.keys
    text = f"{_ID}{message_id}{_WAITS if _WAIT not in further else PAIR_SEPARATOR}"
    if keys:
        text = f"{_KEYS}{keys}{PAIR_SEPARATOR}{text}"
    if tags:
        text = f"{_TAGS}{tags}{PAIR_SEPARATOR}{text}"
    if (keys and PAIR_SEPARATOR in keys) or (tags and PAIR_SEPARATOR in tags):
        join_properties({TAGS: tags or "", KEYS: keys or ""})  # says which of them has one
    if further:
        text = _joined(further, message.topic) + text
    size = len(text) if text.isascii() else len(as_bytes(text))
    if size > MAX_PROPERTIES_BYTES:
        raise InvalidMessageError(
            f"the properties of a message to {message.topic!r} take {size} bytes, over "
            f"{MAX_PROPERTIES_BYTES}: put them into the body"
        )
    return text


def _joined(properties: Mapping[str, str], topic: str) -> str:
    try:
        return join_properties(properties)
    except TypeError:
        check_texts(topic, properties)
        raise


def _checked_body(message: Message, limit: int) -> bytes:
    body = message.body
    if type(body) is not bytes:
        body = bytes(body)  # a bytearray or memoryview might change
    size = len(body)
    if size > limit:
        raise InvalidMessageError(
            f"the body of {size} bytes of a message to {message.topic!r} is over "
            f"max_message_size={limit}: make it smaller, or raise the limit here and on the brokers"
        )
    if not size:
        raise InvalidMessageError(f"a message to {message.topic!r} has no body: give it one byte")
    return body


def _check_batch_member(message: Message, first: Message) -> None:
    if message.topic != first.topic:
        raise InvalidMessageError(
            f"a batch has one topic: {first.topic!r} and {message.topic!r} must be sent apart"
        )
    if message.delay_level > 0:
        raise InvalidMessageError(
            f"delay_level={message.delay_level}: a delayed message cannot be in a batch, send it "
            "by itself"
        )
    if has_timer(message):
        raise InvalidMessageError(
            "deliver_at, delay_ms, delay_seconds: a message with a time of its own cannot be in a "
            "batch, send it by itself"
        )
    if _wait_property(message) != _wait_property(first):
        raise InvalidMessageError(f"the messages of a batch must have the same property {_WAIT}")


def _wait_property(message: Message) -> str:
    return (message.properties or {}).get(_WAIT, "true")


@lru_cache(maxsize=1024)
def _sendable_topic(topic: str, namespace: Namespace) -> str:
    """The topic as brokers know it."""
    topic = namespace.wrap(topic)
    check_topic(topic)
    if topic in names.UNSENDABLE_TOPICS:
        raise InvalidMessageError(f"topic {topic!r} is RocketMQ's own: send to another")
    return topic
