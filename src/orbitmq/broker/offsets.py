"""How far each group has consumed each queue. Follows ConsumerOffsetManager."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("orbitmq.broker")

SEPARATOR = "@"
"""Stands between topic and group in a key of ``consumerOffset.json``."""


class ConsumerOffsets:
    """Committed offsets by ``topic@group`` and queue id; ``changed``: they are not saved yet.

    An operator's reset is committed at once, and pending until a consumer next pulls the queue and
    is sent to the new offset; till then no consumer's commit undoes it. A consumer that asks for
    its offset meanwhile begins there, and need not be sent. Pending resets and pull offsets are
    only in memory.
    """

    def __init__(self, table: dict[str, dict[int, int]] | None = None) -> None:
        self.table = table if table is not None else {}
        self.changed = False
        self._pulled: dict[str, dict[int, int]] = {}
        self._resets: dict[str, dict[int, int]] = {}
        self._told: set[tuple[str, int]] = set()

    def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set the offset of the next message ``group`` is to consume from a queue."""
        queues = self.table.setdefault(topic + SEPARATOR + group, {})
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
        self._pulled.setdefault(topic + SEPARATOR + group, {})[queue_id] = next_offset

    def reset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Set an offset as an operator wants it, whatever the consumers commit meanwhile."""
        key = topic + SEPARATOR + group
        self._resets.setdefault(key, {})[queue_id] = offset
        self._told.discard((key, queue_id))
        self.table.setdefault(key, {})[queue_id] = offset
        self.changed = True

    def is_reset(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether a reset is pending, so that what consumers commit is out of date."""
        return queue_id in self._resets.get(topic + SEPARATOR + group, ())

    def told(self, group: str, topic: str, queue_id: int) -> None:
        """Note that a consumer of the group was told the offset, to begin there."""
        if self.is_reset(group, topic, queue_id):
            self._told.add((topic + SEPARATOR + group, queue_id))

    def take_reset(self, group: str, topic: str, queue_id: int, pulled: int) -> int | None:
        """Where an operator wants a consumer that pulls at ``pulled``; this ends the reset.

        None when no reset is pending, or the consumer was told, and is there.
        """
        if not self._resets:  # as for nearly every pull
            return None
        key = topic + SEPARATOR + group
        offset = self._resets.get(key, {}).pop(queue_id, None)
        if offset is None:
            return None
        is_told = (key, queue_id) in self._told
        self._told.discard((key, queue_id))
        if not self._resets[key]:
            del self._resets[key]
        return None if is_told and offset == pulled else offset

    def clone(self, source: str, group: str, topic: str) -> None:
        """Let ``group`` continue in a topic where ``source`` is; nothing if that is nowhere."""
        queues = self.table.get(topic + SEPARATOR + source)
        if queues is not None:
            key = topic + SEPARATOR + group
            self.table[key] = dict(queues)
            self._resets.pop(key, None)
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

    def _forget(self, is_gone: Callable[[str, str], bool]) -> None:
        for table in (self.table, self._pulled, self._resets):
            for key in [key for key in table if is_gone(*key.split(SEPARATOR, 1))]:
                del table[key]
                self.changed = True
