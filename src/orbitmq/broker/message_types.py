"""Which messages a topic takes that has the attribute ``message.type``.

Follows TopicMessageType.parseFromMessageProperty, and what Java's proxies do with it
(SendMessageActivity, DefaultTopicMessageTypeValidator).
"""

from __future__ import annotations

from typing import Final

from orbitmq import codes
from orbitmq.broker.attributes import MESSAGE_TYPE, MIXED
from orbitmq.errors import BrokerError
from orbitmq.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.properties import (
    DELAY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    decode_properties,
)

_DELAYS: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
_PRIORITY: Final = "_SYS_MSG_PRIORITY_"
_UNSPECIFIED: Final = "UNSPECIFIED"


def message_type(properties: dict[str, str]) -> str:
    """What a message with these properties is."""
    if properties.get(TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if any(name in properties for name in _DELAYS):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if _PRIORITY in properties else "NORMAL"


def check_message_type(topic: TopicConfig, properties: str) -> None:
    """Raise BrokerError for a message of another type than its topic takes.

    What is on its way to consumers again is taken always.
    """
    expected = topic.attributes.get(MESSAGE_TYPE, _UNSPECIFIED)
    if expected in {_UNSPECIFIED, MIXED} or topic.topic_name.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        return
    found = message_type(decode_properties(properties.encode()))
    if found != expected:
        raise BrokerError(
            codes.MESSAGE_ILLEGAL,
            f"topic {topic.topic_name} takes {expected} messages, this is a {found} one: send it "
            f"to another topic, or change the attribute {MESSAGE_TYPE}",
        )
