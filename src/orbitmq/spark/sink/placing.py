"""Which queue of its topic each message goes to: by sharding key, by number, or as a function says.

A placing is given the topic's queues and says for each message which of them takes it; -1 where it
does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from orbitmq.errors import ConfigError
from orbitmq.message import Message, MessageQueue
from orbitmq.spark.sink.frames import Frames, Numbers, parts_of
from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import KEYS, NOT_THE_USERS, SHARDING_KEY, TAGS, decode_properties

Placing: TypeAlias = Callable[[Sequence[MessageQueue], Frames], Numbers]
Refuse: TypeAlias = Callable[[npt.NDArray[np.bool_], str], None]
"""Raises the error of the first row for which the mask is true."""

Selector: TypeAlias = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue | None]

ANY: Final = -1


def by_hash(keys: Any) -> Placing:
    """By the hash of the sharding ``keys``, as SelectMessageQueueByHash; ANY without a key."""
    hashes = _hashes(keys)

    def place(queues: Sequence[MessageQueue], _frames: Frames) -> Numbers:
        return np.where(hashes < 0, ANY, hashes % len(queues))

    return place


def by_queue(queue_ids: Any, broker_names: Any, keys: Any, refuse: Refuse) -> Placing:
    """By number and broker; a row without a number as its sharding key says."""

    def place(queues: Sequence[MessageQueue], frames: Frames) -> Numbers:
        numbers = queue_ids.fill_null(ANY).to_numpy()
        names = [None] * len(numbers) if broker_names is None else broker_names.to_pylist()
        found = np.full(len(numbers), ANY, np.int64)
        wrong = np.zeros(len(numbers), np.bool_)
        known: dict[tuple[str | None, int], int] = {
            (queue.broker_name, queue.queue_id): index for index, queue in enumerate(queues)
        }
        for index in reversed(range(len(queues))):  # without a broker the first one's queue
            known[None, queues[index].queue_id] = index
        for row, (name, number) in enumerate(zip(names, numbers.tolist(), strict=True)):
            if number != ANY:
                found[row] = known.get((name or None, number), ANY)
                wrong[row] = found[row] == ANY
        some = ", ".join(f"{queue.broker_name}:{queue.queue_id}" for queue in queues[:16])
        refuse(wrong, f"its queueId is none of the topic's queues that can be written: {some}")
        rest = ANY if keys is None else by_hash(keys)(queues, frames)
        return np.where(numbers == ANY, rest, found)

    return place


def by_function(name: str, refuse: Refuse) -> Placing:
    """By the queue selector ``name``, ``module:function``; it may return None for any queue."""
    select = _load(name)

    def place(queues: Sequence[MessageQueue], frames: Frames) -> Numbers:
        found = np.full(len(frames), ANY, np.int64)
        wrong = np.zeros(len(frames), np.bool_)
        known = {queue: index for index, queue in enumerate(queues)}
        for row in range(len(frames)):
            message = _message(queues[0].topic, frames.bytes_of(row, row + 1))
            queue = select(queues, message, message.sharding_key)
            found[row] = known.get(queue, ANY) if queue else ANY
            wrong[row] = found[row] == ANY and queue is not None
        refuse(wrong, f"queueSelector={name!r} chose what is none of the topic's queues")
        return found

    return place


def _hashes(keys: Any) -> Numbers:
    """The absolute value of each key's hash in Java, ANY where there is none."""
    encoded = keys.dictionary_encode()
    # Java's remainder of a negative hash is negative, and its absolute value is taken.
    table = [abs(java_hash(key)) if key else ANY for key in encoded.dictionary.to_pylist()]
    numbers = encoded.indices.fill_null(len(table)).to_numpy()
    hashes: Numbers = np.array([*table, ANY], np.int64)[numbers]
    return hashes


def _message(topic: str, frame: memoryview) -> Message:
    parts = parts_of(frame)
    properties = decode_properties(parts.properties)
    return Message(
        topic,
        parts.body,
        tags=properties.get(TAGS),
        keys=properties.get(KEYS, "").split(),
        sharding_key=properties.get(SHARDING_KEY),
        properties={name: properties[name] for name in properties.keys() - NOT_THE_USERS},
        flag=parts.flag,
    )


@cache
def _load(name: str) -> Selector:
    module, _, function = name.partition(":")
    try:
        select: Selector = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "queueSelector", name, f"a function the executors can import: {error}"
        ) from error
    return select
