"""The bodies of what only operators' tools ask of brokers, typed as in bodies.py."""

from __future__ import annotations

from typing import Self

from msgspec import field

from orbitmq.message import MessageQueue
from orbitmq.wire.admin_bodies import ConsumeStats
from orbitmq.wire.bodies import Body, QueueFields


class QueueTimeSpan(Body, frozen=True):
    """From when to when a queue's messages were stored, and how far a group is (303).

    All in ms; ``delay_time`` is how old the next message to consume is.
    """

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class _TimeSpan(Body, frozen=True):
    message_queue: QueueFields
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0


class _TimeSpans(Body, frozen=True):
    consume_time_span_set: list[_TimeSpan] = []


class QueryConsumeTimeSpanBody(Body, frozen=True):
    """The time spans of a topic's queues at a broker."""

    consume_time_span_set: list[QueueTimeSpan] = []

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Read a body, whose queues are objects. Raises BodyError."""
        return cls(
            [
                QueueTimeSpan(
                    span.message_queue.queue(),
                    span.min_time_stamp,
                    span.max_time_stamp,
                    span.consume_time_stamp,
                    span.delay_time,
                )
                for span in _TimeSpans.decode(data).consume_time_span_set
            ]
        )


class BrokerStatsItem(Body, frozen=True):
    """A count, how many that is a second, and the mean of what was counted (``avgpt``)."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class BrokerStatsData(Body, frozen=True):
    """A statistic of a broker over the last minute, hour and day (315)."""

    stats_minute: BrokerStatsItem = BrokerStatsItem()
    stats_hour: BrokerStatsItem = BrokerStatsItem()
    stats_day: BrokerStatsItem = BrokerStatsItem()


class ConsumeStatsList(Body, frozen=True):
    """The progress of all groups of a broker (317)."""

    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    broker_addr: str | None = None
    total_diff: int = 0
    total_inflight_diff: int = 0


class ProducerInfo(Body, frozen=True):
    """A producer as a broker knows it; ``last_update_timestamp`` in ms."""

    client_id: str
    remote_ip: str | None = field(default=None, name="remoteIP")
    language: str = "JAVA"
    version: int = 0
    last_update_timestamp: int = 0


class ProducerTableInfo(Body, frozen=True):
    """All producers of a broker, by group (328)."""

    data: dict[str, list[ProducerInfo]] = {}
