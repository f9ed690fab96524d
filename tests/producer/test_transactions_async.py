"""The producer of transactions for coroutines."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq import (
    AsyncTransactionProducer,
    LocalTransactionState,
    Message,
    MessageView,
    TransactionMessage,
)
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.testing.clock import ManualClock
from tests.patience import eventually
from tests.producer.test_transactions import (
    COMMIT,
    OP,
    ROLLBACK,
    UNENDING,
    UNKNOWN,
    delivered,
    look_through,
)


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(clock=clock, **UNENDING) as running:
        yield running


def producer_of(
    broker: EmbeddedBroker, execute: Any = None, check: Any = None
) -> AsyncTransactionProducer:
    return AsyncTransactionProducer("shop", execute, check, name_server=broker.name_server)


async def ended(broker: EmbeddedBroker, count: int) -> None:
    def all_have() -> bool:
        return broker.call(lambda node: node.broker.store.max_offset(OP, 0)) >= count

    await asyncio.to_thread(eventually, all_have, f"{count} ended transactions")


def test_coroutines_and_functions_carry_it_out(broker: EmbeddedBroker) -> None:
    threads: dict[str, str] = {}

    async def execute(message: TransactionMessage, arg: Any) -> LocalTransactionState:
        threads["coroutine"] = threading.current_thread().name
        assert message.transaction_id
        return LocalTransactionState[arg]

    def execute_plain(_: TransactionMessage, arg: Any) -> LocalTransactionState:
        threads["function"] = threading.current_thread().name
        return LocalTransactionState[arg]

    async def main() -> None:
        number = 0
        for function in (execute, execute_plain):
            async with producer_of(broker, function) as producer:
                for how in ("COMMIT", "ROLLBACK"):
                    message = Message("orders", b"%d" % number)
                    result = await producer.send_message_in_transaction(message, how)
                    assert result.local_transaction_state.name == how
                    number += 1
        await ended(broker, 4)

    asyncio.run(main())
    assert sorted(delivered(broker)) == [b"0", b"2"]
    assert threads["coroutine"] == threading.main_thread().name != threads["function"]


def test_a_block_commits_or_rolls_back(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with producer_of(broker) as producer:
            async with producer.transaction(Message("orders", b"commit")):
                pass
            with pytest.raises(ValueError, match="no"):
                async with producer.transaction(Message("orders", b"drop")):
                    raise ValueError("no")
            await ended(broker, 2)

    asyncio.run(main())
    assert delivered(broker) == [b"commit"]


def test_a_cancel_rolls_a_block_back(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with producer_of(broker) as producer:
            entered = asyncio.Event()

            async def work() -> None:
                async with producer.transaction(Message("orders", b"drop")):
                    entered.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await entered.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended(broker, 1)

    asyncio.run(main())
    assert delivered(broker) == []


def test_a_cancel_before_the_answer_rolls_back_what_was_stored(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with producer_of(broker, lambda *_: COMMIT) as producer:
            await producer.send(Message("orders", b"first"))  # the route is known from now on
            task = asyncio.create_task(
                producer.send_message_in_transaction(Message("orders", b"drop"))
            )
            await asyncio.sleep(0)  # it has begun
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await ended(broker, 1)

    asyncio.run(main())
    assert delivered(broker) == [b"first"]


def test_a_cancelled_execution_stays_open(broker: EmbeddedBroker, clock: ManualClock) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def execute(*_: object) -> LocalTransactionState:
            begun.set()
            await asyncio.Event().wait()
            return ROLLBACK

        async def check(_: MessageView) -> LocalTransactionState:
            assert asyncio.get_running_loop() is loop
            return COMMIT

        loop = asyncio.get_running_loop()
        async with producer_of(broker, execute, check) as producer:
            task = asyncio.create_task(
                producer.send_message_in_transaction(Message("orders", b"x"))
            )
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

            def asked() -> bool:
                look_through(broker, clock)
                return broker.call(lambda node: node.broker.store.max_offset(OP, 0)) >= 1

            await asyncio.to_thread(eventually, asked, "the answer to a check")

    asyncio.run(main())
    assert set(delivered(broker)) == {b"x"}


def test_what_raises_is_unknown(broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture) -> None:
    async def execute(*_: object) -> LocalTransactionState:
        raise ValueError("the database is away")

    async def main() -> None:
        async with producer_of(broker, execute) as producer:
            result = await producer.send_message_in_transaction(Message("orders", b"x"))
            assert result.local_transaction_state is UNKNOWN

    asyncio.run(main())
    assert "execute_local_transaction failed" in caplog.text
