"""Sending in transactions, as far as both faces share it.

A half message is sent, which no consumer sees; the local transaction is carried out; its end is
told to the broker that has the message, which delivers or drops it. Where that is not told, because
the producer died or does not know, the broker asks any producer of the group. Follows
TransactionMQProducer, DefaultMQProducerImpl and ClientRemotingProcessor.checkTransactionState.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from orbitmq import codes
from orbitmq.client.config import make_config
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ClientStateError,
    ConnectError,
    InvalidMessageError,
    NetworkError,
    WireError,
)
from orbitmq.message import Message, MessageQueue, SendResult, SendStatus
from orbitmq.net.connection import Connection
from orbitmq.producer.config import TransactionProducerConfig, TransactionProducerSettings
from orbitmq.producer.core import ProducerCore
from orbitmq.producer.hooks import EndTransactionContext
from orbitmq.producer.local_transactions import (
    CheckFunction,
    ExecuteFunction,
    LocalTransactions,
    LocalTransactionState,
    TransactionMessage,
)
from orbitmq.producer.outgoing import Outgoing, prepare_message
from orbitmq.producer.sender import Sink
from orbitmq.producer.timers import has_timer
from orbitmq.wire import properties as names
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from orbitmq.wire.ids import decode_offset_message_id
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.record import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK

log = logging.getLogger("orbitmq.producer.transactions")

_HOW: Final = {
    LocalTransactionState.COMMIT: TRANSACTION_COMMIT,
    LocalTransactionState.ROLLBACK: TRANSACTION_ROLLBACK,
    LocalTransactionState.UNKNOWN: 0,
}
_CODES: Final = {
    SendStatus.FLUSH_DISK_TIMEOUT: codes.FLUSH_DISK_TIMEOUT,
    SendStatus.FLUSH_SLAVE_TIMEOUT: codes.FLUSH_SLAVE_TIMEOUT,
    SendStatus.SLAVE_NOT_AVAILABLE: codes.SLAVE_NOT_AVAILABLE,
}
_TIMERS: Final = (names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)


class TransactionSendResult(NamedTuple):
    """What became of a message sent in a transaction: a SendResult, and how the transaction ended.

    Where ``status`` is not SEND_OK it was rolled back at once, without a local transaction.
    """

    status: SendStatus
    message_id: str
    offset_message_id: str
    message_queue: MessageQueue
    queue_offset: int
    transaction_id: str
    region_id: str | None
    local_transaction_state: LocalTransactionState


class Half(NamedTuple):
    """A half message that a broker has; ``message`` knows its transaction's id."""

    message: TransactionMessage
    sent: SendResult

    def result(self, state: LocalTransactionState) -> TransactionSendResult:
        """What the user is told at the end."""
        sent = self.sent
        return TransactionSendResult(
            sent.status,
            sent.message_id,
            sent.offset_message_id,
            sent.message_queue,
            sent.queue_offset,
            self.message.transaction_id,
            sent.region_id,
            state,
        )


class Transaction:
    """A transaction between its begin and its end, in the block of a ``with``.

    ``result`` says where the half message is. Leaving the block commits, unless it was to be
    rolled back.
    """

    def __init__(self, half: Half) -> None:
        self._half = half
        self._state = LocalTransactionState.COMMIT

    @property
    def message(self) -> TransactionMessage:
        """The message, with its transaction's id."""
        return self._half.message

    @property
    def transaction_id(self) -> str:
        """What the transaction is asked about by: keep it where the local transaction is kept."""
        return self._half.message.transaction_id

    @property
    def result(self) -> SendResult:
        """Where the half message went."""
        return self._half.sent

    @property
    def local_transaction_state(self) -> LocalTransactionState:
        """How it ends when the block is left now."""
        return self._state

    def roll_back(self) -> None:
        """Have the message dropped when the block is left, without an exception."""
        self._state = LocalTransactionState.ROLLBACK


class TransactionCore(ProducerCore):
    """A producer of transactions without a face."""

    def __init__(
        self,
        group: str,
        execute: ExecuteFunction | None,
        check: CheckFunction | None,
        settings: TransactionProducerSettings,
    ) -> None:
        config = make_config(TransactionProducerConfig, settings)
        super().__init__(group, settings, config)
        # Brokers that make topics by need can ask it before it has sent anything, as with 4.9's
        # DefaultMQProducerImpl.start; since 5.0 Java's client must be told its topics for that.
        self._topics += (config.create_topic_key,)
        self.local = LocalTransactions(
            group, execute, check, config.check_threads, config.check_request_hold_max
        )
        self._ends: set[asyncio.Task[None]] = set()

    # Life

    async def bring_up(self) -> None:
        """Join a client instance, which passes on what brokers ask."""
        self.local.open()
        try:
            await super().bring_up()
        except BaseException:
            await self.local.stop()
            raise
        self.instance.handle(
            RequestCode.CHECK_TRANSACTION_STATE, TransactionChecks(self.instance).handle
        )

    def refuse_shutdown_here(self) -> None:
        """Raise ClientStateError in a check, which the shutdown waits for."""
        self.local.refuse_shutdown_here()

    async def take_down(self) -> None:
        """Answer no more questions; wait until what has ended was told."""
        await self.local.stop()
        if self._ends:
            await asyncio.wait(set(self._ends), timeout=self.config.send_timeout_ms / 1000)
        await super().take_down()

    # The steps of a transaction

    def prepare_half(self, message: Message) -> Outgoing:
        """Check and encode a message; InvalidMessageError for a batch, and for a delayed one."""
        if not isinstance(message, Message):
            raise InvalidMessageError(
                f"{message!r}: one Message is sent in a transaction; a batch cannot be"
            )
        properties = message.properties or {}
        if _is_delayed(message, properties):
            raise InvalidMessageError(
                f"the message to {message.topic!r} is delayed: in a transaction it cannot be; send "
                "it without a delay, or without a transaction"
            )
        own = {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.group}
        outgoing = prepare_message(message, self.config, self.namespace, own)
        if self.hooks.around_sends:
            marked = TransactionMessage(message, outgoing.message_id)
            marked.properties = {**properties, names.TRANSACTION_PREPARED: "true"}
            outgoing = replace(outgoing, given=marked)
        return replace(outgoing, sys_flag=outgoing.sys_flag | TRANSACTION_PREPARED)

    def half(self, message: Message, outgoing: Outgoing, sent: SendResult) -> Half:
        """What is known of a half message once it was sent."""
        return Half(TransactionMessage(message, outgoing.message_id), sent)

    def begin(self, half: Half) -> Transaction:
        """The transaction of a half message for a block; BrokerError where it is not safe.

        What the broker has stored without flushing or replicating it is rolled back.
        """
        status = half.sent.status
        if status is not SendStatus.SEND_OK:
            self.end(half, LocalTransactionState.ROLLBACK)
            raise BrokerError(
                _CODES[status],
                f"the half message to {half.message.topic!r} is stored, but {status.name}: its "
                "transaction is rolled back, try again later",
            )
        return Transaction(half)

    def finish(self, half: Half, transaction: Transaction, error: BaseException | None) -> None:
        """End the transaction of a block that was left, with an ``error`` or without."""
        state = transaction.local_transaction_state
        self.end(half, state if error is None else LocalTransactionState.ROLLBACK)

    def end(self, half: Half, state: LocalTransactionState) -> None:
        """Tell the broker that has it how the transaction ended; from any thread.

        What cannot be told is logged: the broker asks.
        """
        if not self.lifecycle.running:
            log.warning(
                "the end of transaction %s (%s) is not told, for %s is no longer running: the "
                "broker asks another producer of the group",
                half.message.transaction_id, state.name, self.lifecycle.name,
            )  # fmt: skip
            return
        self.thread.post(self.tell_end, half, state)

    def tell_end(self, half: Half, state: LocalTransactionState) -> None:
        """The same on the private loop."""
        sent, message = half.sent, half.message
        broker = sent.message_queue.broker_name
        address = self.instance.routes.master_address(broker) or ""
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            topic=self.namespace.wrap(message.topic),
            tran_state_table_offset=sent.queue_offset,
            commit_log_offset=decode_offset_message_id(sent.offset_message_id)[2],
            commit_or_rollback=_HOW[state],
            msg_id=sent.message_id,
            transaction_id=sent.transaction_id,
            bname=broker,
        )
        self._tell_hooks(message, state, address, message.transaction_id, from_check=False)
        connection = self.instance.pool.idle(address)
        if connection is not None:
            connection.oneway(RequestCode.END_TRANSACTION, header)
            return
        ending = asyncio.get_running_loop().create_task(self._connect_and_tell(address, header))
        self._ends.add(ending)
        ending.add_done_callback(self._ends.discard)

    async def _connect_and_tell(self, address: str, header: EndTransactionRequestHeader) -> None:
        try:
            if not address:
                raise ConnectError(f"no route names a master of broker {header.bname!r}", "")
            timeout_ms = self.config.send_timeout_ms
            connection = await self.instance.pool.connect(address, timeout_ms=timeout_ms)
            connection.oneway(RequestCode.END_TRANSACTION, header)
        except NetworkError as error:
            log.warning(
                "the end of transaction %s was not told: %s. The broker asks about it",
                header.msg_id, error,
            )  # fmt: skip

    def _tell_hooks(
        self,
        message: Message | MessageView,
        state: LocalTransactionState,
        address: str,
        transaction_id: str,
        *,
        from_check: bool,
    ) -> None:
        self.hooks.transaction_ended(
            EndTransactionContext(
                self.hooks.group,
                message.topic,
                message.tags,
                message.keys,
                address,
                transaction_id,
                transaction_id,
                state.value,
                from_transaction_check=from_check,
                message=message,
            )
        )

    # What a broker asks

    def check(
        self,
        message: MessageView,
        header: CheckTransactionStateRequestHeader,
        connection: Connection,
    ) -> None:
        """Answer how the transaction of ``message`` ended, when the user's function knows."""
        message.topic = self.namespace.unwrap(message.topic)

        def known(state: LocalTransactionState) -> None:
            try:
                self.thread.post(self._answer, message, header, connection, state)
            except ClientStateError as error:  # the process ends
                log.debug("a check is not answered: %s", error)

        self.local.check(message, known)

    def _answer(
        self,
        message: MessageView,
        asked: CheckTransactionStateRequestHeader,
        connection: Connection,
        state: LocalTransactionState,
    ) -> None:
        if state is not LocalTransactionState.COMMIT:
            log.info("transaction %s is %s, says its check", message.message_id, state.name)
        self._tell_hooks(message, state, connection.peer, message.message_id, from_check=True)
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            topic=asked.topic,
            tran_state_table_offset=asked.tran_state_table_offset,
            commit_log_offset=asked.commit_log_offset,
            commit_or_rollback=_HOW[state],
            msg_id=message.message_id,
            transaction_id=asked.transaction_id,
            from_transaction_check=True,
            bname=asked.bname,
        )
        if connection.closed:
            log.warning("the check of %s is not answered: its broker left", message.message_id)
        else:
            connection.oneway(RequestCode.END_TRANSACTION, header)


class HalfSink:
    """The outcome of a half message, for one who may not wait for it to the end.

    Once nobody waits any more, what was stored is rolled back: no local transaction began.
    """

    def __init__(
        self, core: TransactionCore, message: Message, outgoing: Outgoing, sink: Sink
    ) -> None:
        self._core = core
        self._message = message
        self._outgoing = outgoing
        self._sink = sink
        self._sent: SendResult | None = None
        self._abandoned = False

    def set_result(self, result: SendResult) -> None:
        """It was sent."""
        self._sent = result
        if self._abandoned:
            self._roll_back()
        else:
            self._sink.set_result(result)

    def set_exception(self, error: BaseException) -> None:
        """It was not, or it is not known."""
        self._sink.set_exception(error)

    def abandon(self) -> None:
        """Nobody waits for it; from any thread."""
        self._core.thread.post(self._abandon)

    def _abandon(self) -> None:
        self._abandoned = True
        if self._sent is not None:
            self._roll_back()

    def _roll_back(self) -> None:
        sent: Any = self._sent
        half = self._core.half(self._message, self._outgoing, sent)
        self._core.tell_end(half, LocalTransactionState.ROLLBACK)


class TransactionChecks:
    """Passes what brokers ask on to the producers of one client."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    def handle(self, command: RemotingCommand, connection: Connection) -> None:
        """CHECK_TRANSACTION_STATE: one-way, its answer is an END_TRANSACTION."""
        try:
            header = command.header(CheckTransactionStateRequestHeader)
            (message,) = decode_records(bytes(command.body))
        except (WireError, ValueError) as error:
            log.warning("what %s asks of a transaction cannot be read: %s", connection.peer, error)
            return
        group = message.property(names.PRODUCER_GROUP)
        producer = None if group is None else self._instance.producer(group)
        if isinstance(producer, TransactionCore):
            producer.check(message, header, connection)
        else:
            log.warning(
                "%s asks about a transaction of group %s, of which no producer of transactions is "
                "here", connection.peer, group,
            )  # fmt: skip


def _is_delayed(message: Message, properties: Mapping[str, str]) -> bool:
    return (
        message.delay_level > 0 or has_timer(message) or any(name in properties for name in _TIMERS)
    )
