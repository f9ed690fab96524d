"""What users send and what they get back: messages, queues and results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from orbitmq.errors import InvalidMessageError


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker. Sorts as Java's ``MessageQueue.compareTo`` does."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """The text Java's ``MessageQueue.toString`` gives; consistent hashing depends on it."""
        return (
            f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, "
            f"queueId={self.queue_id}]"
        )


class Message:
    """A message to send.

    ``tags`` is one tag to filter by; ``keys`` one or several keys to find the message by, joined
    by a space as in Java; ``sharding_key`` is kept as a property and, when no selector is given,
    chooses the queue; ``delay_level`` 1 to 18 delays delivery by the broker's levels, 0 does not.
    ``deliver_at`` (a datetime with a time zone, or ms since 1970), ``delay_ms`` or
    ``delay_seconds`` says when it is delivered, on brokers of RocketMQ 5 and OrbitMQ, up to three
    days ahead; brokers before 5 deliver it at once. One of these four may be given.
    ``flag`` is an integer of the user's own. ``properties`` are further string pairs; an empty
    value is not transmitted (RocketMQ drops it). Two messages are equal when all of that is.
    """

    __slots__ = (
        "body",
        "delay_level",
        "delay_ms",
        "delay_seconds",
        "deliver_at",
        "flag",
        "keys",
        "properties",
        "sharding_key",
        "tags",
        "topic",
    )

    def __init__(  # noqa: PLR0913 - each is said of the message
        self,
        topic: str,
        body: bytes,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        sharding_key: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        deliver_at: int | datetime | None = None,
        delay_ms: int | None = None,
        delay_seconds: int | None = None,
        flag: int = 0,
    ) -> None:
        self.topic = topic
        self.body = body
        self.tags = tags
        self.keys = keys if keys is None or isinstance(keys, str) else _joined(keys)
        self.sharding_key = sharding_key
        self.properties = properties
        self.delay_level = delay_level
        self.deliver_at = deliver_at
        self.delay_ms = delay_ms
        self.delay_seconds = delay_seconds
        self.flag = flag

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in Message.__slots__)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        return (
            f"Message({self.topic!r}, {len(self.body)} bytes, tags={self.tags!r}, "
            f"keys={self.keys!r})"
        )


def _joined(keys: Iterable[str]) -> str:
    try:
        return " ".join(keys)
    except TypeError as error:
        raise InvalidMessageError(
            f"keys={keys!r} of type {type(keys).__name__}: keys are text (str), or several texts"
        ) from error


class SendStatus(Enum):
    """What the broker says of a stored message (Java's ``SendStatus``)."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3


class SendResult(NamedTuple):
    """Where a sent message went. ``message_id`` is the client's unique key.

    ``trace_on`` is False where the broker wants it kept out of traces. ``recall_handle`` is what
    :meth:`orbitmq.Producer.recall` takes, for a message that waits for its time.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    region_id: str | None = None
    trace_on: bool = True
    recall_handle: str | None = None


class PullStatus(Enum):
    """The outcome of a pull (Java's ``PullStatus``)."""

    FOUND = 0
    NO_NEW_MESSAGE = 1
    NO_MATCHED_MESSAGE = 2
    OFFSET_ILLEGAL = 3
