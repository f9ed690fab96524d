"""What goes with a topic or group that is deleted, and what nobody needs any more.

Follows AdminBrokerProcessor (deleteTopic, deleteSubscriptionGroup, cleanUnusedTopic).
"""

from __future__ import annotations

import logging
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import TopicTable
from orbitmq.names import RETRY_PREFIX, SCHEDULE_TOPIC, is_system_topic
from orbitmq.store.message_store import MessageStore

log = logging.getLogger("orbitmq.broker")

_LMQ_PREFIX: Final = "%LMQ%"
"""Queues without a topic of their own, which Java's broker has for MQTT."""


class CleanUp:
    """Deletes topics and groups, and what belongs to them."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        offsets: ConsumerOffsets,
        statistics: Statistics,
    ) -> None:
        self.renew(config)
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._statistics = statistics

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._clear_retry_topics = config.clear_retry_topics

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its queues, what was committed in it, and pop's retry topics.

        Raises IllegalNameError, or BrokerError for one of the broker's own.
        """
        self._topics.check_free(topic)
        retries = self._pop_retry_topics(topic) if self._clear_retry_topics else ()
        for name in (topic, *retries):
            self._topics.delete(name)
            self._offsets.forget_topic(name)
            self._statistics.forget_topic(name)
            self._store.delete_topic(name)

    def delete_group(self, group: str, *, clean_offsets: bool) -> None:
        """Delete a group's settings, and with ``clean_offsets`` what it has committed."""
        self._groups.delete(group)
        if clean_offsets:
            self._offsets.forget_group(group)
            self._statistics.forget_group(group)

    def clean_unused_topics(self) -> list[str]:
        """Delete the queues of topics that are no more; returns these topics."""
        unused = [
            topic
            for topic in self._store.topics()
            if topic not in self._topics.topics
            and not is_system_topic(topic)
            and not topic.startswith(_LMQ_PREFIX)
        ]
        for topic in unused:
            self._store.delete_topic(topic)
        log.info("the queues of %d topics that are no more are deleted: %s", len(unused), unused)
        return unused

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """The topics of messages that pop consumers of ``topic`` did not confirm (KeyBuilder)."""
        names = (
            f"{RETRY_PREFIX}{group}{separator}{topic}"
            for group in self._offsets.groups(topic)
            for separator in "+_"
        )
        return [name for name in names if name in self._topics.topics]

    def clean_expired_queues(self) -> None:
        """Delete the queues all of whose messages have been deleted."""
        deleted = self._store.cleaner.remove_expired_queues(SCHEDULE_TOPIC.__eq__)
        log.info("%d queues have no messages any more, and are deleted", deleted)
