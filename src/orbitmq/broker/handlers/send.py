"""Requests that store messages: 10, 310, 320, 36."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import Final, TypeAlias

from orbitmq import codes
from orbitmq.broker.answers import WriteAnswers
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.sending import Placed, PlacedBatch
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, StoreError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler, refusal
from orbitmq.wire.command import JSON, ONEWAY, RemotingCommand, encode_response
from orbitmq.wire.headers import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from orbitmq.wire.plain_sends import Noted
from orbitmq.wire.properties import MSG_REGION, TRACE_SWITCH
from orbitmq.wire.response_template import ResponseTemplate

log = logging.getLogger("orbitmq.broker")

SendRequestHeader: TypeAlias = SendMessageRequestHeader | SendMessageRequestHeaderV2

_SEND_V1: Final = int(RequestCode.SEND_MESSAGE)
_SEND_BATCH: Final = int(RequestCode.SEND_BATCH_MESSAGE)


class SendHandlers:
    """Translates to and from :class:`~orbitmq.broker.sending.Sending` and ``Retrying``.

    Messages are noted as they come, and carried out together at the end of the turn.
    """

    def __init__(self, broker: Broker, answers: WriteAnswers) -> None:
        self._sending = broker.sending
        self._retrying = broker.retrying
        self._answers = answers
        self._noted: list[Noted] = []
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
        template = ResponseTemplate(constant | {"msgId": f"{self._host}%016X"} | places)
        self._rules = self._sending.plain_rules(template)
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
        if not self._noted:
            return
        noted, self._noted = self._noted, []
        if self._answers.unanswered:
            noted = [sent for sent in noted if self._has_room(*sent)]
        first = 0
        while first < len(noted):
            if noted[first][0].code != _SEND_BATCH:
                answers = self._send_plain(noted, first)
                self._answers.add_all(noted[first : first + len(answers)], answers)
                first += len(answers)
            if first < len(noted):
                self._send_one(*noted[first])
                first += 1

    def _note(self, command: RemotingCommand, connection: Connection) -> None:
        self._noted.append((command, connection.peer_host, connection))

    def _has_room(self, command: RemotingCommand, _host: bytes, connection: Connection) -> bool:
        """Whether more may wait for the disk; it is refused here if not."""
        try:
            self._answers.check_room(connection)
        except BrokerError as error:
            _refuse(command, connection, error)
            return False
        return True

    def _send_plain(self, noted: Sequence[Noted], first: int) -> list[bytes | None]:
        try:
            return self._sending.send_plain(noted, first, self._rules)
        except StoreError:  # said again of each
            return []
        except Exception:
            log.exception("messages cannot be stored together: each is stored by itself")
            return []

    def _send_one(self, command: RemotingCommand, host: bytes, connection: Connection) -> None:
        """Stage one message, or one batch. Nothing is raised."""
        try:
            if command.code == _SEND_V1:
                header: SendRequestHeader = command.header(SendMessageRequestHeader)
            else:
                header = command.header(SendMessageRequestHeaderV2)
            if header.batch:
                placed_batch = self._sending.send_batch(header, command.body, host)
                answer = self._answer_batch(command, placed_batch)
            else:
                placed = self._sending.send(header, command.body, host)
                answer = self._answer(command, placed)
        except Exception as error:  # noqa: BLE001 - each is answered, as by the dispatcher
            _refuse(command, connection, error)
            return
        if not command.flag & ONEWAY:
            self._answers.add(connection, command, answer)

    def _answer(self, command: RemotingCommand, placed: Placed) -> bytes:
        return self._encode(command, f"{self._host}{placed.physical_offset:016X}", placed)

    def _answer_batch(self, command: RemotingCommand, placed: PlacedBatch) -> bytes:
        offsets = placed.physical_offsets
        places = struct.pack(f">{len(offsets)}q", *offsets).hex(",", 8).upper()
        message_ids = f"{self._host}{places}".replace(",", f",{self._host}")
        key = (placed.unique_key or "").encode()
        if command.serialize_type == JSON and key.isalnum():
            return self._batch_template.fill(
                (message_ids.encode(), placed.queue_id, placed.queue_offset, key, command.opaque)
            )
        return self._encode(command, message_ids, placed)

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
