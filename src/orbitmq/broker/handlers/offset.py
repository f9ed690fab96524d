"""Offsets: 14, 15, 29, 30, 31, 32, 202."""

from __future__ import annotations

import logging
from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer
from orbitmq.broker.offsets import check_offset
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Handler
from orbitmq.wire.bodies import TopicOffset, TopicStatsTable
from orbitmq.wire.command import ONEWAY, RemotingCommand, encode_response
from orbitmq.wire.headers import (
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)

log = logging.getLogger("orbitmq.broker")

_UPPER = "UPPER"
_LISTED_QUEUES: Final = 1_024
"""Up to how many queues a topic's statistics list those too that were never written."""


class OffsetHandlers:
    """What consumers have committed, and what queues hold. Follows ConsumerManageProcessor."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._store = broker.store
        self._offsets = broker.offsets
        self._groups = broker.groups.groups
        self._topics = broker.topics.topics

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_MAX_OFFSET: self._max,
            RequestCode.GET_MIN_OFFSET: self._min,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
        }

    def _query(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(QueryConsumerOffsetRequestHeader)
        topic, queue_id = header.topic, header.queue_id
        offset = self._offsets.query(header.consumer_group, topic, queue_id)
        self._offsets.told(header.consumer_group, topic, queue_id)
        if (
            offset is None
            and header.set_zero_if_not_found is not False
            and self._store.min_offset(topic, queue_id) <= 0
            and self._broker.is_recent(topic, queue_id)
        ):
            offset = 0
        if offset is None:
            raise BrokerError(
                codes.QUERY_NOT_FOUND,
                f"group {header.consumer_group} has committed no offset of {topic} queue {queue_id}"
                " yet",
            )
        return _offset(command, offset)

    def _update(self, command: RemotingCommand, _connection: Connection) -> bytes | None:
        header = command.header(UpdateConsumerOffsetRequestHeader)
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        if group not in self._groups:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"group {group!r} does not exist: create it, or check its name",
            )
        self._check_queue(topic, queue_id)
        check_offset(header.commit_offset, topic, queue_id)
        if self._offsets.is_reset(group, topic, queue_id):
            log.info(
                "offset %d of %s queue %d, committed by group %s, is ignored: it was reset before",
                header.commit_offset, topic, queue_id, group,
            )  # fmt: skip
            return encode_response(command, codes.SUCCESS, remark="the offset was reset before")
        self._offsets.commit(group, topic, queue_id, header.commit_offset)
        if command.flag & ONEWAY:  # as clients do for each queue every 5 s
            return None
        return encode_response(command, codes.SUCCESS)

    def _check_queue(self, name: str, queue_id: int) -> None:
        """Raise BrokerError unless the topic has the queue, or had it when it had more of them."""
        topic = self._topics.get(name)
        if topic is None:
            raise BrokerError(
                codes.TOPIC_NOT_EXIST, f"topic {name!r} does not exist: create it first"
            )
        if 0 <= queue_id < topic.read_queue_nums:
            return
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if not 0 <= queue_id < queues and not self._store.max_offset(name, queue_id):
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"topic {name} has no queue {queue_id}: its queues are 0 to {queues - 1}; ask for "
                "its route again",
            )

    def _search(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(SearchOffsetRequestHeader)
        upper = (header.boundary_type or "").upper() == _UPPER
        offset = self._store.offset_by_timestamp(
            header.topic, header.queue_id, header.timestamp, upper=upper
        )
        return _offset(command, offset)

    def _max(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(TopicQueueRequestHeader)
        return _offset(command, self._store.max_offset(header.topic, header.queue_id))

    def _min(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(TopicQueueRequestHeader)
        return _offset(command, self._store.min_offset(header.topic, header.queue_id))

    def _earliest(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(TopicQueueRequestHeader)
        timestamp = self._store.earliest_timestamp(header.topic, header.queue_id)
        return encode_response(command, codes.SUCCESS, TimestampResponseHeader(timestamp=timestamp))

    def _topic_stats(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(TopicRequestHeader).topic
        topic = self._broker.topics.get(name)
        if topic is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {name!r}")
        store, broker_name = self._store, self._broker.config.broker_name
        table = {}
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        for queue_id in range(queues):
            end = store.max_offset(name, queue_id)
            if not end and queues > _LISTED_QUEUES:
                continue
            table[MessageQueue(name, broker_name, queue_id)] = TopicOffset(
                store.min_offset(name, queue_id),
                end,
                store.store_timestamp_at(name, queue_id, end - 1) if end else 0,
            )
        tps = self._broker.statistics.put_tps(name, self._broker.now_ms())
        return answer(command, TopicStatsTable(table, tps))


def _offset(command: RemotingCommand, offset: int) -> bytes:
    return encode_response(command, codes.SUCCESS, OffsetResponseHeader(offset=offset))
