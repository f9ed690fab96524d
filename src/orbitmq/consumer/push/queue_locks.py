"""Locks of queues at their brokers, for consumers that consume in order.

A broker gives a queue to one client of a group at a time, for 60 s unless it asks again. Follows
lock, lockAll and unlock of Java's RebalanceImpl; all queues of a broker are asked for at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable
from typing import Final

from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.consumer.rebalance import names
from orbitmq.errors import BodyError, BrokerError, NetworkError
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueues,
    UnlockBatchRequestBody,
)

log = logging.getLogger("orbitmq.consumer.rebalance")

_TIMEOUT_MS: Final = 1_000


class QueueLocks:
    """Asks the brokers for locks in the name of one consumer."""

    def __init__(self, instance: ClientInstance, group: str) -> None:
        self._instance = instance
        self._group = group
        self._giving_back: list[MessageQueue] = []
        self._unlocking: asyncio.Task[None] | None = None

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock ``queues``, or renew their locks: for each, whether it is this client's now.

        Those whose broker did not answer are left out; their locks may still hold.
        """
        by_broker = _by_broker(queues)
        answers = await asyncio.gather(
            *(self._lock(broker, mine) for broker, mine in by_broker.items())
        )
        return {queue: granted for answer in answers for queue, granted in answer.items()}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give ``queues`` back; a broker that does not hear of it does so by itself in time.

        Queues are given up one by one: those of the same moment are given back by one request.
        """
        self._giving_back += queues
        if self._unlocking is None:
            self._unlocking = asyncio.create_task(self._unlock_all())
        await asyncio.shield(self._unlocking)

    async def _unlock_all(self) -> None:
        by_broker = _by_broker(self._giving_back)
        self._giving_back, self._unlocking = [], None
        await asyncio.gather(*(self._unlock(broker, mine) for broker, mine in by_broker.items()))

    async def _lock(
        self, broker_name: str, queues: Collection[MessageQueue]
    ) -> dict[MessageQueue, bool]:
        body = LockBatchRequestBody(
            self._group, self._instance.client_id, MessageQueues(queues)
        ).encode()
        try:
            address = await self._instance.broker_address(broker_name, only_this=True)
            answer = await self._instance.request(
                address, RequestCode.LOCK_BATCH_MQ, body=body, timeout_ms=_TIMEOUT_MS
            )
            locked = LockBatchResponseBody.decode(answer.body).lock_ok_mq_set
        except (NetworkError, BrokerError, BodyError) as error:
            log.warning("the queues %s were not locked: %s", _texts(queues), error)
            return {}
        return {queue: queue in locked for queue in queues}

    async def _unlock(self, broker_name: str, queues: Collection[MessageQueue]) -> None:
        body = UnlockBatchRequestBody(
            self._group, self._instance.client_id, MessageQueues(queues)
        ).encode()
        try:
            address = await self._instance.broker_address(broker_name, only_this=True)
            await self._instance.request(
                address, RequestCode.UNLOCK_BATCH_MQ, body=body, timeout_ms=_TIMEOUT_MS
            )
        except (NetworkError, BrokerError) as error:
            log.warning("the queues %s were not unlocked: %s", _texts(queues), error)


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_broker.setdefault(queue.broker_name, []).append(queue)
    return by_broker


def _texts(queues: Iterable[MessageQueue]) -> str:
    by_topic: dict[str, list[MessageQueue]] = {}
    for queue in queues:
        by_topic.setdefault(queue.topic, []).append(queue)
    return ", ".join(f"{names(mine)} of {topic}" for topic, mine in by_topic.items())
