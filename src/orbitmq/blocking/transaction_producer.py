"""The synchronous producer of transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Unpack, cast

from orbitmq.blocking.face import Face
from orbitmq.blocking.producer import Producer
from orbitmq.client.mailbox import Waiter
from orbitmq.errors import OrbitMQError
from orbitmq.message import Message, SendResult, SendStatus
from orbitmq.producer.config import TransactionProducerSettings
from orbitmq.producer.local_transactions import (
    CheckFunction,
    ExecuteFunction,
    LocalTransactionState,
)
from orbitmq.producer.sends import BlockingSends
from orbitmq.producer.transaction import (
    Half,
    HalfSink,
    Transaction,
    TransactionCore,
    TransactionSendResult,
)


class TransactionProducer(Producer):
    """Sends messages that are delivered when a local transaction succeeds, and not when it fails.

        def check(message):
            paid = database.has_paid(message.keys)
            return LocalTransactionState.COMMIT if paid else LocalTransactionState.UNKNOWN

        with TransactionProducer("shop", check_local_transaction=check) as producer:
            with producer.transaction(Message("orders", b"...", keys="17")) as transaction:
                database.pay(17)

    ``execute_local_transaction(message, arg)`` carries out the local transaction for
    :meth:`send_message_in_transaction`. ``check_local_transaction(message)`` says how one ended
    whose end the broker does not know, of this producer or of another one of the group; it runs in
    a thread. Both answer a :class:`orbitmq.LocalTransactionState`, and may be coroutine functions:
    these run on an event loop of the producer's own. What raises is UNKNOWN, and so is any other
    answer; the log says which.

    All producers of a group must know how to check its transactions. It is a
    :class:`orbitmq.Producer` too; further settings are those of
    :class:`orbitmq.producer.config.TransactionProducerConfig`. (TransactionMQProducer)
    """

    def __init__(
        self,
        group: str,
        execute_local_transaction: ExecuteFunction | None = None,
        check_local_transaction: CheckFunction | None = None,
        **settings: Unpack[TransactionProducerSettings],
    ) -> None:
        core = TransactionCore(group, execute_local_transaction, check_local_transaction, settings)
        Face.__init__(self, core)
        self._sends = BlockingSends(core)

    def send_message_in_transaction(
        self,
        message: Message,
        arg: object = None,
        *,
        timeout: float | None = None,
    ) -> TransactionSendResult:
        """Send ``message``, call ``execute_local_transaction(message, arg)``, and end as it says.

        The function gets a copy of the message that knows its ``transaction_id``; it runs in this
        thread, a coroutine on the producer's loop. Where it is interrupted (Ctrl-C) the transaction
        stays open, and the broker asks. Where the broker could not flush or replicate the message
        (``status``) it is rolled back, without the call. That the end could not be told to the
        broker is logged: it asks. ``timeout``, in seconds, is for the sending.

        Raises what :meth:`send` raises, InvalidMessageError also for a delayed message and a batch,
        and ClientStateError without ``execute_local_transaction``.
        """
        core = self._transactions
        core.local.executing()
        half = self._send_half(message, timeout)
        if half.sent.status is not SendStatus.SEND_OK:
            core.end(half, LocalTransactionState.ROLLBACK)
            return half.result(LocalTransactionState.ROLLBACK)
        state = LocalTransactionState.UNKNOWN
        try:
            state = core.local.execute(half.message, arg)
        finally:
            core.end(half, state)
        return half.result(state)

    @contextmanager
    def transaction(
        self, message: Message, *, timeout: float | None = None
    ) -> Iterator[Transaction]:
        """Send ``message`` in a transaction that ends with the block of the ``with``.

        Leaving it commits: the message is delivered. An exception, Ctrl-C too, rolls back and goes
        on. Raises what :meth:`send_message_in_transaction` raises, and BrokerError where the broker
        could not flush or replicate the message; the block is not entered then.
        """
        core = self._transactions
        half = self._send_half(message, timeout)
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

    def _send_half(self, message: Message, timeout: float | None) -> Half:
        core = self._transactions
        deadline = core.deadline(timeout)
        outgoing = core.prepare_half(message)
        waiter: Waiter[SendResult] = Waiter()
        sink = HalfSink(core, message, outgoing, waiter)
        retries = core.config.retry_times_when_send_failed
        try:
            core.post(core.sending(outgoing, sink, None, deadline, retries=retries))
            sent = waiter.wait()
        except OrbitMQError:
            raise
        except BaseException:
            sink.abandon()
            raise
        return core.half(message, outgoing, sent)
