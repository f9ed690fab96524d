"""Clients and their groups: 34, 35, 38, 46, the notice 40, and the queue locks 41, 42."""

from __future__ import annotations

import logging
from typing import cast

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ClientInfo
from orbitmq.broker.topics import UNIT_SUB_TOPIC
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.names import retry_topic
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    GetConsumerListByGroupResponseBody,
    HeartbeatData,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageQueues,
    UnlockBatchRequestBody,
)
from orbitmq.wire.command import RemotingCommand, encode_request, encode_response
from orbitmq.wire.headers import ConsumerGroupRequestHeader, UnregisterClientRequestHeader

log = logging.getLogger("orbitmq.broker")


class ClientHandlers:
    """Keeps the broker's tables of clients, and tells groups when their members change.

    Follows ClientManageProcessor, ConsumerManageProcessor and AdminBrokerProcessor.lockBatchMQ.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._consumers = broker.consumers
        self._producers = broker.producers
        self._bereaved: set[str] = set()  # groups that lost members, who are not told yet
        self._fingerprints: dict[str, int] = {}  # of the last heartbeat, by consumer group

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_config,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_ids,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    def disconnected(self, connection: Connection) -> None:
        """Forget a client whose connection has ended; :meth:`tell_of_losses` is due then."""
        self._producers.disconnect(connection)
        self._bereaved.update(self._consumers.disconnect(connection))
        self._broker.pulling.held.drop(connection)

    def tell_of_losses(self) -> None:
        """Tell the members of each group once of all that were lost since the last time."""
        bereaved, self._bereaved = self._bereaved, set()
        for group in bereaved:
            self._tell_members(group)  # also those of a group that is to be spared notices

    def drop_silent(self) -> None:
        """Forget clients whose heartbeats have stopped, and hang up on them.

        At once: a client that does not read either would hold up an orderly end for ever.
        """
        now_ms, timeout_ms = self._broker.now_ms(), self._broker.config.client_timeout_ms
        for table in (self._consumers, self._producers):
            for connection in table.silent(now_ms, timeout_ms):
                silent = cast("Connection", connection)
                log.warning("%s sent no heartbeat for %d ms: hanging up", silent.peer, timeout_ms)
                self.disconnected(silent)
                silent.abort()
        self.tell_of_losses()

    def _heartbeat(self, command: RemotingCommand, connection: Connection) -> bytes:
        data = HeartbeatData.decode(command.body)
        client = ClientInfo(
            data.client_id or "", command.language, command.version, self._broker.now_ms()
        )
        changed = False
        for consumer in data.consumer_data_set:
            known = self._fingerprints.get(consumer.group_name)
            changed = changed or known not in (None, data.heartbeat_fingerprint)
            self._fingerprints[consumer.group_name] = data.heartbeat_fingerprint
            self._join(consumer, connection, client, with_subscriptions=not data.without_sub)
        for producer in data.producer_data_set:
            self._producers.register(producer.group_name, connection, client)
        # Without a fingerprint the client does not care, and Java says true.
        is_change = changed or not data.heartbeat_fingerprint
        return encode_response(
            command,
            codes.SUCCESS,
            {
                "IS_SUPPORT_HEART_BEAT_V2": "true",
                "IS_SUB_CHANGE": "true" if is_change else "false",
            },
        )

    def _join(
        self,
        data: ConsumerData,
        connection: Connection,
        client: ClientInfo,
        *,
        with_subscriptions: bool,
    ) -> None:
        """Take one consumer group of a heartbeat in, with its retry topic."""
        topics = self._broker.topics
        settings = self._broker.groups.find(data.group_name)
        if settings is None:
            return
        ordered = (topics.get(item.topic) for item in data.subscription_data_set)
        topics.create_derived(
            retry_topic(data.group_name),
            settings.retry_queue_nums,
            UNIT_SUB_TOPIC if data.unit_mode else 0,
            order=any(topic is not None and topic.order for topic in ordered),
        )
        must_tell = self._consumers.register(
            data, connection, client, with_subscriptions=with_subscriptions
        )
        if must_tell:
            self._notify(data.group_name)

    def _unregister(self, command: RemotingCommand, connection: Connection) -> bytes:
        header = command.header(UnregisterClientRequestHeader)
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, connection)
        group = header.consumer_group
        if group is not None and self._consumers.unregister(group, connection):
            self._notify(group)
        return encode_response(command, codes.SUCCESS)

    def _notify(self, name: str) -> None:
        """Tell a group's members that its members changed, unless its settings forbid it."""
        settings = self._broker.groups.find(name)
        if settings is None or settings.notify_consumer_ids_changed_enable:
            self._tell_members(name)

    def _tell_members(self, name: str) -> None:
        group = self._consumers.groups.get(name)
        if group is None:
            return
        header = ConsumerGroupRequestHeader(consumer_group=name)
        notice = encode_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 0, header, oneway=True)
        for member in group.members:
            cast("Connection", member).send(notice)

    def _check_config(self, command: RemotingCommand, _connection: Connection) -> bytes:
        body = CheckClientRequestBody.decode(command.body)
        self._broker.pulling.subscriptions.check(body.subscription_data)
        return encode_response(command, codes.SUCCESS)

    def _consumer_ids(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(ConsumerGroupRequestHeader).consumer_group
        group = self._consumers.groups.get(name)
        if group is None:
            raise BrokerError(codes.SYSTEM_ERROR, f"consumer group {name!r} has no members")
        body = GetConsumerListByGroupResponseBody(group.client_ids).encode()
        return [encode_response(command, codes.SUCCESS, body_length=len(body)), body]

    def _lock(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        body = LockBatchRequestBody.decode(command.body)
        granted = self._broker.locks.lock(
            body.consumer_group, body.mq_set, body.client_id, self._broker.now_ms()
        )
        answer = LockBatchResponseBody(MessageQueues(granted)).encode()
        return [encode_response(command, codes.SUCCESS, body_length=len(answer)), answer]

    def _unlock(self, command: RemotingCommand, _connection: Connection) -> bytes:
        body = UnlockBatchRequestBody.decode(command.body)
        self._broker.locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return encode_response(command, codes.SUCCESS)
