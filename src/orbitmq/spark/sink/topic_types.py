"""Topics that take messages of one type alone, on brokers that hold them to it.

With exactly_once rows are delivered when it is decided that they count, and may not be refused
then: so what a topic takes is looked for before. Our brokers hold topics to their attribute
``message.type`` unless ``enableTopicMessageTypeCheck`` is false; Apache's leave that to proxies.
"""

from __future__ import annotations

import logging

from orbitmq.codes import RequestCode
from orbitmq.errors import (
    AuthenticationError,
    InvalidMessageError,
    NoPermissionError,
    RequestNotSupportedError,
    TopicNotFoundError,
)
from orbitmq.net.blocking import CONNECTIONS, Access
from orbitmq.properties_file import decode_text, parse_properties
from orbitmq.spark.sink.frames import Frames, parts_of
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.headers import TopicRequestHeader
from orbitmq.wire.message_types import TELLING, mismatch, type_of
from orbitmq.wire.properties import decode_properties

log = logging.getLogger("orbitmq.spark")

_TELLING = [name.encode() for name in TELLING]


def required_type(address: str, topic: str, access: Access) -> str | None:
    """The type that the broker at ``address`` asks of messages to ``topic``; None for any.

    Where the account may not ask for the broker's settings, a topic's type counts. Raises
    BrokerError or NetworkError.
    """
    with CONNECTIONS.borrow(address, access) as connection:
        try:
            answer = connection.request(RequestCode.GET_TOPIC_CONFIG, TopicRequestHeader(topic))
        except TopicNotFoundError:  # the first message will make it
            return None
        except (RequestNotSupportedError, NoPermissionError, AuthenticationError) as error:
            log.info("which messages %s takes is not known: %s", topic, error)
            return None
        found = type_of(topic, TopicConfig.decode(answer.body).attributes)
        if found is None:
            return None
        try:
            settings = connection.request(RequestCode.GET_BROKER_CONFIG)
        except (NoPermissionError, AuthenticationError) as error:
            log.info("whether %s holds %s to its type is not known: %s", address, topic, error)
            return found
    checks = parse_properties(decode_text(bytes(settings.body)))
    return found if checks.get("enableTopicMessageTypeCheck") == "true" else None


def check_rows(topic: str, expected: str, frames: Frames) -> None:
    """Raise InvalidMessageError, naming the row, for one that ``topic`` will not take."""
    data = bytes(frames.bytes_of(0, len(frames)))
    # Without any of these names all rows are of one type.
    count = len(frames) if any(name in data for name in _TELLING) else min(1, len(frames))
    for index in range(count):
        properties = parts_of(frames.bytes_of(index, index + 1)).properties
        problem = mismatch(topic, expected, decode_properties(properties))
        if problem is not None:
            raise InvalidMessageError(f"row {frames.rows[index]}: {problem}")
