"""Messages that the key index does not have yet, found by their topic's queues instead.

The index may be behind by all that other topics got meanwhile. Of a topic that gets few messages
those that are not in it are few, and looked through faster than the index can be waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.index_keys import message_hashes
from orbitmq.store.key_index import KeyIndex, KeyMatches
from orbitmq.store.queue_table import QueueTable
from orbitmq.wire.record import check_record

MOST: Final = 4096
"""How many messages are looked through at most, and how many queues."""
_REMEMBERED: Final = 4 * MOST
_STEP: Final = 64


class Unindexed:
    """Looks behind the end of ``index``; on the thread that writes, like the store's methods."""

    def __init__(self, index: KeyIndex, log: CommitLog, table: QueueTable) -> None:
        self._index = index
        self._log = log
        self._table = table
        self._known: dict[int, tuple[int, list[int]]] = {}

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
            known = self._known.get(offset) or self._look_at(topic, offset)
            if known is None:
                continue
            timestamp, hashes = known
            last = max(last, (offset, timestamp))
            if begin <= timestamp <= end and wanted in hashes:
                found.append(offset)
        return KeyMatches(sorted(found), last[1], last[0])

    def _look_at(self, topic: str, offset: int) -> tuple[int, list[int]] | None:
        """When a message was stored, and the hashes of its keys; kept for the next look-up."""
        record = self._log.record_at(offset)
        info = None if record is None else check_record(record, 0, len(record), verify_crc=False)
        if info is None:
            return None
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        found = info.store_timestamp, message_hashes(topic, info.properties)
        self._known[offset] = found
        return found


def _behind(position: int, queues: Sequence[ConsumeQueue]) -> list[int] | None:
    """The physical offsets of what is at ``position`` or behind it; None for more than MOST."""
    if len(queues) > MOST:
        return None
    found: list[int] = []
    for queue in queues:
        stop, step = queue.max_offset, _STEP
        while stop > queue.min_offset:
            start = max(queue.min_offset, stop - step)
            offsets = _offsets(queue, start, stop)
            if offsets is None:
                return None
            found += [offset for offset in offsets if offset >= position]
            if len(found) > MOST:
                return None
            if offsets[0] < position:
                break
            stop, step = start, step * 2
    return found


def _offsets(queue: ConsumeQueue, start: int, stop: int) -> list[int] | None:
    """Where the messages of a part of a queue are in the log; None where they cannot be read."""
    found: list[int] = []
    while start + len(found) < stop:  # a read ends with its file
        data = queue.read(start + len(found), stop - start - len(found))
        if not data:
            return None
        found += [offset for offset, _, _ in UNIT.iter_unpack(data)]
    return found
