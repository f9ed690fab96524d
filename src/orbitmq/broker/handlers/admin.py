"""What tools ask about the broker's tables and state.

Topics (17, 21, 202, 215, 351), groups (200, 201, 207, 225, 352), state (26, 28). Follows
AdminBrokerProcessor.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.table import check_size
from orbitmq.broker.topics import MAX_QUEUES, PERM_INHERIT, READ_WRITE
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.message import MessageQueue
from orbitmq.names import SCHEDULE_TOPIC, check_topic
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler, refusal
from orbitmq.wire.admin_bodies import SubscriptionGroupList
from orbitmq.wire.bodies import (
    Body,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import (
    CreateTopicRequestHeader,
    DeleteSubscriptionGroupRequestHeader,
    GroupRequestHeader,
    TopicRequestHeader,
)
from orbitmq.wire.registration import KVTable

log = logging.getLogger("orbitmq.broker")

_BIG_TABLE: Final = 1_000
"""From how many entries on a table takes a millisecond or more to be encoded."""
_LISTED_QUEUES: Final = 1_024
"""Up to how many queues a topic's statistics list those too that were never written."""
_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class AdminHandlers:
    """Reads and changes the broker's tables for tools."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._boot_ms = broker.clock.now_ms()

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create_group,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self._create_groups,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self._group_config,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
            RequestCode.GET_BROKER_CONFIG: self._config,
        }

    def _create_topic(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(CreateTopicRequestHeader)
        self._check_free(header.topic)
        _check_settings(header)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=self._attributes(header),
        )
        check_size(header.topic, topic)
        self._broker.topics.put(topic)
        return encode_response(command, codes.SUCCESS)

    def _attributes(self, header: CreateTopicRequestHeader) -> dict[str, str]:
        """A topic's attributes after ``+name=value`` and ``-name``, separated by commas."""
        known = self._broker.topics.get(header.topic)
        attributes = dict(known.attributes) if known else {}
        for change in filter(None, (header.attributes or "").split(",")):
            name, _, value = change[1:].partition("=")
            if change[0] == "+" and value:
                attributes[name] = value
            elif change[0] == "-":
                attributes.pop(name, None)
            else:
                raise BrokerError(
                    codes.INVALID_PARAMETER,
                    f"the attribute {change!r} is not understood: +name=value sets, -name removes",
                )
        return attributes

    def _delete_topic(self, command: RemotingCommand, _connection: Connection) -> bytes:
        topic = command.header(TopicRequestHeader).topic
        self._check_free(topic)
        self._broker.topics.delete(topic)
        self._broker.offsets.forget_topic(topic)
        self._broker.store.delete_topic(topic)
        return encode_response(command, codes.SUCCESS)

    def _check_free(self, topic: str) -> None:
        check_topic(topic)
        if self._broker.topics.is_reserved(topic):
            raise BrokerError(
                codes.INVALID_PARAMETER, f"topic {topic} is the broker's own: choose another name"
            )

    def _all_topics(self, command: RemotingCommand, connection: Connection) -> Answer:
        topics = self._broker.topics
        body = TopicConfigAndMappingSerializeWrapper(dict(topics.topics), topics.version)
        return _answer_table(command, connection, body, len(topics.topics))

    def _topic_config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return _answer(command, self._topic(command.header(TopicRequestHeader).topic))

    def _topic_stats(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(TopicRequestHeader).topic
        topic = self._topic(name)
        store, broker_name = self._broker.store, self._broker.config.broker_name
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
        return _answer(command, TopicStatsTable(table))

    def _topic(self, name: str) -> TopicConfig:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {name!r}")
        return topic

    def _create_group(self, command: RemotingCommand, _connection: Connection) -> bytes:
        self._broker.groups.put(SubscriptionGroupConfig.decode(command.body))
        return encode_response(command, codes.SUCCESS)

    def _create_groups(self, command: RemotingCommand, _connection: Connection) -> bytes:
        groups = SubscriptionGroupList.decode(command.body).group_config_list
        for group in groups:  # all or none
            self._broker.groups.check(group)
        for group in groups:
            self._broker.groups.put(group)
        return encode_response(command, codes.SUCCESS)

    def _all_groups(self, command: RemotingCommand, connection: Connection) -> Answer:
        groups = self._broker.groups
        body = SubscriptionGroupWrapper(
            subscription_group_table=dict(groups.groups), data_version=groups.version
        )
        return _answer_table(command, connection, body, len(groups.groups))

    def _group_config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(GroupRequestHeader).group
        group = self._broker.groups.find(name)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST, f"this broker has no consumer group {name!r}"
            )
        return _answer(command, group)

    def _delete_group(self, command: RemotingCommand, _connection: Connection) -> bytes:
        header = command.header(DeleteSubscriptionGroupRequestHeader)
        self._broker.groups.delete(header.group_name)
        if header.clean_offset:
            self._broker.offsets.forget_group(header.group_name)
        return encode_response(command, codes.SUCCESS)

    def _runtime_info(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        broker, store = self._broker, self._broker.store
        unflushed = store.max_physical_offset - store.flushed_physical_offset
        table = {
            "brokerVersionDesc": f"OrbitMQ speaking protocol {codes.PROTOCOL_VERSION}",
            "brokerActive": "true",
            "bootTimestamp": str(self._boot_ms),
            "commitLogMinOffset": str(store.min_physical_offset),
            "commitLogMaxOffset": str(store.max_physical_offset),
            "dispatchBehindBytes": "0",
            "earliestMessageTimeStamp": str(store.earliest_timestamp()),
            "remainHowManyDataToFlush": f"{unflushed} B",
            "commitLogFlush": str(store.flush_failure or "works"),
        }
        for level, offset in sorted(broker.delivery.offsets.items()):
            end = store.max_offset(SCHEDULE_TOPIC, level - 1)
            table[f"scheduleMessageOffset_{level}"] = f"{offset},{end}"
        return _answer(command, KVTable(table))

    def _config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        """The settings under the names they have in Apache's ``broker.conf``."""
        config = self._broker.config
        settings: dict[str, object] = {
            "autoCreateSubscriptionGroup": config.auto_create_groups,
            "autoCreateTopicEnable": config.auto_create_topics,
            "brokerClusterName": config.cluster_name,
            "brokerId": 0,
            "brokerName": config.broker_name,
            "channelExpiredTimeout": config.client_timeout_ms,
            "defaultTopicQueueNums": config.default_topic_queues,
            "enablePropertyFilter": False,
            "flushConsumerOffsetInterval": config.offset_save_interval_ms,
            "flushDelayOffsetInterval": config.delay_offset_save_interval_ms,
            "flushDiskType": config.store_config.flush_mode.value,
            "mappedFileSizeCommitLog": config.store_config.mapped_file_size,
            "maxMessageSize": config.store_config.max_message_size,
            "messageDelayLevel": config.store_config.delay_levels,
            "regionId": config.region_id,
            "storePathRootDir": self._broker.store.directory,
            "traceOn": config.trace_on,
            "useServerSideResetOffset": config.server_side_reset_offset,
        }
        lines = (
            f"{name}={str(value).lower() if isinstance(value, bool) else value}\n"
            for name, value in settings.items()
        )
        body = "".join(lines).encode()
        version = self._broker.topics.version.encode().decode()
        head = encode_response(command, codes.SUCCESS, {"version": version}, body_length=len(body))
        return [head, body]


def _answer(command: RemotingCommand, body: Body) -> list[bytes]:
    data = body.encode()
    return [encode_response(command, codes.SUCCESS, body_length=len(data)), data]


def _check_settings(header: CreateTopicRequestHeader) -> None:
    """Raise BrokerError for numbers and types that no topic has."""
    for queues in (header.read_queue_nums, header.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"topic {header.topic} cannot have {queues} queues: 0 to {MAX_QUEUES}",
            )
    if not 0 <= header.perm <= READ_WRITE | PERM_INHERIT:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"topic {header.topic} cannot have permission {header.perm}: add up 4 (read), "
            "2 (write) and 1 (inherit)",
        )
    if header.topic_filter_type not in _FILTER_TYPES:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"there is no filter type {header.topic_filter_type[:99]!r}: use "
            f"{' or '.join(_FILTER_TYPES)}",
        )


def _answer_table(
    command: RemotingCommand, connection: Connection, body: Body, entries: int
) -> Answer:
    """The answer with a whole table, that of a big one encoded beside the loop."""
    if entries < _BIG_TABLE:
        return _answer(command, body)

    def done(encoding: Future[bytes]) -> None:
        error = encoding.exception()
        if error is None:
            data = encoding.result()
            connection.send(encode_response(command, codes.SUCCESS, body_length=len(data)), data)
        elif isinstance(error, Exception):
            connection.send(refusal(command, connection, error))

    asyncio.get_running_loop().run_in_executor(None, body.encode).add_done_callback(done)
    return None
