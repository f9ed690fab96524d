"""The topics of the broker: made by admin calls, by the first message sent, or for a group.

Follows TopicConfigManager. Every change is told to ``on_change``, which registers the topic with
the name server.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable

import msgspec

from orbitmq import codes
from orbitmq.broker.attributes import TOPIC_ATTRIBUTES, altered
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.table import ConfigTable, TableChange
from orbitmq.errors import BrokerError
from orbitmq.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TIMER_TOPIC,
    check_topic,
    is_system_topic,
)
from orbitmq.wire.bodies import TopicConfig
from orbitmq.wire.message_types import MESSAGE_TYPE, MIXED

log = logging.getLogger("orbitmq.broker")

PERM_INHERIT = 1
PERM_WRITE = 2
PERM_READ = 4
READ_WRITE = PERM_READ | PERM_WRITE

MAX_QUEUES = 65_536
"""The most queues a topic can have; Java's broker has no limit."""

UNIT_TOPIC = 1
"""A bit of ``topic_sys_flag`` (Java's TopicSysFlag): the topic belongs to a unit."""
UNIT_SUB_TOPIC = 2
"""A bit of ``topic_sys_flag``: a group of a unit subscribes to it."""

_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")
_BENCHMARK_QUEUES = 1024
_CLUSTER_TOPIC_QUEUES = 16


class TopicChange(TableChange, frozen=True):
    """A topic that was made, changed or deleted."""

    value: TopicConfig | None = None


class TopicTable(ConfigTable[TopicConfig]):
    """All topics, ``topics`` by name; ``on_change`` is called with those new or different."""

    limit = "maxTopics"

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int], delay_levels: int) -> None:
        built_in = _built_in_topics(config, delay_levels)
        super().__init__({topic.topic_name: topic for topic in built_in}, now_ms, TopicChange)
        self.on_change: Callable[[Iterable[TopicConfig]], None] = _ignore
        self._config = config
        self.most = config.max_topics
        cluster = config.cluster_name
        self._system_topics = SYSTEM_TOPICS | {cluster, config.broker_name, reply_topic(cluster)}
        self.topics = self.entries
        self.get = self.topics.get

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on; the pattern of new topics follows them."""
        self.most = config.max_topics
        before, self._config = self._config, config
        pattern = _auto_create_topic(config)
        if pattern is not None and pattern != _auto_create_topic(before):
            self.put(pattern)
        if config.broker_permission != before.broker_permission:
            self._set(config.cluster_name, self.topics[config.cluster_name])  # a new version
            self.on_change(self.topics.values())

    def mended(self, entry: TopicConfig) -> TopicConfig:
        """A saved topic, with as many queues as one can have."""
        read, write = entry.read_queue_nums, entry.write_queue_nums
        if 0 <= read <= MAX_QUEUES and 0 <= write <= MAX_QUEUES:
            return entry
        read, write = (min(max(number, 0), MAX_QUEUES) for number in (read, write))
        log.warning(
            "topic %s is taken with %d queues to read and %d to write, not %d and %d",
            entry.topic_name, read, write, entry.read_queue_nums, entry.write_queue_nums,
        )  # fmt: skip
        return msgspec.structs.replace(entry, read_queue_nums=read, write_queue_nums=write)

    def system_topics(self) -> frozenset[str]:
        """The topics that the broker keeps for itself (TopicValidator.getSystemTopicSet)."""
        return self._system_topics

    def is_reserved(self, topic: str) -> bool:
        """Whether users may not create or delete ``topic``."""
        return is_system_topic(topic) or topic in self._system_topics

    def _name_of(self, topic: TopicConfig) -> str:
        return topic.topic_name

    def _tell(self, changed: list[TopicConfig]) -> None:
        if changed:
            self.on_change(changed)

    def _updated(self, topic: TopicConfig) -> TopicConfig:
        name = topic.topic_name
        self.check_free(name)
        _check_settings(topic)
        mixed = topic.attributes.get("+" + MESSAGE_TYPE) == MIXED
        if mixed and not self._config.enable_mixed_message_type:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"topic {name} cannot take {MIXED} messages: enableMixedMessageType is false",
            )
        known = self.topics.get(name)
        attributes = altered(
            known.attributes if known else None, topic.attributes, TOPIC_ATTRIBUTES
        )
        return msgspec.structs.replace(topic, attributes=attributes)

    def check_free(self, topic: str) -> None:
        """Raise IllegalNameError or BrokerError for a name that users may not take."""
        check_topic(topic)
        if self._config.validate_system_topics and self.is_reserved(topic):
            raise BrokerError(
                codes.INVALID_PARAMETER, f"topic {topic} is the broker's own: choose another name"
            )

    @property
    def are_registered_singly(self) -> bool:
        """Whether name servers are told of one changed topic at a time."""
        return self._config.enable_single_topic_register

    def announced(self, topic: TopicConfig) -> TopicConfig:
        """A topic as name servers are told of it (BrokerController.registerBrokerAll)."""
        permission = self._config.broker_permission
        if permission & READ_WRITE == READ_WRITE:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & permission)

    def all_announced(self) -> dict[str, TopicConfig]:
        """All topics so, by name, untouched by later changes."""
        if self._config.broker_permission & READ_WRITE == READ_WRITE:
            return dict(self.topics)
        return {name: self.announced(topic) for name, topic in self.topics.items()}

    def put(self, topic: TopicConfig) -> None:
        """Create or change a topic."""
        if self._put(topic):
            self._tell([topic])

    def _put(self, topic: TopicConfig) -> bool:
        if topic == self.topics.get(topic.topic_name):
            return False
        log.info(
            "topic %s has %d queues to read, %d to write, permission %d",
            topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm,
        )  # fmt: skip
        self._set(topic.topic_name, topic)
        return True

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """Make those of ``topics`` ordered that are here (updateOrderTopicConfig)."""
        known = (self.topics.get(name) for name in topics)
        plain = [topic for topic in known if topic is not None and not topic.order]
        for topic in plain:
            self.put(msgspec.structs.replace(topic, order=True))

    def delete(self, topic: str) -> None:
        """Forget a topic; nothing if there is none."""
        if topic in self.topics:
            self._drop(topic)
            log.info("topic %s is deleted", topic)

    def create_by_sending(
        self, topic: str, default_topic: str, queues: int, sys_flag: int
    ) -> TopicConfig | None:
        """The topic a message was sent to, made after the pattern of ``default_topic``.

        It gets as many queues as the sender asks for, but no more than the pattern has. None when
        the pattern may not be inherited or does not exist. Raises IllegalNameError.
        """
        check_topic(topic)
        pattern = self.topics.get(default_topic)
        if pattern is None or not pattern.perm & PERM_INHERIT:
            return None
        if default_topic == AUTO_CREATE_TOPIC and not self._config.auto_create_topics:
            return None  # it may still be among the saved ones
        queues = max(0, min(queues, pattern.write_queue_nums))
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=pattern.perm & ~PERM_INHERIT,
            topic_filter_type=pattern.topic_filter_type,
            topic_sys_flag=sys_flag,
        )
        self.put(created)
        return created

    def create_derived(
        self, topic: str, queues: int, sys_flag: int = 0, *, order: bool | None = None
    ) -> TopicConfig:
        """A group's retry or dead-letter topic, made if need be.

        ``order`` says whether the group subscribes to an ordered topic; None leaves that as it is.
        """
        known = self.topics.get(topic)
        if known is None:
            known = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=READ_WRITE,
                topic_sys_flag=sys_flag,
                order=bool(order),
            )
            self.put(known)
        elif order is not None and order != known.order:
            known = msgspec.structs.replace(known, order=order)
            self.put(known)
        return known


def _check_settings(topic: TopicConfig) -> None:
    """Raise BrokerError for numbers and types that no topic has."""
    name = topic.topic_name
    for queues in (topic.read_queue_nums, topic.write_queue_nums):
        if not 0 <= queues <= MAX_QUEUES:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"topic {name} cannot have {queues} queues: 0 to {MAX_QUEUES}",
            )
    if not 0 <= topic.perm <= READ_WRITE | PERM_INHERIT:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"topic {name} cannot have permission {topic.perm}: add up 4 (read), 2 (write) and "
            "1 (inherit)",
        )
    if topic.topic_filter_type not in _FILTER_TYPES:
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"there is no filter type {topic.topic_filter_type[:99]!r}: use "
            f"{' or '.join(_FILTER_TYPES)}",
        )


def any_queue(topic: TopicConfig) -> int:
    """One of the queues of ``topic`` to write to."""
    return random.randrange(max(1, topic.write_queue_nums))  # noqa: S311 - it spreads the load


def reply_topic(cluster: str) -> str:
    """The topic that replies to requests are sent to (MixAll.getReplyTopic)."""
    return f"{cluster}_REPLY_TOPIC"


def _built_in_topics(config: BrokerConfig, delay_levels: int) -> list[TopicConfig]:
    def topic(name: str, queues: int, perm: int = READ_WRITE) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    inherited = READ_WRITE | PERM_INHERIT
    topics = [
        topic(SELF_TEST_TOPIC, 1),
        topic(BENCHMARK_TOPIC, _BENCHMARK_QUEUES),
        topic(
            config.cluster_name,
            _CLUSTER_TOPIC_QUEUES,
            inherited if config.cluster_topic_enable else PERM_INHERIT,
        ),
        topic(config.broker_name, 1, inherited if config.broker_topic_enable else PERM_INHERIT),
        topic(OFFSET_MOVED_TOPIC, 1),
        topic(SCHEDULE_TOPIC, delay_levels),
        topic(reply_topic(config.cluster_name), 1),
        topic(HALF_TOPIC, 1),
        topic(OP_HALF_TOPIC, 1),
    ]
    if config.trace_topic_enable:
        topics.append(topic(config.trace_topic, 1))
    if config.store_config.timer_wheel:
        topics.append(topic(TIMER_TOPIC, 1))
    pattern = _auto_create_topic(config)
    return topics if pattern is None else [*topics, pattern]


def _auto_create_topic(config: BrokerConfig) -> TopicConfig | None:
    """The pattern of topics made by being sent to, where that is allowed."""
    if not config.auto_create_topics:
        return None
    queues = config.default_topic_queues
    return TopicConfig(
        topic_name=AUTO_CREATE_TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=READ_WRITE | PERM_INHERIT,
    )


def _ignore(_topics: Iterable[TopicConfig]) -> None:
    """Nobody wants to know."""
