"""Clients and their groups: 34, 35, 38, 46, the notice 40, and the queue locks 41, 42."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import cast

import msgspec

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ClientInfo
from orbitmq.broker.last_heartbeats import LastHeartbeat, LastHeartbeats, Mark
from orbitmq.broker.shares import ClientShares, check_client_id
from orbitmq.broker.topics import UNIT_SUB_TOPIC
from orbitmq.codes import LANGUAGES, RequestCode
from orbitmq.errors import BrokerError, IllegalNameError
from orbitmq.message import MessageQueue
from orbitmq.names import MAX_GROUP_LENGTH, check_group, retry_topic
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.bodies import (
    CheckClientRequestBody,
    ConsumerData,
    ConsumeType,
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
        self._shares: ClientShares[Connection] = ClientShares()
        self._last_heartbeats: LastHeartbeats[Hashable] = LastHeartbeats(broker.producers)

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
        self._shares.forget(connection)
        self._last_heartbeats.forget(connection)
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
        mark = Mark.of(command)
        last = self._last_heartbeats.repeated(connection, mark, self._tables())
        if last is not None:
            last.client.seen_ms = self._broker.now_ms()
            return _heard(command, is_change=not last.fingerprint)
        data = HeartbeatData.decode(command.body)
        legal = _with_legal_groups(data, connection)
        self._shares.take(connection, legal)
        client = ClientInfo(
            data.client_id or "", _language(command), command.version, self._broker.now_ms()
        )
        changed = False
        groups = []
        for consumer in legal.consumer_data_set:
            if self._is_rejected(consumer):
                continue
            self._join(consumer, connection, client, with_subscriptions=not data.without_sub)
            group = self._consumers.groups.get(consumer.group_name)
            if group is not None:
                changed = group.is_other(data.heartbeat_fingerprint) or changed
                groups.append(group)
        for producer in legal.producer_data_set:
            self._producers.register(producer.group_name, connection, client)
        taken = LastHeartbeat(
            mark,
            self._tables(),
            client,
            [(group, group.changes) for group in groups],
            bool(legal.producer_data_set),
            data.heartbeat_fingerprint,
        )
        self._last_heartbeats.keep(connection, taken)
        # Without a fingerprint the client does not care, and Java says true.
        return _heard(command, is_change=changed or not data.heartbeat_fingerprint)

    def _tables(self) -> tuple[object, ...]:
        """What a heartbeat is taken in by, each another object or version after a change."""
        broker = self._broker
        return broker.topics.version, broker.groups.version, broker.config

    def _is_rejected(self, data: ConsumerData) -> bool:
        return (
            self._broker.config.reject_pull_consumers
            and data.consume_type is ConsumeType.CONSUME_ACTIVELY
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
        self._shares.give_back(connection, header.producer_group, header.consumer_group)
        self._last_heartbeats.forget(connection)
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
        body = group.member_list
        return [encode_response(command, codes.SUCCESS, body_length=len(body)), body]

    def _lock(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        body = LockBatchRequestBody.decode(command.body)
        if body.consumer_group not in self._broker.groups:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {body.consumer_group!r} does not exist: send a heartbeat first",
            )
        check_client_id(body.client_id)
        granted = self._broker.locks.lock(
            body.consumer_group,
            filter(self._has_queue, body.mq_set),
            body.client_id,
            self._broker.now_ms(),
        )
        answer = LockBatchResponseBody(MessageQueues(granted)).encode()
        return [encode_response(command, codes.SUCCESS, body_length=len(answer)), answer]

    def _has_queue(self, queue: MessageQueue) -> bool:
        topic = self._broker.topics.get(queue.topic)
        return (
            topic is not None
            and 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums)
            and queue.broker_name == self._broker.config.broker_name
        )

    def _unlock(self, command: RemotingCommand, _connection: Connection) -> bytes:
        body = UnlockBatchRequestBody.decode(command.body)
        self._broker.locks.unlock(body.consumer_group, body.mq_set, body.client_id)
        return encode_response(command, codes.SUCCESS)


def _with_legal_groups(data: HeartbeatData, connection: Connection) -> HeartbeatData:
    """A heartbeat without the groups that cannot be (TopicValidator.isTopicOrGroupIllegal)."""
    producers = [group for group in data.producer_data_set if _is_legal(group.group_name)]
    consumers = [group for group in data.consumer_data_set if _is_legal(group.group_name)]
    left_out = (
        len(data.producer_data_set) + len(data.consumer_data_set) - len(producers) - len(consumers)
    )
    if not left_out:
        return data
    log.warning(
        "%d groups of a heartbeat from %s are left out: names have up to %d letters, digits and "
        "_ - %% | only",
        left_out, connection.peer, MAX_GROUP_LENGTH,
    )  # fmt: skip
    return msgspec.structs.replace(data, producer_data_set=producers, consumer_data_set=consumers)


def _heard(command: RemotingCommand, *, is_change: bool) -> bytes:
    """The answer to a heartbeat; ``is_change``: the client is to tell what it subscribes to."""
    fields = {
        "IS_SUPPORT_HEART_BEAT_V2": "true",
        "IS_SUB_CHANGE": "true" if is_change else "false",
    }
    return encode_response(command, codes.SUCCESS, fields)


def _is_legal(group: str) -> bool:
    try:
        check_group(group)
    except IllegalNameError:
        return False
    return True


def _language(command: RemotingCommand) -> str | int:
    """What a client is written in; a stranger's word for it is not kept."""
    known = isinstance(command.language, int) or command.language in LANGUAGES
    return command.language if known else "OTHER"
