"""How far each group has consumed each queue. Follows ConsumerOffsetManager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from orbitmq import codes
from orbitmq.errors import BrokerError

log = logging.getLogger("orbitmq.broker")

SEPARATOR = "@"
"""Stands between topic and group in a key of ``consumerOffset.json``."""

MAX_OFFSET = (1 << 63) - 1
"""The greatest offset there is (Java's Long.MAX_VALUE)."""

_Place: TypeAlias = tuple[str, str, int]
"""A topic, a group and a queue id."""


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
        self._pulled: dict[_Place, int] = {}
        self._resets: dict[_Place, _Reset] = {}

    def load(self, table: dict[str, dict[int, int]]) -> None:
        """Take in what was saved, but no offsets that no queue can have."""
        for key, queues in table.items():
            self.table[key] = {number: at for number, at in queues.items() if is_offset(at)}
            if len(self.table[key]) < len(queues):
                dropped = {number: at for number, at in queues.items() if not is_offset(at)}
                log.warning("%s: these are no offsets, and dropped: %s", key, dropped)
        self._recount()

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset of the next message ``group`` is to consume from a queue.

        Raises BrokerError when there is no room for one more.
        """
        queues = self._queues(group, topic, queue_id)
        before = queues.get(queue_id)
        if before is not None and offset < before:
            log.warning(
                "group %s moved back in %s queue %d, from offset %d to %d",
                group, topic, queue_id, before, offset,
            )  # fmt: skip
        queues[queue_id] = offset
        self.changed = True

    def pulled(self, group: str, topic: str, queue_id: int, next_offset: int) -> None:
        """Note that ``group`` has pulled a queue up to ``next_offset``."""
        place = topic, group, queue_id
        if place in self._pulled or len(self._pulled) < self.most:
            self._pulled[place] = next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset as an operator wants it, whatever the consumers commit meanwhile.

        Raises BrokerError when there is no room for one more.
        """
        self._queues(group, topic, queue_id)[queue_id] = offset
        self._resets[topic, group, queue_id] = _Reset(offset)
        self.changed = True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending, so that what consumers commit is out of date."""
        return (topic, group, queue_id) in self._resets

    def told(self, group: str, topic: str, queue_id: int) -> None:
        """Note that a consumer of the group was told the offset, to begin there."""
        pending = self._resets.get((topic, group, queue_id))
        if pending is not None:
            self._resets[topic, group, queue_id] = _Reset(pending.offset, told=True)

    def take_reset(self, group: str, topic: str, queue_id: int, pulled: int) -> int | None:
        """Where an operator wants a consumer that pulls at ``pulled``; this ends the reset.

        None when no reset is pending, or the consumer was told, and is there.
        """
        if not self._resets:  # as for nearly every pull
            return None
        pending = self._resets.pop((topic, group, queue_id), None)
        if pending is None or (pending.told and pending.offset == pulled):
            return None
        return pending.offset

    def clone(self, source: str, group: str, topic: str) -> None:
        """Let ``group`` continue in a topic where ``source`` is; nothing if that is nowhere.

        Raises BrokerError when there is no room for its offsets.
        """
        queues = self.table.get(topic + SEPARATOR + source)
        if queues is not None:
            self._check_room(len(queues))
            self.table[topic + SEPARATOR + group] = dict(queues)
            self._recount()
            _drop(self._resets, lambda reset, its_group: (reset, its_group) == (topic, group))
            self.changed = True

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None when there is none, or only a negative one, which is none."""
        offset = self.table.get(topic + SEPARATOR + group, {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def pull_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """Up to where ``group`` has pulled since the broker started; None: it has not."""
        return self._pulled.get((topic, group, queue_id))

    def groups(self, topic: str) -> list[str]:
        """The groups that have committed in ``topic``."""
        pairs = (key.split(SEPARATOR, 1) for key in self.table)
        return [group for committed, group in pairs if committed == topic]

    def topics(self, group: str) -> list[str]:
        """The topics ``group`` has committed in."""
        pairs = (key.split(SEPARATOR, 1) for key in self.table)
        return [topic for topic, committed in pairs if committed == group]

    def forget_topic(self, topic: str) -> None:
        """Drop what was committed in a topic that is gone."""
        self._forget(lambda committed, _group: committed == topic)

    def forget_group(self, group: str) -> None:
        """Drop what a group that is gone has committed."""
        self._forget(lambda _topic, committed: committed == group)

    def _queues(self, group: str, topic: str, queue_id: int) -> dict[int, int]:
        """A group's offsets in a topic, with room for ``queue_id``. Raises BrokerError."""
        key = topic + SEPARATOR + group
        queues = self.table.get(key)
        if queues is None or queue_id not in queues:
            self._check_room(1)
            queues = self.table.setdefault(key, {})
            self._count += 1
        return queues

    def _check_room(self, number: int) -> None:
        if self._count + number > self.most:
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"{self._count} offsets are kept, and {self.most} is the most (maxOffsetEntries): "
                "delete groups that are gone, or raise the limit",
            )

    def _recount(self) -> None:
        self._count = sum(map(len, self.table.values()))

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for key in [key for key in self.table if is_gone(*key.split(SEPARATOR, 1))]:
            del self.table[key]
            self.changed = True
        self._recount()
        _drop(self._pulled, is_gone)
        _drop(self._resets, is_gone)


def _drop(noted: dict[_Place, Any], is_gone: Callable[[str, str], bool]) -> None:
    for place in [place for place in noted if is_gone(*place[:2])]:
        del noted[place]
