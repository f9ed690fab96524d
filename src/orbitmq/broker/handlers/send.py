"""Requests that store messages: 10, 310, 320, 36."""

from __future__ import annotations

from typing import Final, TypeAlias

from orbitmq import codes
from orbitmq.broker.answers import WriteAnswers
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.sending import Placed, PlacedBatch
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler, refusal
from orbitmq.wire.command import JSON, ONEWAY, RemotingCommand, encode_response
from orbitmq.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from orbitmq.wire.properties import MSG_REGION, TRACE_SWITCH
from orbitmq.wire.response_template import ResponseTemplate

SendRequestHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2

_SEND_V1: Final = int(RequestCode.SEND_MESSAGE)


_Sent: TypeAlias = tuple[RemotingCommand, Connection, SendRequestHeader]


class SendHandlers:
    """Translates to and from :class:`~orbitmq.broker.sending.Sending` and ``Retrying``.

    Messages are noted as they come, and carried out together at the end of the turn.
    """

    def __init__(self, broker: Broker, answers: WriteAnswers) -> None:
        self._sending = broker.sending
        self._retrying = broker.retrying
        self._answers = answers
        self._noted: list[tuple[RemotingCommand, Connection]] = []
        self._host = broker.store_host.hex().upper()
        self.renew(broker.config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._constant_fields = {
            MSG_REGION: config.region_id,
            TRACE_SWITCH: "true" if config.trace_on else "false",
        }
        constant = {name: value.replace("%", "%%") for name, value in self._constant_fields.items()}
        places = {"queueId": "%d", "queueOffset": "%d", "transactionId": "%b"}
        self._template = ResponseTemplate(constant | {"msgId": f"{self._host}%016X"} | places)
        self._batch_template = ResponseTemplate(constant | {"msgId": "%b"} | places)

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.SEND_MESSAGE: self._note,
            RequestCode.SEND_MESSAGE_V2: self._note,
            RequestCode.SEND_BATCH_MESSAGE: self._note,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._send_back,
        }

    def carry_out(self) -> None:
        """Stage what was sent in this turn, in its order. Nothing is raised."""
        noted = self._noted
        if not noted:
            return
        self._noted = []
        run: list[_Sent] = []
        for command, connection in noted:
            try:
                if self._answers.unanswered:
                    self._answers.check_room(connection)
                if command.code == _SEND_V1:
                    header: SendRequestHeader = command.header(SendMessageRequestHeader)
                else:
                    header = command.header(SendMessageRequestHeaderV2)
                if header.batch:
                    self._send_all(run)
                    run = []
                    self._send_batch(command, connection, header)
                else:
                    run.append((command, connection, header))
            except Exception as error:  # noqa: BLE001 - each is answered, as by the dispatcher
                _refuse(command, connection, error)
        self._send_all(run)

    def _note(self, command: RemotingCommand, connection: Connection) -> None:
        self._noted.append((command, connection))

    def _send_all(self, run: list[_Sent]) -> None:
        """Stage messages; they are answered when they are written."""
        messages = [(header, command.body, peer.peer_host) for command, peer, header in run]
        for (command, connection, _), placed in zip(
            run, self._sending.send_all(messages), strict=True
        ):
            if isinstance(placed, Exception):
                _refuse(command, connection, placed)
            elif not command.flag & ONEWAY:
                self._answers.add(connection, command, self._answer(command, placed))

    def _answer(self, command: RemotingCommand, placed: Placed) -> bytes:
        key = placed.unique_key.encode()
        is_plain = placed.recall_handle is None and key.isalnum()  # of ASCII, as bytes
        if command.serialize_type == JSON and is_plain:
            return self._template.fill(
                (placed.physical_offset, placed.queue_id, placed.queue_offset, key, command.opaque)
            )
        return self._encode(command, f"{self._host}{placed.physical_offset:016X}", placed)

    def _send_batch(
        self, command: RemotingCommand, connection: Connection, header: SendRequestHeader
    ) -> None:
        placed = self._sending.send_batch(header, command.body, connection.peer_host)
        if command.flag & ONEWAY:
            return
        offsets = placed.physical_offsets
        message_ids = (f",{self._host}%016X".encode() * len(offsets) % tuple(offsets))[1:]
        key = (placed.unique_key or "").encode()
        if command.serialize_type == JSON and key.isalnum():
            answer = self._batch_template.fill(
                (message_ids, placed.queue_id, placed.queue_offset, key, command.opaque)
            )
        else:
            answer = self._encode(command, message_ids.decode(), placed)
        self._answers.add(connection, command, answer)

    def _send_back(self, command: RemotingCommand, connection: Connection) -> None:
        self._retrying.send_back(command.header(ConsumerSendMsgBackRequestHeader))
        if not command.flag & ONEWAY:
            self._answers.add(connection, command, encode_response(command, codes.SUCCESS))

    def _encode(
        self, command: RemotingCommand, message_id: str, placed: Placed | PlacedBatch
    ) -> bytes:
        fields = self._constant_fields | {
            "msgId": message_id,
            "queueId": str(placed.queue_id),
            "queueOffset": str(placed.queue_offset),
        }
        if placed.unique_key is not None:
            fields["transactionId"] = placed.unique_key
        if isinstance(placed, Placed) and placed.recall_handle is not None:
            fields["recallHandle"] = placed.recall_handle
        return encode_response(command, codes.SUCCESS, fields)


def _refuse(command: RemotingCommand, connection: Connection, error: Exception) -> None:
    answer = refusal(command, connection, error)
    if not command.flag & ONEWAY:
        connection.send(answer)
