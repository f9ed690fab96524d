"""The text by which a message with a timer is recalled (RecallMessageHandle of RocketMQ 5)."""

from __future__ import annotations

import base64
from typing import Final, NamedTuple

from orbitmq.errors import WireError

_VERSION: Final = "v1"
_FIELDS: Final = 5
_LONGEST: Final = 4096
_DIGITS: Final = 19


class RecallHandle(NamedTuple):
    """What a handle says: where the message waits, when it is due (ms), and its unique key."""

    topic: str
    broker_name: str
    timestamp: int
    message_id: str

    def encode(self) -> str:
        """The handle as clients get it: five words in URL-safe base64."""
        text = " ".join(
            (_VERSION, self.topic, self.broker_name, str(self.timestamp), self.message_id)
        )
        return base64.urlsafe_b64encode(text.encode()).decode()


def decode_recall_handle(handle: str) -> RecallHandle:
    """Read a handle. Raises WireError for what is none.

    As in Java, padding may be left out, and a time that is no number counts as over.
    """
    try:
        data = handle[:_LONGEST].encode("ascii") + b"=" * (-len(handle) % 4)
        words = base64.b64decode(data, altchars=b"-_", validate=True).decode().split(" ")
        version, topic, broker_name, timestamp, message_id = words[:_FIELDS]
    except ValueError as error:
        raise _invalid(handle) from error
    if version != _VERSION or len(handle) > _LONGEST:
        raise _invalid(handle)
    is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= _DIGITS
    return RecallHandle(topic, broker_name, int(timestamp) if is_number else -1, message_id)


def _invalid(handle: str) -> WireError:
    return WireError(f"recall handle is invalid: {handle[:80]!r}")
