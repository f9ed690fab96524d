"""How far a stream is behind: messages still to be read, and how long the oldest has waited.

Spark tells a listener, in a query's progress, what a source reports as its latest offset. The lag
is told there, beside the ends of the queues.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, Final, NamedTuple

from orbitmq import codes
from orbitmq.clock import Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import NetworkError, WireError
from orbitmq.net.blocking import CONNECTIONS
from orbitmq.spark.source.offsets import Offsets, Queue
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pulling import pull_header
from orbitmq.spark.source.topic import TopicClient
from orbitmq.wire.message_view import decode_records

log = logging.getLogger("orbitmq.spark")

QUEUES_ASKED: Final = 32
"""Of so many queues, those furthest behind, the oldest message is looked for."""


class Lag(NamedTuple):
    """Messages that a stream has still to read, and the seconds since the oldest was stored.

    ``seconds`` is None where no broker told.
    """

    messages: int
    seconds: float | None

    def to_json(self) -> dict[str, Any]:
        """The form in a query's progress."""
        return {"messages": self.messages, "seconds": self.seconds}


class LagMeter:
    """Measures the lag of one stream; asks brokers only while there is one."""

    def __init__(self, options: ReadOptions, topics: TopicClient, clock: Clock) -> None:
        self._options = options
        self._topics = topics
        self._clock = clock

    def measure(self, read: Offsets, ends: Offsets) -> Lag:
        """The lag of who has read up to ``read`` of queues that end at ``ends``.

        With a filter, messages count that the filter leaves out.
        """
        waiting = {queue: end - read.get(queue, end) for queue, end in ends.items()}
        behind = sorted((queue for queue in waiting if waiting[queue] > 0), key=waiting.__getitem__)
        messages = sum(waiting[queue] for queue in behind)
        if not messages:
            return Lag(0, 0.0)
        oldest = min(self._stored(behind[-QUEUES_ASKED:], read), default=None)
        if oldest is None:
            return Lag(messages, None)
        return Lag(messages, max(self._clock.now_ms() - oldest, 0) / 1000)

    def _stored(self, queues: Iterable[Queue], read: Offsets) -> Iterator[int]:
        """When the next message of each queue was stored (ms), of those whose broker tells."""
        known = [
            (address, queue) for queue in queues if (address := self._topics.addresses.get(queue))
        ]
        for address, pairs in groupby(sorted(known), key=lambda pair: pair[0]):
            try:
                yield from self._stored_at(address, [queue for _, queue in pairs], read)
            except (NetworkError, WireError) as error:
                log.warning("how long messages have waited at %s is not known: %s", address, error)

    def _stored_at(self, address: str, queues: list[Queue], read: Offsets) -> Iterator[int]:
        options = self._options
        with CONNECTIONS.borrow(address, options.access) as connection:
            for queue in queues:
                header = pull_header(
                    options.wire_topic(queue.topic), options.reading_group, "*", queue, read[queue]
                )
                connection.send(RequestCode.PULL_MESSAGE, header)
            answers = [connection.receive() for _ in queues]
        for answer in answers:
            if answer.code == codes.SUCCESS and answer.body:
                yield decode_records(bytes(answer.body))[0].store_timestamp


def lag_of(report: Any) -> Lag | None:
    """The lag in what a source reported as its latest offset; None if it is no source of ours."""
    try:
        found = report["lag"]
        return Lag(int(found["messages"]), found["seconds"])
    except (KeyError, TypeError, ValueError):
        return None
