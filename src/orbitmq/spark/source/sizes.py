"""How large the messages of a topic are: brokers tell offsets, not the bytes between them."""

from __future__ import annotations

import logging
from typing import Final

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, WireError
from orbitmq.net.blocking import CONNECTIONS
from orbitmq.spark.source.offsets import Queue
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pulling import pull_header
from orbitmq.wire.headers import PullMessageResponseHeader

log = logging.getLogger("orbitmq.spark")

SAMPLE: Final = 32
"""How many messages are looked at: as many as any broker hands out at a time."""

_UNKNOWN: Final = 1024.0


class RecordSizes:
    """How many bytes an offset is worth, by topic, found by pulling a few messages."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._found: dict[str, float] = {}

    def of(self, queue: Queue, offset: int, address: str) -> float:
        """Bytes an offset, of ``queue`` from ``offset`` on.

        Messages that a filter leaves out count as nothing. A broker that cannot be asked leaves
        what was found before, at first 1 KiB.
        """
        try:
            size = self._sample(queue, offset, address)
        except (NetworkError, BrokerError, WireError) as error:
            log.warning("the size of messages of %s is not known: %s", queue.topic, error)
            size = 0.0
        if size:
            self._found[queue.topic] = size
        return self._found.get(queue.topic, _UNKNOWN)

    def _sample(self, queue: Queue, offset: int, address: str) -> float:
        header = pull_header(
            self._options.wire_topic(queue.topic),
            self._options.reading_group,
            self._options.expression,
            queue,
            offset,
            count=SAMPLE,
            expression_type=self._options.expression_type,
        )
        with CONNECTIONS.borrow(address, self._options.access) as connection:
            answer = connection.invoke(RequestCode.PULL_MESSAGE, header)
        if answer.code not in {codes.SUCCESS, codes.PULL_RETRY_IMMEDIATELY}:
            return 0.0
        passed = answer.header(PullMessageResponseHeader).next_begin_offset - offset
        return max(len(answer.body), 1) / passed if passed > 0 else 0.0
