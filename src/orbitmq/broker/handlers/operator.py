"""What tools ask about consumers and producers: 33, 203, 204, 208, 300, 314, 343, 345.

Follows AdminBrokerProcessor and QueryMessageProcessor. What the broker must ask the consumers
themselves for is in relay.py.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import cast

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ClientInfo
from orbitmq.broker.handlers.answering import answer
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire import admin_bodies
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    CloneGroupOffsetRequestHeader,
    ConsumerGroupRequestHeader,
    GetConsumeStatsRequestHeader,
    GroupRequestHeader,
    ProducerGroupRequestHeader,
    TopicRequestHeader,
    ViewMessageRequestHeader,
)
from orbitmq.wire.registration import TopicList

_TOPIC_SEPARATOR = ";"


class OperatorHandlers:
    """Translates to and from :class:`~orbitmq.broker.operating.Operating`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._operating = broker.operating

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.VIEW_MESSAGE_BY_ID: self._view_message,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._consumers,
            RequestCode.GET_PRODUCER_CONNECTION_LIST: self._producers,
            RequestCode.GET_CONSUME_STATS: self._consume_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self._topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self._subscription,
            RequestCode.CLONE_GROUP_OFFSET: self._clone,
        }

    def _view_message(self, command: RemotingCommand, _connection: Connection) -> Answer:
        record = self._operating.message(command.header(ViewMessageRequestHeader).offset)
        return [encode_response(command, codes.SUCCESS, body_length=len(record)), record]

    def _consumers(self, command: RemotingCommand, _connection: Connection) -> Answer:
        name = command.header(ConsumerGroupRequestHeader).consumer_group
        group = self._broker.consumers.groups.get(name)
        if group is None:
            raise BrokerError(
                codes.CONSUMER_NOT_ONLINE, f"consumer group {name!r} has no member online"
            )
        return answer(
            command,
            admin_bodies.ConsumerConnection(
                _connections(group.members.items()),
                group.subscriptions,
                group.consume_type,
                group.message_model,
                group.consume_from_where,
            ),
        )

    def _producers(self, command: RemotingCommand, _connection: Connection) -> Answer:
        name = command.header(ProducerGroupRequestHeader).producer_group
        members = self._broker.producers.groups.get(name)
        if members is None:
            raise BrokerError(codes.SYSTEM_ERROR, f"producer group {name!r} has no member online")
        return answer(command, admin_bodies.ProducerConnection(_connections(members.items())))

    def _consume_stats(self, command: RemotingCommand, _connection: Connection) -> Answer:
        header = command.header(GetConsumeStatsRequestHeader)
        group = header.consumer_group
        topics = [name for name in (header.topic_list or "").split(_TOPIC_SEPARATOR) if name]
        topics = topics or self._operating.consumed_topics(group, header.topic)
        progress = self._operating.progress(group, topics)
        now_ms, statistics = self._broker.now_ms(), self._broker.statistics
        tps = sum(statistics.consume_tps(group, topic, now_ms) for topic in topics)
        return answer(command, admin_bodies.ConsumeStats(progress, tps))

    def _groups_of_topic(self, command: RemotingCommand, _connection: Connection) -> Answer:
        topic = command.header(TopicRequestHeader).topic
        return answer(command, admin_bodies.GroupList(self._operating.groups_of(topic)))

    def _topics_of_group(self, command: RemotingCommand, _connection: Connection) -> Answer:
        group = command.header(GroupRequestHeader).group
        return answer(command, TopicList(frozenset(self._broker.offsets.topics(group))))

    def _subscription(self, command: RemotingCommand, _connection: Connection) -> Answer:
        header = command.header(GroupRequestHeader)
        topic = header.topic or ""
        found = self._operating.subscriptions(header.group).get(topic)
        return answer(
            command, admin_bodies.QuerySubscriptionResponseBody(header.group, topic, found)
        )

    def _clone(self, command: RemotingCommand, _connection: Connection) -> Answer:
        header = command.header(CloneGroupOffsetRequestHeader)
        self._operating.clone(
            header.src_group, header.dest_group, header.topic, offline=header.offline
        )
        return encode_response(command, codes.SUCCESS)


def _connections(
    members: Iterable[tuple[Hashable, ClientInfo]],
) -> list[admin_bodies.Connection]:
    return [
        admin_bodies.Connection(
            client.client_id,
            cast("Connection", connection).peer,
            client.language if isinstance(client.language, str) else "OTHER",
            client.version,
        )
        for connection, client in members
    ]
