"""How far each group has consumed each queue. Follows ConsumerOffsetManager."""

from __future__ import annotations

import logging
from typing import NamedTuple

from orbitmq import codes
from orbitmq.errors import BrokerError

log = logging.getLogger("orbitmq.broker")

SEPARATOR = "@"
"""Stands between topic and group in a key of ``consumerOffset.json``."""

MAX_OFFSET = (1 << 63) - 1
"""The greatest offset there is (Java's Long.MAX_VALUE)."""


def is_offset(number: int) -> bool:
    """Whether a queue can have a message there, or have it next."""
    return 0 <= number <= MAX_OFFSET


def check_offset(number: int, topic: str, queue_id: int) -> None:
    """Raise BrokerError for what is no offset."""
    if not is_offset(number):
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"{number} is no offset of {topic} queue {queue_id}: they are 0 to {MAX_OFFSET}",
        )


class _Reset(NamedTuple):
    """Where an operator wants a group; ``told``: a consumer has asked since, and begins there."""

    offset: int
    told: bool = False


class _Pairs:
    """Pairs of topic and group, to be found by either."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[str, None]] = {}
        self._topics: dict[str, dict[str, None]] = {}

    def add(self, topic: str, group: str) -> None:
        self._groups.setdefault(topic, {})[group] = None
        self._topics.setdefault(group, {})[topic] = None

    def remove(self, topic: str, group: str) -> None:
        for table, key, other in ((self._groups, topic, group), (self._topics, group, topic)):
            others = table.get(key, {})
            others.pop(other, None)
            if not others:
                table.pop(key, None)

    def groups(self, topic: str) -> list[str]:
        return list(self._groups.get(topic, ()))

    def topics(self, group: str) -> list[str]:
        return list(self._topics.get(group, ()))


class ConsumerOffsets:
    """Committed offsets by ``topic@group`` and queue id; ``changed``: they are not saved yet.

    An operator's reset is committed at once, and pending until a consumer next pulls the queue and
    is sent to the new offset; till then no consumer's commit undoes it. A consumer that asks for
    its offset meanwhile begins there, and need not be sent. Pending resets and pull offsets are
    only in memory. There is room for ``most`` committed offsets; saved ones are taken all.
    """

    def __init__(self, *, most: int = 1 << 31) -> None:
        self.table: dict[str, dict[int, int]] = {}
        self.changed = False
        self.most = most
        self._count = 0
        self._own: set[str] = set()  # the keys of ``table`` whose offsets no snapshot has
        self._pulled: dict[str, dict[int, int]] = {}
        self._pulled_count = 0
        self._resets: dict[str, dict[int, _Reset]] = {}
        self._pairs = _Pairs()  # of which anything is kept

    def load(self, table: dict[str, dict[int, int]]) -> None:
        """Take in what was saved, but no offsets that no queue can have."""
        for key, queues in table.items():
            offsets = {number: at for number, at in queues.items() if is_offset(at)}
            if len(offsets) < len(queues):
                dropped = {number: at for number, at in queues.items() if not is_offset(at)}
                log.warning("%s: these are no offsets, and dropped: %s", key, dropped)
            topic, _, group = key.partition(SEPARATOR)
            self._put(topic, group, offsets)

    def snapshot(self) -> dict[str, dict[int, int]]:
        """All committed offsets as they are now, untouched by later changes.

        It costs no copy of each group's offsets: who changes them next makes it.
        """
        self._own.clear()
        return self.table.copy()

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset of the next message ``group`` is to consume from a queue.

        Raises BrokerError when there is no room for one more.
        """
        queues = self._queues(group, topic, queue_id)
        before = queues.get(queue_id, 0)
        if offset < before:
            log.warning(
                "group %s moved back in %s queue %d, from offset %d to %d",
                group, topic, queue_id, before, offset,
            )  # fmt: skip
        queues[queue_id] = offset
        self.changed = True

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note that ``group`` has pulled a queue up to ``next_offset``."""
        key = topic + SEPARATOR + group
        queues = self._pulled.get(key)
        if queues is None or queue_id not in queues:
            if self._pulled_count >= self.most:
                return
            self._pulled_count += 1
            if queues is None:
                queues = self._pulled[key] = {}
                self._pairs.add(topic, group)
        queues[queue_id] = next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset as an operator wants it, whatever the consumers commit meanwhile.

        Raises BrokerError when there is no room for one more.
        """
        self._queues(group, topic, queue_id)[queue_id] = offset
        self._resets.setdefault(topic + SEPARATOR + group, {})[queue_id] = _Reset(offset)
        self.changed = True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending, so that what consumers commit is out of date."""
        return self._reset_of(group, topic, queue_id) is not None

    def told(self, group: str, topic: str, queue_id: int) -> None:
        """Note that a consumer of the group was told the offset, to begin there."""
        pending = self._reset_of(group, topic, queue_id)
        if pending is not None:
            told = _Reset(pending.offset, told=True)
            self._resets[topic + SEPARATOR + group][queue_id] = told

    def take_reset(self, group: str, topic: str, queue_id: int, pulled: int) -> int | None:
        """Where an operator wants a consumer that pulls at ``pulled``; this ends the reset.

        None when no reset is pending, or the consumer was told, and is there.
        """
        if not self._resets:  # as for nearly every pull
            return None
        pending = self._reset_of(group, topic, queue_id)
        if pending is None:
            return None
        key = topic + SEPARATOR + group
        del self._resets[key][queue_id]
        if not self._resets[key]:
            del self._resets[key]
        return None if pending.told and pending.offset == pulled else pending.offset

    def clone(self, source: str, group: str, topic: str) -> None:
        """Let ``group`` continue in a topic where ``source`` is; nothing if that is nowhere.

        Raises BrokerError when there is no room for its offsets.
        """
        queues = self.table.get(topic + SEPARATOR + source)
        if queues is not None:
            self._check_room(len(queues))
            self._put(topic, group, dict(queues))
            self._resets.pop(topic + SEPARATOR + group, None)
            self.changed = True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None when there is none, or only a negative one, which is none."""
        offset = self.table.get(topic + SEPARATOR + group, {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Up to where ``group`` has pulled since the broker started; None: it has not."""
        return self._pulled.get(topic + SEPARATOR + group, {}).get(queue_id)

    def groups(self, topic: str) -> list[str]:
        """The groups that have committed in ``topic``."""
        groups = self._pairs.groups(topic)
        return [group for group in groups if topic + SEPARATOR + group in self.table]

    def topics(self, group: str) -> list[str]:
        """The topics ``group`` has committed in."""
        topics = self._pairs.topics(group)
        return [topic for topic in topics if topic + SEPARATOR + group in self.table]

    def forget_topic(self, topic: str) -> None:
        """Drop what was committed in a topic that is gone."""
        for group in self._pairs.groups(topic):
            self._forget(topic, group)

    def forget_group(self, group: str) -> None:
        """Drop what a group that is gone has committed."""
        for topic in self._pairs.topics(group):
            self._forget(topic, group)

    def _queues(self, group: str, topic: str, queue_id: int) -> dict[int, int]:
        """A group's offsets in a topic, to be changed, with room for ``queue_id``.

        Raises BrokerError.
        """
        key = topic + SEPARATOR + group
        queues = self.table.get(key)
        if queues is None or queue_id not in queues:
            self._check_room(1)
            if queues is None:
                queues = self._put(topic, group, {})
            self._count += 1
        if key not in self._own:
            queues = self.table[key] = queues.copy()
            self._own.add(key)
        return queues

    def _put(self, topic: str, group: str, queues: dict[int, int]) -> dict[int, int]:
        """Make ``queues``, which nobody else has, a group's offsets in a topic."""
        key = topic + SEPARATOR + group
        self._count += len(queues) - len(self.table.get(key, ()))
        self.table[key] = queues
        self._own.add(key)
        self._pairs.add(topic, group)
        return queues

    def _check_room(self, number: int) -> None:
        if self._count + number > self.most:
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"{self._count} offsets are kept, and {self.most} is the most (maxOffsetEntries): "
                "delete groups that are gone, or raise the limit",
            )

    def _reset_of(self, group: str, topic: str, queue_id: int) -> _Reset | None:
        if not self._resets:  # as for nearly every pull and commit
            return None
        return self._resets.get(topic + SEPARATOR + group, {}).get(queue_id)

    def _forget(self, topic: str, group: str) -> None:
        key = topic + SEPARATOR + group
        queues = self.table.pop(key, None)
        if queues is not None:
            self._count -= len(queues)
            self._own.discard(key)
            self.changed = True
        self._pulled_count -= len(self._pulled.pop(key, ()))
        self._resets.pop(key, None)
        self._pairs.remove(topic, group)
