"""Replies to requests: 324 and 325 of repliers, and 326, which brings them to who asked."""

from __future__ import annotations

import logging
from typing import Any, Final, cast

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.replying import Reply
from orbitmq.codes import RequestCode
from orbitmq.errors import NetworkError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import SendMessageRequestHeader, SendMessageRequestHeaderV2
from orbitmq.wire.ids import host_text, offset_message_id
from orbitmq.wire.properties import MSG_REGION, TRACE_SWITCH
from orbitmq.wire.reply import ReplyMessageRequestHeader

log = logging.getLogger("orbitmq.broker")

PUSH_TIMEOUT_MS: Final = 10_000
"""How long a requester has to take a reply (Broker2Client.callClient)."""


class ReplyHandlers:
    """Translates to and from :class:`~orbitmq.broker.replying.Replying`.

    The replier is answered when the requester has taken its reply, or has not.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._replying = broker.replying
        self._host = broker.store_host
        self._constant_fields: Final = {
            MSG_REGION: broker.config.region_id,
            TRACE_SWITCH: "true" if broker.config.trace_on else "false",
        }

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.SEND_REPLY_MESSAGE: self._reply,
            RequestCode.SEND_REPLY_MESSAGE_V2: self._reply,
        }

    def _reply(self, command: RemotingCommand, connection: Connection) -> Answer:
        header: SendMessageRequestHeader | SendMessageRequestHeaderV2
        if command.code == RequestCode.SEND_REPLY_MESSAGE:
            header = command.header(SendMessageRequestHeader)
        else:
            header = command.header(SendMessageRequestHeaderV2)
        body = bytes(command.body)
        now_ms = self._broker.clock.now_ms()
        reply = self._replying.take_in(header, body, connection.peer_host, now_ms)
        requester = cast("Connection | None", reply.requester)
        if requester is None:
            return self._refused(command, reply.refusal)
        if requester.closed or requester.congested:  # what it leaves unread takes memory
            return self._refused(command, _not_taken(reply.client_id))

        def done(answer: RemotingCommand | NetworkError) -> None:
            taken = isinstance(answer, RemotingCommand) and answer.code == codes.SUCCESS
            if not taken:
                said = answer if isinstance(answer, NetworkError) else answer.remark
                log.warning("%s did not take the reply pushed to it: %s", reply.client_id, said)
            if not command.is_oneway:
                connection.send(
                    self._taken(command, reply)
                    if taken
                    else self._refused(command, _not_taken(reply.client_id))
                )

        requester.request(
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
            ReplyMessageRequestHeader(
                producer_group=header.producer_group,
                topic=header.topic,
                default_topic=header.default_topic,
                default_topic_queue_nums=header.default_topic_queue_nums,
                queue_id=header.queue_id,
                sys_flag=header.sys_flag,
                born_timestamp=header.born_timestamp,
                flag=header.flag,
                born_host=host_text(connection.peer_host),
                store_host=host_text(self._host),
                store_timestamp=now_ms,
                properties=reply.properties,
                reconsume_times=header.reconsume_times,
                unit_mode=header.unit_mode,
            ),
            body,
            timeout_ms=PUSH_TIMEOUT_MS,
            on_done=done,
        )
        return None

    def _taken(self, command: RemotingCommand, reply: Reply[Any]) -> bytes:
        """As a message's; one that is not stored has the id 0, as Apache's brokers say."""
        placed = reply.placed
        fields = self._constant_fields | {
            "msgId": "0",
            "queueId": str(reply.queue_id),
            "queueOffset": "0",
        }
        if placed is not None and placed.physical_offset < self._broker.store.max_physical_offset:
            fields["msgId"] = offset_message_id(self._host, placed.physical_offset)
            fields["queueOffset"] = str(placed.queue_offset)
        return encode_response(command, codes.SUCCESS, fields)

    def _refused(self, command: RemotingCommand, remark: str) -> bytes:
        return encode_response(
            command, codes.SYSTEM_ERROR, dict(self._constant_fields), remark=remark
        )


def _not_taken(client_id: str) -> str:
    return f"push reply message to {client_id}fail."  # as Apache's brokers put it
