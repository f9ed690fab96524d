"""Which messages a topic's settings, and the broker's, keep out.

A topic without write permission takes none: Java's clients do not send to one, and its broker
relies on that. What messages the attribute ``message.type`` lets in follows
TopicMessageType.parseFromMessageProperty, and what Java's proxies do with it
(SendMessageActivity, DefaultTopicMessageTypeValidator); brokerPermission follows
AbstractSendMessageProcessor.msgCheck.
"""

from __future__ import annotations

from typing import Final

from orbitmq import codes
from orbitmq.broker.attributes import MESSAGE_TYPE, MIXED
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.topics import PERM_WRITE, READ_WRITE
from orbitmq.errors import BrokerError
from orbitmq.names import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.properties import (
    DELAY,
    PRIORITY,
    SHARDING_KEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    decode_properties,
)

_DELAYS: Final = (DELAY, TIMER_DELIVER_MS, TIMER_DELAY_SEC, TIMER_DELAY_MS)
_UNSPECIFIED: Final = "UNSPECIFIED"


def message_type(properties: dict[str, str]) -> str:
    """What a message with these properties is."""
    if properties.get(TRANSACTION_PREPARED) == "true":
        return "TRANSACTION"
    if any(name in properties for name in _DELAYS):
        return "DELAY"
    if SHARDING_KEY in properties:
        return "FIFO"
    return "PRIORITY" if PRIORITY in properties else "NORMAL"


def check_admitted(topic: TopicConfig, properties: str, config: BrokerConfig) -> None:
    """Raise BrokerError for a message that may not go into ``topic``."""
    name = topic.topic_name
    if not topic.perm & PERM_WRITE:
        raise BrokerError(
            codes.NO_PERMISSION,
            f"topic {name} may not be written: its permission is {topic.perm} (reading and "
            f"writing is {READ_WRITE})",
        )
    if topic.order and not config.broker_permission & PERM_WRITE:
        raise BrokerError(
            codes.NO_PERMISSION,
            f"the broker takes no messages of ordered topics such as {name}: its brokerPermission "
            f"is {config.broker_permission}",
        )
    if config.topic_message_type_check:
        check_message_type(topic, properties)


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
