"""Requests about timers: 370 (recall), 60 and 61 (for tools)."""

from __future__ import annotations

from orbitmq import codes
from orbitmq.broker.answers import WriteAnswers
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer
from orbitmq.broker.timers import Timers
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.command import ONEWAY, RemotingCommand, encode_response
from orbitmq.wire.headers import RecallMessageRequestHeader
from orbitmq.wire.properties import MSG_REGION


class TimerHandlers:
    """Translates to and from :class:`~orbitmq.broker.recalling.Recalling` and ``Timers``."""

    def __init__(self, broker: Broker, answers: WriteAnswers) -> None:
        self._broker = broker
        self._answers = answers

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.RECALL_MESSAGE: self._recall,
            RequestCode.GET_TIMER_CHECK_POINT: self._checkpoint,
            RequestCode.GET_TIMER_METRICS: self._metrics,
        }

    def _recall(self, command: RemotingCommand, connection: Connection) -> None:
        header = command.header(RecallMessageRequestHeader)
        key = self._broker.recalling.recall(
            header.topic, header.recall_handle, header.producer_group or "", connection.peer_host
        )
        if not command.flag & ONEWAY:
            fields = {MSG_REGION: self._broker.config.region_id, "msgId": key}
            self._answers.add(connection, command, encode_response(command, codes.SUCCESS, fields))

    def _checkpoint(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        body = self._timers("The checkpoint is null").timers.encode_progress()
        return [encode_response(command, codes.SUCCESS, body_length=len(body)), body]

    def _metrics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        timers = self._timers("The timer message store is null")
        return answer(command, timers.metrics.snapshot())

    def _timers(self, otherwise: str) -> Timers:
        if self._broker.timers is None:
            raise BrokerError(codes.SYSTEM_ERROR, f"{otherwise}: timerWheelEnable is false")
        return self._broker.timers
