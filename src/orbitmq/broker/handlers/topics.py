"""The broker's topics for tools: 17, 21, 215, 351. Follows AdminBrokerProcessor."""

from __future__ import annotations

from typing import Final

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.handlers.answering import answer, answer_table
from orbitmq.broker.table import check_size
from orbitmq.broker.topics import MAX_QUEUES, PERM_INHERIT, READ_WRITE
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError
from orbitmq.names import check_topic
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Answer, Handler
from orbitmq.wire.bodies import TopicConfig, TopicConfigAndMappingSerializeWrapper
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import CreateTopicRequestHeader, TopicRequestHeader

_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")


class TopicHandlers:
    """Makes, changes, lists and deletes topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def table(self) -> dict[int, Handler]:
        """The handlers, by request code."""
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.GET_TOPIC_CONFIG: self._topic_config,
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
        self._broker.statistics.forget_topic(topic)
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
        return answer_table(command, connection, body, len(topics.topics))

    def _topic_config(self, command: RemotingCommand, _connection: Connection) -> list[bytes]:
        return answer(command, self._topic(command.header(TopicRequestHeader).topic))

    def _topic(self, name: str) -> TopicConfig:
        topic = self._broker.topics.get(name)
        if topic is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {name!r}")
        return topic


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
