"""AsyncTransactionProducer: the producer of transactions for coroutines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Unpack, cast

from orbitmq.aio.face import AsyncFace
from orbitmq.aio.producer import AsyncProducer
from orbitmq.client.loop import Answer
from orbitmq.errors import OrbitMQError
from orbitmq.message import Message, SendResult, SendStatus
from orbitmq.producer.config import TransactionProducerSettings
from orbitmq.producer.local_transactions import (
    CheckFunction,
    ExecuteFunction,
    LocalTransactionState,
)
from orbitmq.producer.transaction import (
    Half,
    HalfSink,
    Transaction,
    TransactionCore,
    TransactionSendResult,
)


class AsyncTransactionProducer(AsyncProducer):
    """Sends messages in transactions, as :class:`orbitmq.TransactionProducer`, which explains it.

        async with AsyncTransactionProducer("shop", check_local_transaction=check) as producer:
            async with producer.transaction(Message("orders", b"...", keys="17")):
                await database.pay(17)

    Coroutine functions run on the loop the producer was started on, plain functions in threads.
    """

    def __init__(
        self,
        group: str,
        execute_local_transaction: ExecuteFunction | None = None,
        check_local_transaction: CheckFunction | None = None,
        **settings: Unpack[TransactionProducerSettings],
    ) -> None:
        core = TransactionCore(group, execute_local_transaction, check_local_transaction, settings)
        AsyncFace.__init__(self, core)

    async def start(self) -> None:
        """Start. Raises ClientStateError when it was started before, or its group is in use."""
        self._transactions.local.loop = asyncio.get_running_loop()
        await super().start()

    async def send_message_in_transaction(
        self,
        message: Message,
        arg: object = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> TransactionSendResult:
        """Send ``message``, carry out its local transaction, and end it as that says.

        As :meth:`orbitmq.TransactionProducer.send_message_in_transaction`; a coroutine function
        runs in this task. Where it is cancelled the transaction stays open, and the broker asks.
        """
        core = self._transactions
        core.local.executing()
        half = await self._send_half(message, timeout)
        if half.sent.status is not SendStatus.SEND_OK:
            core.end(half, LocalTransactionState.ROLLBACK)
            return half.result(LocalTransactionState.ROLLBACK)
        state = LocalTransactionState.UNKNOWN
        try:
            state = await core.local.execute_async(half.message, arg)
        finally:
            core.end(half, state)
        return half.result(state)

    @asynccontextmanager
    async def transaction(
        self,
        message: Message,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Transaction]:
        """Send ``message`` in a transaction that ends with the block of the ``async with``.

        As :meth:`orbitmq.TransactionProducer.transaction`; a cancel rolls back too.
        """
        core = self._transactions
        half = await self._send_half(message, timeout)
        transaction = core.begin(half)
        try:
            yield transaction
        except BaseException as error:
            core.finish(half, transaction, error)
            raise
        core.finish(half, transaction, None)

    @property
    def _transactions(self) -> TransactionCore:
        return cast("TransactionCore", self._core)

    async def _send_half(self, message: Message, timeout: float | None) -> Half:  # noqa: ASYNC109
        core = self._transactions
        deadline = core.deadline(timeout)
        outgoing = core.prepare_half(message)
        answer: Answer[SendResult] = core.thread.answer_to_running_loop()
        sink = HalfSink(core, message, outgoing, answer)
        retries = core.config.retry_times_when_send_async_failed
        sending = core.sending(outgoing, sink, None, deadline, retries=retries)
        try:
            if not core.post_if_room(sending):
                self._line_up(sending, answer, own_timeout=timeout is not None)
            sent = await answer.future
        except OrbitMQError:
            raise
        except BaseException:
            sink.abandon()
            raise
        return core.half(message, outgoing, sent)
