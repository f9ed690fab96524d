"""What a user gives to be sent, checked field by field: errors name the field and what it may be.

Java's types do most of this; the rest follows Message.putUserProperty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from reprlib import repr as short_repr
from typing import Final

from orbitmq.errors import InvalidMessageError
from orbitmq.message import Message, MessageQueue
from orbitmq.wire import properties as names
from orbitmq.wire.message_view import MessageView

_SETTABLE: Final = {
    names.WAIT,
    names.BUYER_ID,
    names.PRIORITY,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
}
"""Those of RocketMQ's own that Java's Message has setters for, and ours no argument."""

_ARGUMENTS: Final = {
    names.TAGS: "give Message(tags=...)",
    names.KEYS: "give Message(keys=...)",
    names.DELAY: "give Message(delay_level=...)",
    names.UNIQ_KEY: "each message gets its own, which SendResult.message_id tells; for a key of "
    "yours give Message(keys=...)",
    names.INSTANCE_ID: "give the producer a namespace",
}
_OF_REPLIES: Final = {
    names.MESSAGE_TYPE,
    names.CORRELATION_ID,
    names.REPLY_TO_CLIENT,
    names.TTL,
}
"""What create_reply_message sets."""
_REFUSED: Final = names.SYSTEM_PROPERTIES - _SETTABLE
_TEXT: Final = "it must be text (str), or None"
_USUAL: Final = 1 << 31
_INTEGER: Final = "it must be an integer of 32 bits"


def check_message(message: Message) -> None:
    """Raise InvalidMessageError for a field of a wrong type, and for a name of RocketMQ's own.

    Names and values of properties that are no text are found when they are encoded, see
    :func:`check_texts`.
    """
    if not isinstance(message.topic, str):
        raise _wrong(message, "topic", "it must be text (str)")
    if not isinstance(message.body, (bytes, bytearray, memoryview)):
        raise _wrong(message, "body", "it must be bytes: encode it first")
    if not (message.tags is None or isinstance(message.tags, str)):
        raise _wrong(message, "tags", _TEXT)
    if not (message.keys is None or isinstance(message.keys, str)):
        raise _wrong(message, "keys", f"{_TEXT}; several are given to Message(keys=[...])")
    if not (message.sharding_key is None or isinstance(message.sharding_key, str)):
        raise _wrong(message, "sharding_key", _TEXT)
    level, flag = message.delay_level, message.flag
    if not (level.__class__ is int and 0 <= level < _USUAL) and not _is_int32(level):
        raise _wrong(message, "delay_level", _INTEGER)
    if not (flag.__class__ is int and 0 <= flag < _USUAL) and not _is_int32(flag):
        raise _wrong(message, "flag", _INTEGER)
    properties = message.properties
    if properties is None:
        return
    if properties.__class__ is not dict and not isinstance(properties, Mapping):
        raise _wrong(message, "properties", "it must be a mapping of str to str, or None")
    if not _REFUSED.isdisjoint(properties):
        is_reply = properties.get(names.MESSAGE_TYPE) == names.REPLY
        refused = _REFUSED - _OF_REPLIES if is_reply else _REFUSED
        name = next((name for name in properties if name in refused), None)
        if name is None:
            return
        remedy = _ARGUMENTS.get(name, "RocketMQ itself sets it: choose another name")
        raise InvalidMessageError(
            f"property {name!r} of a message to {message.topic!r} is RocketMQ's own: {remedy}"
        )


def check_texts(topic: str, properties: Mapping[str, str]) -> None:
    """Raise InvalidMessageError for a name or value that is no text."""
    for name, value in properties.items():
        pair: tuple[tuple[str, object], ...] = (("name", name), ("value", value))
        for what, text in pair:
            if not isinstance(text, str):
                raise InvalidMessageError(
                    f"property {short_repr(name)} of a message to {topic!r}: its {what} "
                    f"{short_repr(text)} is {_kind(text)}, and must be text (str)"
                )


def check_batch(messages: object) -> None:
    """Raise InvalidMessageError for what is not one message or more in a list."""
    if isinstance(messages, MessageView):
        raise InvalidMessageError(
            f"{messages!r} was received, and only a Message can be sent: send "
            "message.to_message(topic=...)"
        )
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes, bytearray)):
        raise InvalidMessageError(
            f"{short_repr(messages)} is {_kind(messages)}: a Message is sent, or a list of them"
        )
    if not messages:
        raise InvalidMessageError("a batch needs at least one message")
    for position, message in enumerate(messages):
        if not isinstance(message, Message):
            remedy = (
                ", which was received: give message.to_message(topic=...)"
                if isinstance(message, MessageView)
                else f": {short_repr(message)}"
            )
            raise InvalidMessageError(
                f"a batch has messages only, and number {position} is {_kind(message)}{remedy}"
            )
        check_message(message)


def check_queue(queue: object) -> None:
    """Raise InvalidMessageError for what is no MessageQueue."""
    fields: tuple[object, ...] = queue if isinstance(queue, MessageQueue) else (None, None, None)
    topic, broker_name, queue_id = fields
    if not (isinstance(topic, str) and isinstance(broker_name, str) and _is_int32(queue_id)):
        raise InvalidMessageError(
            f"queue={queue!r} is not a MessageQueue of topic, broker name (str) and number (int): "
            "take one of publish_queues()"
        )


def _is_int32(value: object) -> bool:
    return (
        isinstance(value, int)
        and not isinstance(value, bool)
        and -0x8000_0000 <= value <= 0x7FFF_FFFF
    )


def _wrong(message: Message, field: str, allowed: str) -> InvalidMessageError:
    value: object = getattr(message, field)
    where = "" if field == "topic" else f" of a message to {message.topic!r}"
    return InvalidMessageError(f"{field}={short_repr(value)}{where} is {_kind(value)}: {allowed}")


def _kind(value: object) -> str:
    return "None" if value is None else f"of type {type(value).__name__}"
