"""Transactions: 37 of producers, 39, which asks them, and 323 of operators."""

from __future__ import annotations

import logging
from typing import Final, cast

from orbitmq import codes
from orbitmq.broker.answers import WriteAnswers
from orbitmq.broker.broker import Broker
from orbitmq.broker.transaction_checker import StateCheck
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, WireError
from orbitmq.names import HALF_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from orbitmq.wire.ids import decode_offset_message_id, offset_message_id
from orbitmq.wire.operator_headers import ResumeCheckHalfMessageRequestHeader
from orbitmq.wire.properties import UNIQ_KEY

log = logging.getLogger("orbitmq.broker.transactions")

_COMPLAINTS_MS: Final = 10_000


class TransactionHandlers:
    """Translates to Transactions, and from TransactionChecker.

    Follows EndTransactionProcessor and AbstractTransactionalMessageCheckListener.
    """

    def __init__(self, broker: Broker, answers: WriteAnswers) -> None:
        self._transactions = broker.transactions
        self._producers = broker.producers
        self._broker_name = broker.config.broker_name
        self._answers = answers
        self._now_ms = broker.now_ms
        self._complains_at_ms = 0
        self._unasked = 0
        broker.transaction_checker.ask = self._ask

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.RESUME_CHECK_HALF_MESSAGE: self._resume,
        }

    def _end(self, command: RemotingCommand, connection: Connection) -> None:
        ended = self._transactions.end(command.header(EndTransactionRequestHeader))
        if ended and not command.is_oneway:
            self._answers.add(connection, command, encode_response(command, codes.SUCCESS))

    def _resume(self, command: RemotingCommand, connection: Connection) -> None:
        message_id = command.header(ResumeCheckHalfMessageRequestHeader).msg_id or ""
        try:
            _, _, offset = decode_offset_message_id(message_id)
        except WireError as error:
            raise BrokerError(codes.SYSTEM_ERROR, str(error)) from error
        self._transactions.resume(offset)
        self._answers.add(connection, command, encode_response(command, codes.SUCCESS))

    def _ask(self, question: StateCheck) -> None:
        """Ask a producer of the group; the answer is an END_TRANSACTION of its own accord."""
        producer = self._producers.available(question.group, _is_usable)
        message_id = question.properties.get(UNIQ_KEY)
        if producer is None:
            self._complain(question.group, message_id)
            return
        placed = question.placed
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=placed.queue_offset,
            commit_log_offset=placed.physical_offset,
            topic=HALF_TOPIC,
            msg_id=message_id,
            transaction_id=message_id,
            offset_msg_id=offset_message_id(question.draft.store_host, placed.physical_offset),
            bname=self._broker_name,
        )
        cast("Connection", producer).oneway(
            RequestCode.CHECK_TRANSACTION_STATE, header, question.record()
        )

    def _complain(self, group: str, message_id: str | None) -> None:
        """Log that nobody can be asked: every ten seconds, for a million may be open."""
        self._unasked += 1
        now_ms = self._now_ms()
        if now_ms >= self._complains_at_ms:
            self._complains_at_ms = now_ms + _COMPLAINTS_MS
            log.warning(
                "no producer of group %s can be asked about the transaction of %s now, which is "
                "the case of %d checks since the broker's start: start one, and its broker asks "
                "again",
                group, message_id, self._unasked,
            )  # fmt: skip


def _is_usable(connection: object) -> bool:
    """Whether it is open, and its peer reads: what it leaves unread takes memory."""
    producer = cast("Connection", connection)
    return not producer.closed and not producer.congested
