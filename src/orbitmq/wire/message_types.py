"""What kind a message is, and which kinds a topic takes by its attribute ``message.type``.

Follows TopicMessageType.parseFromMessageProperty and DefaultTopicMessageTypeValidator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.properties import (
    DELAY,
    PRIORITY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
)

MESSAGE_TYPE: Final = "message.type"
"""The attribute that says which messages a topic takes."""
MIXED: Final = "MIXED"
TRANSACTION: Final = "TRANSACTION"

_UNSPECIFIED: Final = "UNSPECIFIED"
_DELAYS: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
TELLING: Final = (TRANSACTION_PREPARED, *_DELAYS, SHARDING_KEY, PRIORITY)
"""The properties that say of a message that it is another one than NORMAL."""


def message_type(properties: Mapping[str, str]) -> str:
    """What a message with these properties is."""
    if properties.get(TRANSACTION_PREPARED) == "true":
        return TRANSACTION
    if any(name in properties for name in _DELAYS):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if PRIORITY in properties else "NORMAL"


def type_of(topic: str, attributes: Mapping[str, str]) -> str | None:
    """The type that messages of ``topic`` must have; None where they may have any.

    What is on its way to consumers again may.
    """
    found = attributes.get(MESSAGE_TYPE, _UNSPECIFIED)
    any_type = found in {_UNSPECIFIED, MIXED} or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    return None if any_type else found


def mismatch(topic: str, expected: str, properties: Mapping[str, str]) -> str | None:
    """Why ``topic``, of type ``expected``, does not take a message; None where it does."""
    found = message_type(properties)
    if found == expected:
        return None
    return (
        f"topic {topic} takes {expected} messages, this is a {found} one: send it to another "
        f"topic, or change the attribute {MESSAGE_TYPE}"
    )
