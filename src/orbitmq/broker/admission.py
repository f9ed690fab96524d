"""Which messages a topic's settings, and the broker's, keep out.

A topic without write permission takes none: Java's clients do not send to one, and its broker
relies on that. What messages the attribute ``message.type`` lets in follows what Java's proxies do
with it (SendMessageActivity); brokerPermission follows AbstractSendMessageProcessor.msgCheck.
"""

from __future__ import annotations

from orbitmq import codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.topics import PERM_WRITE, READ_WRITE
from orbitmq.errors import BrokerError
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.message_types import mismatch, type_of
from orbitmq.wire.properties import decode_properties


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
    """Raise BrokerError for a message of another type than its topic takes."""
    expected = type_of(topic.topic_name, topic.attributes)
    if expected is None:
        return
    problem = mismatch(topic.topic_name, expected, decode_properties(properties.encode()))
    if problem is not None:
        raise BrokerError(codes.MESSAGE_ILLEGAL, problem)
