"""What an operator asks consumers through the broker: 222, 223, 307, 309.

A handler never waits: it asks the consumers and returns, and the operator is answered when they
have answered, or their time is up. Follows Broker2Client and AdminBrokerProcessor.callConsumer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, cast

import msgspec

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ClientInfo
from orbitmq.codes import RequestCode
from orbitmq.errors import BodyError, BrokerError, NetworkError, RequestTimeoutError
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.admin_bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from orbitmq.wire.command import Header, RemotingCommand, encode_response
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
    ResetOffsetRequestHeader,
)
from orbitmq.wire.ids import decode_offset_message_id

log = logging.getLogger("orbitmq.broker")

CALL_TIMEOUT_MS: Final = 10_000
"""How long one consumer has to answer (Broker2Client.callClient)."""
STATUS_TIMEOUT_MS: Final = 5_000
"""How long each consumer of a group has to say what it has consumed."""

_KNOWS_RESETS: Final = 28
"""The first version of clients that take 220 and 221 (V3_0_7_SNAPSHOT)."""
_KNOWS_CALLS: Final = 62
"""The first version of clients that take 307 and 309 (V3_1_8_SNAPSHOT)."""


class RelayHandlers:
    """Passes on what an operator wants of consumers, and what they say."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._operating = broker.operating

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset_offset,
            RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: self._consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
        }

    def _reset_offset(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(ResetOffsetRequestHeader)
        group, topic, timestamp = header.group, header.topic, header.timestamp
        log.info(
            "%s resets the offsets of group %s in %s to time %d",
            connection.peer, group, topic, timestamp,
        )  # fmt: skip
        if self._broker.config.server_side_reset_offset:
            offsets = self._operating.reset(group, topic, timestamp, header.queue_id, header.offset)
            self._broker.answer_ready()  # the pulls that wait in these queues
        else:
            offsets = self._operating.offsets_for_members(
                group, topic, timestamp, force=header.is_force
            )
            asked = ResetOffsetRequestHeader(topic=topic, group=group, timestamp=timestamp)
            self._tell_members(asked, offsets, in_c=command.language == "CPP")
        body = ResetOffsetBody(offsets).encode()
        return [encode_response(command, codes.SUCCESS, body_length=len(body)), body]

    def _tell_members(
        self, header: ResetOffsetRequestHeader, offsets: dict[MessageQueue, int], *, in_c: bool
    ) -> None:
        """Have the members of the group reset themselves to ``offsets``."""
        members = self._members(header.group)
        if not members:
            raise BrokerError(
                codes.CONSUMER_NOT_ONLINE,
                f"consumer group {header.group} has no member online, which could reset its "
                f"offsets in {header.topic}",
            )
        body = _for_c(offsets) if in_c else ResetOffsetBody(offsets)
        data = body.encode()
        for member, client in members.items():
            _check_version(client, _KNOWS_RESETS)
            member.oneway(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, data)
            log.info("%s is told to reset its offsets in %s", client.client_id, header.topic)

    def _consumer_status(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(GetConsumerStatusRequestHeader)
        members = self._members(header.group)
        if not members:
            raise BrokerError(
                codes.SYSTEM_ERROR, f"consumer group {header.group} has no member online"
            )
        asked = {}
        for member, client in members.items():
            _check_version(client, _KNOWS_RESETS)
            if not header.client_addr or header.client_addr == client.client_id:
                asked[member] = client.client_id
        poll = _StatusPoll(command, connection, len(asked))
        for member, client_id in asked.items():
            member.request(
                RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
                GetConsumerStatusRequestHeader(topic=header.topic, group=header.group),
                timeout_ms=STATUS_TIMEOUT_MS,
                on_done=poll.taker(client_id),
            )
        poll.finish()
        return None

    def _running_info(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(GetConsumerRunningInfoRequestHeader)
        self._relay(command, connection, header.consumer_group, header.client_id, header)
        return None

    def _consume_directly(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(ConsumeMessageDirectlyResultRequestHeader)
        _, _, physical_offset = decode_offset_message_id(header.msg_id or "")
        message = bytes(self._operating.message(physical_offset))
        topic = self._broker.topics.get(header.topic or "")
        group = self._broker.groups.find(header.consumer_group)
        completed = msgspec.structs.replace(
            header,
            broker_name=self._broker.config.broker_name,
            topic_sys_flag=topic.topic_sys_flag if topic else header.topic_sys_flag,
            group_sys_flag=group.group_sys_flag if group else header.group_sys_flag,
        )
        self._relay(
            command, connection, header.consumer_group, header.client_id, completed, message
        )
        return None

    def _relay(
        self,
        command: RemotingCommand,
        connection: Connection,
        group: str,
        client_id: str | None,
        header: Header,
        body: bytes = b"",
    ) -> None:
        """Ask one consumer what ``command`` asks, and answer that with what it says."""
        found = self._broker.consumers.find(group, client_id)
        if found is None:
            raise BrokerError(
                codes.SYSTEM_ERROR, f"consumer {client_id} of group {group} is not online"
            )
        member, client = found
        _check_version(client, _KNOWS_CALLS)

        def done(answer: RemotingCommand | NetworkError) -> None:
            if isinstance(answer, NetworkError):
                late = isinstance(answer, RequestTimeoutError)
                code = codes.CONSUME_MSG_TIMEOUT if late else codes.SYSTEM_ERROR
                remark = f"consumer {client_id} of group {group}: {answer}"
                log.warning(remark)
                connection.send(encode_response(command, code, remark=remark))
            else:
                connection.send(*_repeated(command, answer))

        cast("Connection", member).request(
            command.code, header, body, timeout_ms=CALL_TIMEOUT_MS, on_done=done
        )

    def _members(self, group: str) -> dict[Connection, ClientInfo]:
        found = self._broker.consumers.groups.get(group)
        return cast("dict[Connection, ClientInfo]", found.members) if found else {}


class _StatusPoll:
    """Gathers what the consumers of a group say; answers once all have, or their time is up."""

    def __init__(self, command: RemotingCommand, connection: Connection, count: int) -> None:
        self._command = command
        self._connection = connection
        self._missing = count
        self._table: dict[str, dict[MessageQueue, int]] = {}

    def taker(self, client_id: str) -> Callable[[RemotingCommand | NetworkError], None]:
        """What is to get the answer of one consumer."""

        def take(answer: RemotingCommand | NetworkError) -> None:
            try:
                if isinstance(answer, NetworkError):
                    raise answer
                if answer.code == codes.SUCCESS and answer.body:
                    body = GetConsumerStatusBody.decode(answer.body)
                    self._table[client_id] = body.message_queue_table
            except (NetworkError, BodyError) as error:
                log.warning("consumer %s did not say what it consumed: %s", client_id, error)
            self._missing -= 1
            self.finish()

        return take

    def finish(self) -> None:
        """Answer, unless some are still missing."""
        if self._missing == 0:
            self._missing = -1
            body = GetConsumerStatusBody(consumer_table=self._table).encode()
            head = encode_response(self._command, codes.SUCCESS, body_length=len(body))
            self._connection.send(head, body)


def _check_version(client: ClientInfo, lowest: int) -> None:
    if client.version < lowest:
        raise BrokerError(
            codes.SYSTEM_ERROR,
            f"consumer {client.client_id} has protocol version {client.version}, {lowest} is "
            "needed: upgrade it",
        )


def _for_c(offsets: dict[MessageQueue, int]) -> ResetOffsetBodyForC:
    return ResetOffsetBodyForC(
        [
            MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, offset)
            for queue, offset in offsets.items()
        ]
    )


def _repeated(command: RemotingCommand, answer: RemotingCommand) -> list[bytes]:
    """The answer of a consumer as the answer to ``command``."""
    body = bytes(answer.body)
    head = encode_response(
        command, answer.code, answer.ext_fields, remark=answer.remark, body_length=len(body)
    )
    return [head, body]
