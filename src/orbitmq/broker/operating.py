"""What an operator does with consumer groups: look at their progress, and move their offsets.

Knows neither sockets nor headers. Follows AdminBrokerProcessor (resetOffset, getConsumeStats,
cloneGroupOffset, queryTopicConsumeByWho) and Broker2Client.resetOffset.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable
from typing import Any, Generic, TypeVar

from orbitmq import codes
from orbitmq.broker.clients import ConsumerTable
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.long_poll import LongPollTable
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.topics import TopicTable
from orbitmq.errors import BrokerError
from orbitmq.message import MessageQueue
from orbitmq.names import check_group
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.admin_bodies import OffsetWrapper
from orbitmq.wire.bodies import SubscriptionData, TopicConfig

log = logging.getLogger("orbitmq.broker")

ALL_QUEUES = -1
LATEST = -1

_OwnerT = TypeVar("_OwnerT", bound=Hashable)


class Operating(Generic[_OwnerT]):
    """Reads and moves the offsets of the groups of one broker, ``broker_name``.

    ``held`` has the pulls that wait, for those whose offsets are moved.
    """

    def __init__(
        self,
        broker_name: str,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable[_OwnerT],
        offsets: ConsumerOffsets,
        held: LongPollTable[Any],
    ) -> None:
        self._broker_name = broker_name
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._held = held

    def reset(
        self,
        group: str,
        topic: str,
        timestamp: int,
        queue_id: int = ALL_QUEUES,
        offset: int | None = None,
    ) -> dict[MessageQueue, int]:
        """Set the group's offsets, so that its next pulls are sent there; returns the new ones.

        To what was stored at ``timestamp`` (ms; negative: the end), or with a ``queue_id`` to
        ``offset``, unless that is None or -1. The group need not be online. Raises BrokerError
        when topic, group or queue do not exist, or ``offset`` is beyond the queue.
        """
        known = self._topic(topic)
        if group not in self._groups:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"consumer group {group!r} does not exist: create it, or check its name",
            )
        if queue_id < 0:
            queues = range(known.read_queue_nums)
            new = {number: self._at(topic, number, timestamp) for number in queues}
        elif queue_id >= known.read_queue_nums:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"topic {topic} has no queue {queue_id}: its queues are 0 to "
                f"{known.read_queue_nums - 1}",
            )
        elif offset is None or offset == LATEST:
            new = {queue_id: self._at(topic, queue_id, timestamp)}
        else:
            self._check_range(topic, queue_id, offset)
            new = {queue_id: offset}
        if not new:
            raise BrokerError(codes.SYSTEM_ERROR, f"topic {topic} has no queues to reset")
        for number, target in new.items():
            self._offsets.reset(group, topic, number, target)
            self._held.wake(topic, number)
        log.info("an operator has set the offsets of group %s in %s to %s", group, topic, new)
        return self._by_queue(topic, new)

    def offsets_for_members(
        self, group: str, topic: str, timestamp: int, *, force: bool
    ) -> dict[MessageQueue, int]:
        """The offsets that the group's members are to be told when they reset them themselves.

        What was stored at ``timestamp`` (ms; -1: the end), but without ``force`` only where that
        is a step back. Raises BrokerError when there is no such topic, or the group has not
        committed in each of its queues.
        """
        new = {}
        for queue_id in range(self._topic(topic).write_queue_nums):
            consumed = self._offsets.query(group, topic, queue_id)
            if consumed is None:
                raise BrokerError(
                    codes.SYSTEM_ERROR,
                    f"consumer group {group} has no offset of {topic} queue {queue_id} yet: let it "
                    "consume first",
                )
            found = (
                self._store.max_offset(topic, queue_id)
                if timestamp == LATEST
                else self._store.offset_by_timestamp(topic, queue_id, timestamp)
            )
            new[queue_id] = found if force or found < consumed else consumed
        return self._by_queue(topic, new)

    def progress(self, group: str, topics: Iterable[str]) -> dict[MessageQueue, OffsetWrapper]:
        """How far ``group`` is in the queues of ``topics``, those left out that do not exist."""
        found = {}
        for topic in topics:
            known = self._topics.get(topic)
            if known is None:
                log.warning("group %s has offsets of topic %s, which does not exist", group, topic)
                continue
            for queue_id in range(known.read_queue_nums):
                queue = MessageQueue(topic, self._broker_name, queue_id)
                found[queue] = self._progress(group, topic, queue_id)
        return found

    def consumed_topics(self, group: str, topic: str | None = None) -> list[str]:
        """The topics ``group`` has committed in, or ``topic`` alone.

        Of a group that is online, only those it still subscribes to.
        """
        subscribed = self.subscriptions(group)
        topics = [topic] if topic else self._offsets.topics(group)
        return [name for name in topics if not subscribed or name in subscribed]

    def subscriptions(self, group: str) -> dict[str, SubscriptionData]:
        """What ``group`` subscribes to, by topic; nothing while it is not online."""
        members = self._consumers.groups.get(group)
        return members.subscriptions if members else {}

    def groups_of(self, topic: str) -> frozenset[str]:
        """The groups that subscribe to ``topic`` now, or have consumed it before."""
        return frozenset(self._consumers.subscribers(topic)) | set(self._offsets.groups(topic))

    def clone(
        self, source: str, group: str, topic: str | None = None, *, offline: bool = False
    ) -> None:
        """Set the offsets of ``group`` to those of ``source``, in ``topic`` or in all of them.

        Unless ``offline``, topics are left out that an online ``source`` does not subscribe to.
        Raises IllegalNameError for a group there cannot be.
        """
        check_group(group)
        every = [topic] if topic else self._offsets.topics(source)
        topics = every if offline else self.consumed_topics(source, topic)
        for name in topics:
            if name in self._topics.topics:
                self._offsets.clone(source, group, name)
        log.info("group %s now is where %s is, in the topics %s", group, source, topics)

    def message(self, physical_offset: int) -> memoryview:
        """The message that begins there in the commit log. Raises BrokerError when none does."""
        record = self._store.record_at(physical_offset)
        if record is None:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"no message begins at commit-log offset {physical_offset}: it was deleted, or the "
                "id is not one of this broker",
            )
        return record

    def _progress(self, group: str, topic: str, queue_id: int) -> OffsetWrapper:
        consumed = self._offsets.query(group, topic, queue_id) or 0
        stored = self._store.store_timestamp_at(topic, queue_id, consumed - 1) if consumed else 0
        return OffsetWrapper(
            broker_offset=self._store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=max(consumed, self._offsets.pull_offset(group, topic, queue_id) or 0),
            last_timestamp=max(0, stored),
        )

    def _at(self, topic: str, queue_id: int, timestamp: int) -> int:
        if timestamp < 0:
            return self._store.max_offset(topic, queue_id)
        return self._store.offset_by_timestamp(topic, queue_id, timestamp)

    def _check_range(self, topic: str, queue_id: int, offset: int) -> None:
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if not low <= offset <= high + 1:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"offset {offset} is not in {topic} queue {queue_id}, which has {low} to {high}",
            )

    def _topic(self, name: str) -> TopicConfig:
        topic = self._topics.get(name)
        if topic is None:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {name!r}")
        return topic

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[MessageQueue, int]:
        return {
            MessageQueue(topic, self._broker_name, queue_id): offset
            for queue_id, offset in offsets.items()
        }
