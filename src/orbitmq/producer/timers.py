"""A message's own time: what the user says of it, as the property that brokers of RocketMQ 5 read.

Follows Message.setDeliverTimeMs, setDelayTimeMs and setDelayTimeSec.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from orbitmq.errors import InvalidMessageError
from orbitmq.message import Message
from orbitmq.wire import properties as names

_FIELDS: Final = {
    "deliver_at": names.TIMER_DELIVER_MS,
    "delay_ms": names.TIMER_DELAY_MS,
    "delay_seconds": names.TIMER_DELAY_SEC,
}
_ALLOWED: Final = {
    "deliver_at": "it must be a datetime with a time zone, or an int of ms since 1970",
    "delay_ms": "it must be an int of milliseconds",
    "delay_seconds": "it must be an int of seconds; for less give delay_ms",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST: Final = 1 << 53


def has_timer(message: Message) -> bool:
    """Whether ``message`` has a time of its own."""
    return (
        message.deliver_at is not None
        or message.delay_ms is not None
        or message.delay_seconds is not None
    )


def timer_property(message: Message) -> tuple[str, str]:
    """The property for the time of ``message``, which has one.

    Raises InvalidMessageError for a value that is none, and for more than one.
    """
    given = [field for field in _FIELDS if getattr(message, field) is not None]
    if message.delay_level > 0:
        given.append("delay_level")
    if len(given) > 1:
        raise InvalidMessageError(
            f"a message to {message.topic!r} has {' and '.join(given)}: give one of them"
        )
    field = given[0]
    value: object = getattr(message, field)
    if isinstance(value, datetime) and field == "deliver_at" and value.utcoffset() is not None:
        value = (value - _EPOCH) // timedelta(milliseconds=1)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MOST:
        raise InvalidMessageError(
            f"{field}={value!r} of a message to {message.topic!r}: {_ALLOWED[field]}, not negative"
        )
    return _FIELDS[field], str(value)
