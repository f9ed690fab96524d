"""The broker's topics for tools: 17, 18, 21, 215, 305, 306, 316, 329, 351.

Follows AdminBrokerProcessor.
"""

from __future__ import annotations

import logging

from orbitmq import codes
from orbitmq.broker.attributes import parse_changes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer, answer_after, answer_table, check_count
from orbitmq.broker.topics import TopicTable
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.bodies import DataVersion, TopicConfig, TopicConfigAndMappingSerializeWrapper
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import CreateTopicRequestHeader, TopicRequestHeader
from orbitmq.wire.registration import TopicList
from orbitmq.wire.topic_bodies import (
    CreateTopicListRequestBody,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
)

log = logging.getLogger("orbitmq.broker")


class TopicHandlers:
    """Makes, changes, lists and deletes topics, and cleans up what nobody needs."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._topics: TopicTable = broker.topics

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self._create_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self._system_topics,
            RequestCode.CLEAN_UNUSED_TOPIC: self._clean_unused,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self._clean_expired_queues,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self._delete_expired_log,
        }

    def _create_topic(self, command: RemotingCommand, connection: Connection) -> bytes:
        header = command.header(CreateTopicRequestHeader)
        log.info("%s makes or changes topic %s", connection.peer, header.topic)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=parse_changes(header.attributes),
        )
        self._topics.update([topic])
        return encode_response(command, codes.SUCCESS)

    def _create_topics(self, command: RemotingCommand, connection: Connection) -> Answer:
        topics = CreateTopicListRequestBody.decode(command.body).topic_config_list
        check_count("topics", len(topics))
        log.info("%s makes or changes %d topics", connection.peer, len(topics))
        work = self._topics.updating(topics)
        return answer_after(command, connection, work, self._broker.saved.save_changes)

    def _delete_topic(self, command: RemotingCommand, connection: Connection) -> bytes:
        topic = command.header(TopicRequestHeader).topic
        log.info("%s deletes topic %s", connection.peer, topic)
        self._broker.clean_up.delete_topic(topic)
        return encode_response(command, codes.SUCCESS)

    def _all_topics(self, command: RemotingCommand, connection: Connection) -> Answer:
        header = command.header(GetAllTopicConfigRequestHeader)
        topics, config = self._topics, self._broker.config
        if config.enable_split_metadata and header != GetAllTopicConfigRequestHeader():
            size = config.split_metadata_size
            if header.max_topic_num is not None:
                size = min(size, header.max_topic_num)
            version = (
                DataVersion.decode(header.data_version.encode()) if header.data_version else None
            )
            found = topics.page(version, header.topic_seq or 0, size)
        else:
            found = dict(topics.topics)
        body = TopicConfigAndMappingSerializeWrapper(found, topics.version)
        total = GetAllTopicConfigResponseHeader(total_topic_num=len(topics.topics))
        return answer_table(command, connection, body, len(found), total)

    def _topic_config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        name = command.header(TopicRequestHeader).topic
        topic = self._topics.get(name)
        if topic is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {name!r}")
        return answer(command, topic)

    def _system_topics(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return answer(command, TopicList(self._topics.system_topics()))

    def _clean_unused(self, command: RemotingCommand, connection: Connection) -> bytes:
        log.info("%s has the queues of unused topics deleted", connection.peer)
        self._broker.clean_up.clean_unused_topics()
        return encode_response(command, codes.SUCCESS)

    def _clean_expired_queues(self, command: RemotingCommand, connection: Connection) -> bytes:
        log.info("%s has queues deleted that have no messages any more", connection.peer)
        self._broker.clean_up.clean_expired_queues()
        return encode_response(command, codes.SUCCESS)

    def _delete_expired_log(self, command: RemotingCommand, connection: Connection) -> bytes:
        log.info("%s has expired files of the commit log deleted", connection.peer)
        self._broker.store.cleaner.delete_expired_files()
        return encode_response(command, codes.SUCCESS)
