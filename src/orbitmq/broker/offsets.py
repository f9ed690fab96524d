"""How far each group has consumed each queue. Follows ConsumerOffsetManager."""

from __future__ import annotations

import logging

log = logging.getLogger("orbitmq.broker")

SEPARATOR = "@"
"""Stands between topic and group in a key of ``consumerOffset.json``."""


class ConsumerOffsets:
    """Committed offsets by ``topic@group`` and queue id; ``changed``: they are not saved yet."""

    def __init__(self, table: dict[str, dict[int, int]] | None = None) -> None:
        self.table = table if table is not None else {}
        self.changed = False

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

    def query(self, group: str, topic: str, queue_id: int) -> int | None:
        """The committed offset; None when there is none, or only a negative one, which is none."""
        offset = self.table.get(topic + SEPARATOR + group, {}).get(queue_id, -1)
        return offset if offset >= 0 else None

    def of_group(self, group: str, topic: str) -> dict[int, int]:
        """What ``group`` has committed in ``topic``, by queue id."""
        return dict(self.table.get(topic + SEPARATOR + group, {}))

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
        for group in self.groups(topic):
            del self.table[topic + SEPARATOR + group]
            self.changed = True

    def forget_group(self, group: str) -> None:
        """Drop what a group that is gone has committed."""
        for topic in self.topics(group):
            del self.table[topic + SEPARATOR + group]
            self.changed = True
