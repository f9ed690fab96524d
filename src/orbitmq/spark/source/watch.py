"""Waiting for messages without asking again and again: pulls that the brokers hold.

Spark asks an idle stream for its latest offset some ninety times a second. Instead of answering at
once that there is nothing new, the driver lets every queue's broker hold one pull, and sleeps until
any of them is answered. The pulls stay with the brokers from one wait to the next.
"""

from __future__ import annotations

import logging
import select
import time
from collections.abc import Mapping
from typing import Final

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.errors import NetworkError, WireError
from orbitmq.net.blocking import BlockingConnection
from orbitmq.spark.source.offsets import Queue
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pulling import pull_header

log = logging.getLogger("orbitmq.spark")

HOLD_MS: Final = 15_000
"""How long a broker holds a pull; longer than any single wait."""


class ArrivalWatch:
    """Watches queues for messages that a query with these ``options`` reads."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._connections: dict[str, BlockingConnection] = {}
        self._held: dict[str, dict[int, Queue]] = {}
        self._watched: set[Queue] = set()
        self._refused: set[Queue] = set()

    def wait(
        self, ends: Mapping[Queue, int], addresses: Mapping[Queue, str], timeout_ms: int
    ) -> bool:
        """Wait until a queue has a message at its end or after; whether one does.

        A queue whose broker cannot be reached, or refuses, is not watched for the rest of the
        wait; with none left the time just passes.
        """
        deadline = time.monotonic() + timeout_ms / 1000
        self._refused.clear()
        arrived = False
        while not arrived and (left := deadline - time.monotonic()) > 0:
            self._hold(ends, addresses)
            ready, _, _ = select.select(list(self._connections.values()), [], [], left)
            for connection in ready:
                arrived |= self._answered(connection)
        return arrived

    def close(self) -> None:
        """Leave the brokers."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._held.clear()
        self._watched.clear()

    def _hold(self, ends: Mapping[Queue, int], addresses: Mapping[Queue, str]) -> None:
        for queue, end in ends.items():
            if queue in self._watched or queue in self._refused:
                continue
            address = addresses.get(queue)
            if address is None:
                continue
            header = pull_header(
                self._options.wire_topic(queue.topic),
                self._options.reading_group,
                self._options.expression,
                queue,
                end,
                suspend_ms=HOLD_MS,
                expression_type=self._options.expression_type,
            )
            try:
                connection = self._connections.get(address)
                if connection is None:
                    connection = BlockingConnection(address, access=self._options.access)
                    self._connections[address] = connection
                opaque = connection.send(RequestCode.PULL_MESSAGE, header)
            except NetworkError as error:
                self._forget(address, error)
                self._refused.update(other for other in ends if addresses.get(other) == address)
            else:
                self._held.setdefault(address, {})[opaque] = queue
                self._watched.add(queue)

    def _answered(self, connection: BlockingConnection) -> bool:
        arrived = False
        try:
            for answer in connection.receive_ready():
                queue = self._held[connection.address].pop(answer.opaque)
                self._watched.discard(queue)
                if answer.code in _ARRIVED:
                    arrived = True
                elif answer.code != codes.PULL_NOT_FOUND:
                    log.warning("%s is not watched: %s", queue, answer.remark)
                    self._refused.add(queue)
        except (NetworkError, WireError) as error:
            self._forget(connection.address, error)
        return arrived

    def _forget(self, address: str, error: Exception) -> None:
        log.debug("the queues of %s are not watched: %s", address, error)
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()
        self._watched.difference_update(self._held.pop(address, {}).values())


_ARRIVED: Final = {codes.SUCCESS, codes.PULL_RETRY_IMMEDIATELY, codes.PULL_OFFSET_MOVED}
