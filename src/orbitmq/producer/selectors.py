"""Ready-made ways to choose a message's queue (Java's ``producer.selector`` package).

A selector is any function of the topic's writable queues, the message, and the ``arg`` given to
``send``; it returns one of the queues. It runs in the caller's thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from orbitmq.message import Message, MessageQueue
from orbitmq.wire.ids import java_hash

QueueSelector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]


def select_queue_by_hash(
    queues: Sequence[MessageQueue], _message: Message, arg: str | int
) -> MessageQueue:
    """The queue that Java's SelectMessageQueueByHash chooses for the same text or integer.

    A message with a ``sharding_key`` goes where this sends its key, without a selector.
    """
    return queues[abs(java_hash(arg) if isinstance(arg, str) else _hash_of_int(arg)) % len(queues)]


def select_queue_by_random(
    queues: Sequence[MessageQueue], _message: Message, _arg: object
) -> MessageQueue:
    """Any queue (SelectMessageQueueByRandom)."""
    return random.choice(queues)  # noqa: S311 - not a secret


def _hash_of_int(value: int) -> int:
    """``Integer.hashCode``, or ``Long.hashCode`` for what an Integer does not hold."""
    if -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return value
    folded = (value ^ (value & 0xFFFF_FFFF_FFFF_FFFF) >> 32) & 0xFFFF_FFFF
    return folded - 0x1_0000_0000 if folded > 0x7FFF_FFFF else folded
