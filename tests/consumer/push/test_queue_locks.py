"""QueueLocks: one request a broker for all that is asked at the same moment."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.consumer.push.queue_locks import QueueLocks
from orbitmq.errors import ConnectError
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import (
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueues,
    UnlockBatchRequestBody,
)
from orbitmq.wire.command import RemotingCommand

A = [MessageQueue("orders", "broker-a", number) for number in range(4)]
B = [MessageQueue("bills", "broker-b", number) for number in range(2)]


class Brokers(ClientInstance):
    """An instance whose brokers lock all but ``refused`` and note what is unlocked."""

    def __init__(self) -> None:
        self.client_id = "me"
        self.refused: set[MessageQueue] = set()
        self.gone: set[str] = set()
        self.locked: list[tuple[str, set[MessageQueue]]] = []
        self.unlocked: list[tuple[str, set[MessageQueue]]] = []

    async def broker_address(self, broker_name: str, **_: Any) -> str:
        return broker_name

    async def request(self, address: str, code: int, *_: Any, **options: Any) -> RemotingCommand:
        await asyncio.sleep(0)
        if address in self.gone:
            raise ConnectError("no broker", address)
        if code == RequestCode.UNLOCK_BATCH_MQ:
            body = UnlockBatchRequestBody.decode(options["body"])
            self.unlocked.append((address, set(body.mq_set)))
            return RemotingCommand()
        wanted = set(LockBatchRequestBody.decode(options["body"]).mq_set)
        self.locked.append((address, wanted))
        granted = MessageQueues(wanted - self.refused)
        return RemotingCommand(body=LockBatchResponseBody(granted).encode())


def cluster() -> tuple[Brokers, QueueLocks]:
    brokers = Brokers()
    return brokers, QueueLocks(brokers, "readers")


def test_the_queues_of_a_broker_are_asked_for_together() -> None:
    brokers, locks = cluster()
    brokers.refused = {A[1]}
    granted = asyncio.run(locks.lock([*A, *B]))
    assert granted == {queue: queue != A[1] for queue in (*A, *B)}
    assert sorted(brokers.locked) == [("broker-a", set(A)), ("broker-b", set(B))]


def test_a_broker_that_does_not_answer_says_nothing_of_its_locks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    brokers, locks = cluster()
    brokers.gone = {"broker-a"}
    assert asyncio.run(locks.lock([*A, *B])) == dict.fromkeys(B, True)
    assert "broker-a/0-3 of orders were not locked" in caplog.text


def test_queues_given_back_at_the_same_moment_leave_together(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(brokers: Brokers, locks: QueueLocks) -> None:
        await asyncio.gather(*(locks.unlock([queue]) for queue in (*A[:3], *B)))
        assert sorted(brokers.unlocked) == [("broker-a", set(A[:3])), ("broker-b", set(B))]
        brokers.gone = {"broker-b"}
        first = asyncio.create_task(locks.unlock([B[0]]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # its request is under way
        await locks.unlock([A[3]])
        await first
        assert brokers.unlocked[2:] == [("broker-a", {A[3]})]
        assert "broker-b/0 of bills were not unlocked" in caplog.text

    asyncio.run(scenario(*cluster()))
