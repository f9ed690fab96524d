"""Messages that the key index does not have yet, found by their topic's queues instead.

The index may be behind by all that other topics got meanwhile. Of a topic that gets few messages
those that are not in it are few, and looked through faster than the index can be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.index_keys import message_hashes
from orbitmq.store.key_index import KeyIndex, KeyMatches
from orbitmq.store.queue_table import QueueTable
from orbitmq.wire.record import check_record

MOST: Final = 256
"""How many messages are looked through at most, and how many queues."""


class Unindexed:
    """Looks behind the end of ``index``; on the thread that writes, like the store's methods."""

    def __init__(self, index: KeyIndex, log: CommitLog, table: QueueTable) -> None:
        self._index = index
        self._log = log
        self._table = table

    def find(self, topic: str, wanted: int, begin: int, end: int) -> KeyMatches | None:
        """All messages of ``topic`` that are not in the index and have the hash ``wanted``.

        Those stored from ``begin`` to ``end``, ms. None where there may be more than MOST to look
        through: the index is to be waited for then.
        """
        if not self._index.has_what_was_there:
            return None
        offsets = _behind(self._index.position, self._table.of_topic(topic))
        if offsets is None:
            return None
        found, last = [], (0, 0)
        for offset in offsets:
            record = self._log.record_at(offset)
            info = None
            if record is not None:
                info = check_record(record, 0, len(record), verify_crc=False)
            if info is None:
                continue
            last = max(last, (offset, info.store_timestamp))
            is_in_time = begin <= info.store_timestamp <= end
            if is_in_time and wanted in message_hashes(topic, info.properties):
                found.append(offset)
        return KeyMatches(sorted(found), last[1], last[0])


def _behind(position: int, queues: Sequence[ConsumeQueue]) -> list[int] | None:
    """The physical offsets of what is at ``position`` or behind it; None for more than MOST."""
    if len(queues) > MOST:
        return None
    found: list[int] = []
    for queue in queues:
        end = queue.max_offset
        far = queue.unit(end - 1 - MOST) if end - queue.min_offset > MOST else None
        if far is not None and far.physical_offset >= position:
            return None
        for offset in range(end - 1, queue.min_offset - 1, -1):
            unit = queue.unit(offset)
            if unit is None:
                return None
            if unit.physical_offset < position:
                break
            if len(found) == MOST:
                return None
            found.append(unit.physical_offset)
    return found
