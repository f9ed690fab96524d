"""Trace data: what happened to messages and when, as RocketMQ keeps it in its trace topic.

Records of text, with the characters 1 between fields and 2 after records, that Apache's dashboard
and ``mqadmin queryMsgTraceById`` read. Follows TraceDataEncoder, TraceContext and TraceBean of
``org.apache.rocketmq.client.trace``. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from orbitmq.wire.ids import create_unique_id

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"


class ContextCode(IntEnum):
    """How consuming ended, by the order of Java's ``ConsumeReturnType``."""

    SUCCESS = 0
    TIME_OUT = 1
    EXCEPTION = 2
    RETURNNULL = 3
    FAILED = 4


@dataclass(frozen=True, slots=True)
class TracedMessage:
    """What a trace says of a message that is consumed."""

    topic: str
    message_id: str
    keys: str | None
    retry_times: int


@dataclass(frozen=True, slots=True)
class ConsumeTrace:
    """A batch that a listener gets; before and after are two records a message.

    ``timestamp_ms`` is when it got them; ``request_id`` joins the records of before and after.
    """

    group: str
    region_id: str
    request_id: str
    timestamp_ms: int
    messages: Sequence[TracedMessage]

    @classmethod
    def begin(
        cls, group: str, region_id: str, timestamp_ms: int, messages: Sequence[TracedMessage]
    ) -> ConsumeTrace:
        """With a request id of its own."""
        return cls(group, region_id, create_unique_id(), timestamp_ms, messages)

    def before(self) -> str:
        """The records of type ``SubBefore``."""
        return "".join(
            _record(
                "SubBefore",
                self.timestamp_ms,
                self.region_id,
                self.group,
                self.request_id,
                message.message_id,
                message.retry_times,
                _text(message.keys),
            )
            for message in self.messages
        )

    def after(self, cost_ms: int, code: ContextCode, timestamp_ms: int, *, success: bool) -> str:
        """The records of type ``SubAfter``; ``cost_ms`` is the time a message took."""
        return "".join(
            _record(
                "SubAfter",
                self.request_id,
                message.message_id,
                cost_ms,
                "true" if success else "false",
                _text(message.keys),
                code.value,
                timestamp_ms,
                self.group,
            )
            for message in self.messages
        )

    def keys(self) -> Iterable[str]:
        """What the records are to be found by."""
        for message in self.messages:
            yield message.message_id
            yield from (message.keys or "").split()


@dataclass(frozen=True, slots=True)
class SentMessage:
    """What a trace says of a message that was sent, or whose transaction ended."""

    topic: str
    message_id: str
    tags: str | None
    keys: str | None
    store_host: str
    message_type: int
    """Java's ``MessageType`` by its number."""

    def find_by(self) -> Iterable[str]:
        """What its record is to be found by."""
        yield self.message_id
        yield from (self.keys or "").split()

    def published(
        self,
        group: str,
        region_id: str,
        timestamp_ms: int,
        cost_ms: int,
        *,
        body_length: int,
        offset_message_id: str,
        success: bool,
    ) -> str:
        """The record of type ``Pub``; ``timestamp_ms`` is when it was sent."""
        return _record(
            "Pub",
            timestamp_ms,
            region_id,
            group,
            self.topic,
            self.message_id,
            _text(self.tags),
            _text(self.keys),
            self.store_host,
            body_length,
            cost_ms,
            self.message_type,
            offset_message_id,
            "true" if success else "false",
        )

    def transaction_ended(
        self,
        group: str,
        region_id: str,
        timestamp_ms: int,
        *,
        transaction_id: str | None,
        state: str,
        from_check: bool,
    ) -> str:
        """The record of type ``EndTransaction``; ``state`` is Java's ``LocalTransactionState``."""
        return _record(
            "EndTransaction",
            timestamp_ms,
            region_id,
            group,
            self.topic,
            self.message_id,
            _text(self.tags),
            _text(self.keys),
            self.store_host,
            self.message_type,
            _text(transaction_id),
            state,
            "true" if from_check else "false",
        )


def recalled(
    group: str, region_id: str, timestamp_ms: int, topic: str, message_id: str, *, success: bool
) -> str:
    """The record of type ``Recall``: a timed message that was taken back."""
    return _record(
        "Recall",
        timestamp_ms,
        region_id,
        group,
        topic,
        message_id,
        "true" if success else "false",
    )


def _record(*fields: object) -> str:
    return FIELD_END.join(map(str, fields)) + RECORD_END


def _text(text: str | None) -> str:
    """As Java writes a string that may be missing."""
    return "null" if text is None else text
