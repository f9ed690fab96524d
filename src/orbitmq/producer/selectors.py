"""Ready-made ways to choose a message's queue (Java's ``producer.selector`` package).

A selector is any function of the topic's writable queues, the message, and the ``arg`` given to
``send``; it returns one of the queues. It runs in the caller's thread.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, TypeAlias
from uuid import UUID

from orbitmq.errors import ConfigError, InvalidMessageError
from orbitmq.message import Message, MessageQueue
from orbitmq.wire.ids import java_hash

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]

_DOUBLE: Final = struct.Struct(">d")
_LONG: Final = struct.Struct(">Q")
_ROOM_END: Final = "@"


def select_queue_by_hash(
    queues: Sequence[MessageQueue], _message: Message, arg: str | float | UUID
) -> MessageQueue:
    """The queue that Java's SelectMessageQueueByHash chooses for the same value.

    ``arg`` is a str (Java's String), an int of up to 64 bits (Integer, or Long where an Integer
    does not hold it), a float (Double), a bool or a UUID. Raises InvalidMessageError for anything
    else. A message with a ``sharding_key`` goes where this sends its key, without a selector.
    """
    return queues[abs(_hash_code(arg)) % len(queues)]


def select_queue_by_random(
    queues: Sequence[MessageQueue], _message: Message, _arg: object
) -> MessageQueue:
    """Any queue (SelectMessageQueueByRandom)."""
    return random.choice(queues)  # noqa: S311 - not a secret


def select_queue_by_machine_room(rooms: Collection[str]) -> QueueSelector:
    """A selector that keeps to machine rooms: to brokers whose name is ``room@...``.

    Among the queues there it chooses by the hash of ``arg``, or any where that is None; where there
    is none it raises InvalidMessageError. Java's SelectMessageQueueByMachineRoom has the setter of
    the rooms (``consumeridcs``) and chooses no queue. Raises ConfigError without rooms.
    """
    if isinstance(rooms, str) or not rooms or not all(isinstance(room, str) for room in rooms):
        raise ConfigError("rooms", rooms, "names of machine rooms (str), in a list or set")
    wanted = frozenset(rooms)

    def select(queues: Sequence[MessageQueue], message: Message, arg: Any) -> MessageQueue:
        near = [queue for queue in queues if _room(queue) in wanted]
        if not near:
            brokers = ", ".join(sorted({queue.broker_name for queue in queues}))
            raise InvalidMessageError(
                f"topic {message.topic!r} has no queue in the machine rooms {sorted(wanted)}: its "
                f"brokers are {brokers}, and one in a room is named room{_ROOM_END}name"
            )
        if arg is None:
            return select_queue_by_random(near, message, arg)
        return select_queue_by_hash(near, message, arg)

    return select


def _room(queue: MessageQueue) -> str | None:
    room, mark, _ = queue.broker_name.partition(_ROOM_END)
    return room if mark else None


def _hash_code(value: object) -> int:
    """What ``hashCode`` gives in Java for the like of ``value``."""
    if isinstance(value, str):
        return java_hash(value)
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, int) and -1 << 63 <= value < 1 << 63:
        return value if -1 << 31 <= value < 1 << 31 else _folded(value)
    if isinstance(value, float):
        bits: int = _LONG.unpack(_DOUBLE.pack(math.nan if math.isnan(value) else value))[0]
        return _folded(bits)
    if isinstance(value, UUID):
        return _folded((value.int >> 64) ^ value.int)
    raise InvalidMessageError(
        f"arg={value!r} of type {type(value).__name__} has no hash that Java shares: give a str, "
        "an int of up to 64 bits, a float, a bool or a UUID"
    )


def _folded(value: int) -> int:
    """Both halves of 64 bits in 32, as a signed integer (``Long.hashCode``)."""
    folded = (value ^ (value & 0xFFFF_FFFF_FFFF_FFFF) >> 32) & 0xFFFF_FFFF
    return folded - 0x1_0000_0000 if folded > 0x7FFF_FFFF else folded
