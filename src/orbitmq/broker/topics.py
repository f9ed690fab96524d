"""The topics of the broker: made by admin calls, by the first message sent, or for a group.

Follows TopicConfigManager. Every change is told to ``on_change``, which registers the topic with
the name server.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable

import msgspec

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.table import ConfigTable, TableChange
from orbitmq.names import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TIMER_TOPIC,
    check_topic,
    is_system_topic,
)
from orbitmq.wire.bodies import TopicConfig

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

_BENCHMARK_QUEUES = 1024
_CLUSTER_TOPIC_QUEUES = 16


class TopicChange(TableChange, frozen=True):
    """A topic that was made, changed or deleted."""

    value: TopicConfig | None = None


class TopicTable(ConfigTable[TopicConfig]):
    """All topics, ``topics`` by name; ``on_change`` is called with each new or different one."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int], delay_levels: int) -> None:
        built_in = _built_in_topics(config, delay_levels)
        super().__init__({topic.topic_name: topic for topic in built_in}, now_ms, TopicChange)
        self.on_change: Callable[[TopicConfig], None] = _ignore
        self._config = config
        self.topics = self.entries
        self.get = self.topics.get

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on; the pattern of new topics follows them."""
        before, self._config = _auto_create_topic(self._config), config
        pattern = _auto_create_topic(config)
        if pattern is not None and pattern != before:
            self.put(pattern)

    def mended(self, entry: TopicConfig) -> TopicConfig:
        """A saved topic, with as many queues as one can have."""
        read, write = (
            min(max(number, 0), MAX_QUEUES)
            for number in (entry.read_queue_nums, entry.write_queue_nums)
        )
        if (read, write) == (entry.read_queue_nums, entry.write_queue_nums):
            return entry
        log.warning(
            "topic %s is taken with %d queues to read and %d to write, not %d and %d",
            entry.topic_name, read, write, entry.read_queue_nums, entry.write_queue_nums,
        )  # fmt: skip
        return msgspec.structs.replace(entry, read_queue_nums=read, write_queue_nums=write)

    def is_reserved(self, topic: str) -> bool:
        """Whether users may not create or delete ``topic``."""
        return is_system_topic(topic) or topic in (
            self._config.cluster_name,
            self._config.broker_name,
            reply_topic(self._config.cluster_name),
        )

    def put(self, topic: TopicConfig) -> None:
        """Create or change a topic."""
        if topic != self.topics.get(topic.topic_name):
            log.info(
                "topic %s has %d queues to read, %d to write, permission %d",
                topic.topic_name, topic.read_queue_nums, topic.write_queue_nums, topic.perm,
            )  # fmt: skip
            self._set(topic.topic_name, topic)
            self.on_change(topic)

    def mark_ordered(self, topics: Iterable[str]) -> None:
        """Make those of ``topics`` ordered that are here (updateOrderTopicConfig)."""
        for name in topics:
            known = self.topics.get(name)
            if known is not None and not known.order:
                self.put(msgspec.structs.replace(known, order=True))

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
        topic(config.cluster_name, _CLUSTER_TOPIC_QUEUES, inherited),
        topic(config.broker_name, 1, inherited),
        topic(OFFSET_MOVED_TOPIC, 1),
        topic(SCHEDULE_TOPIC, delay_levels),
        topic(reply_topic(config.cluster_name), 1),
        topic(HALF_TOPIC, 1),
        topic(OP_HALF_TOPIC, 1),
    ]
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


def _ignore(_topic: TopicConfig) -> None:
    """Nobody wants to know."""
