"""The right to deliver what a write decided: of the processes that could, one at a time has it.

It is the lock of a queue, as orderly consumers take it, so brokers need know nothing of Spark. They
keep it for 60 seconds after it was last renewed (RebalanceLockManager), so one who was killed keeps
it for so long, and whoever goes on waits for it.
"""

from __future__ import annotations

import logging
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias
from urllib.parse import unquote

from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError
from orbitmq.message import MessageQueue
from orbitmq.net.blocking import CONNECTIONS, Access
from orbitmq.spark.sink.ledger import LEDGER_QUEUES, LEDGER_TOPIC, Ledger
from orbitmq.spark.source.options import TOOLS_GROUP
from orbitmq.wire.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueues

log = logging.getLogger("orbitmq.spark")

Renew: TypeAlias = Callable[[], None]

RENEW_SECONDS: Final = 20.0
"""How often it is renewed."""

_NOT_HELD: Final = float("-inf")


class Lease:
    """The right to deliver on the broker of ``ledger``, for a process called ``owner``.

    ``scope`` is the quoted name of the write, as its notes have it.
    """

    def __init__(self, ledger: Ledger, scope: str, owner: str, access: Access) -> None:
        # Writes whose names have one hash wait for each other.
        number = zlib.crc32(scope.encode()) % LEDGER_QUEUES
        queues = MessageQueues([MessageQueue(LEDGER_TOPIC, ledger.broker_name, number)])
        self._body = LockBatchRequestBody(TOOLS_GROUP, owner, queues).encode()
        self._address = ledger.address
        self._write = unquote(scope)
        self._access = access
        self._renewed = _NOT_HELD

    @contextmanager
    def held(self) -> Iterator[Renew]:
        """Nobody else has it in the block, as long as what it is given is called in between.

        Either raises NetworkError where another process has it.
        """
        self._renew()
        try:
            yield self._renew
        finally:
            self._give_back()

    def _renew(self) -> None:
        if time.monotonic() - self._renewed < RENEW_SECONDS:
            return
        with CONNECTIONS.borrow(self._address, self._access) as connection:
            answer = connection.request(RequestCode.LOCK_BATCH_MQ, body=self._body)
        if not LockBatchResponseBody.decode(answer.body).lock_ok_mq_set:
            raise NetworkError(
                f"{self._address} does not let {self._write} be delivered: another process "
                "delivers, or was killed doing so less than a minute ago; or "
                f"{LEDGER_TOPIC} has fewer than {LEDGER_QUEUES} queues",
                self._address,
            )
        self._renewed = time.monotonic()

    def _give_back(self) -> None:
        self._renewed = _NOT_HELD
        try:
            with CONNECTIONS.borrow(self._address, self._access) as connection:
                connection.request(RequestCode.UNLOCK_BATCH_MQ, body=self._body)
        except (NetworkError, BrokerError) as error:
            log.warning("the right to deliver %s is kept for a minute: %s", self._write, error)
