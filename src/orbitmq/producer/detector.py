"""The detector: asks brokers that a FaultStrategy has noted whether they are there again.

Follows LatencyFaultToleranceImpl.detectByOneRound, and the ServiceDetector of
DefaultMQProducerImpl, which asks for an offset because brokers of every version answer that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError
from orbitmq.producer.fault_strategy import FaultStrategy
from orbitmq.producer.sender import Sender
from orbitmq.wire.headers import TopicQueueRequestHeader

log = logging.getLogger("orbitmq.producer")

ROUND_SECONDS: Final = 3.0


class Detector:
    """Looks after ``faults`` on behalf of ``sender``, on the private loop.

    A broker is asked every ``interval_ms`` at most, and has ``timeout_ms`` to answer.
    """

    def __init__(
        self, faults: FaultStrategy, sender: Sender, *, interval_ms: int, timeout_ms: int
    ) -> None:
        self._faults = faults
        self._sender = sender
        self._interval_ms = interval_ms
        self._timeout_ms = timeout_ms

    async def run(self) -> None:
        """Look at all brokers that are due, again and again."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            try:
                await self.look()
            except Exception:
                log.exception("brokers were not looked at, next try in %g s", ROUND_SECONDS)

    async def look(self) -> None:
        """Look once at the brokers that are due."""
        instance = self._sender.instance
        for broker in self._faults.due(instance.clock.monotonic() * 1000, self._interval_ms):
            address = instance.send_address(broker)
            if address is None:
                self._faults.forget(broker)
            elif await self._answers(address):
                self._faults.detected(broker)

    async def _answers(self, address: str) -> bool:
        topic = next(iter(self._sender.routes.topics()), None)
        if topic is None:
            return False
        try:
            await self._sender.instance.request(
                address,
                RequestCode.GET_MAX_OFFSET,
                TopicQueueRequestHeader(topic=topic, queue_id=0),
                timeout_ms=self._timeout_ms,
            )
        except (NetworkError, BrokerError) as error:
            log.debug("broker %s is not there yet: %s", address, error)
            return False
        return True
