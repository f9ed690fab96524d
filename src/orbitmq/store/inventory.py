"""What is in a store directory: topics, messages, bytes, times, and how full the index is."""

from __future__ import annotations

from pathlib import Path

import msgspec

from orbitmq.store.check import Layout
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.index_file import IndexFile
from orbitmq.store.index_recovery import index_paths
from orbitmq.store.log_records import records
from orbitmq.store.segment import data_ranges


class TopicContent(msgspec.Struct):
    """The messages of a topic that are in the log, by its queues' files; ``bytes`` of records."""

    topic: str
    queues: int = 0
    messages: int = 0
    bytes: int = 0


class IndexContent(msgspec.Struct):
    """An index file: entries there are, and fit; slots in use, and all; times in ms."""

    name: str
    entries: int
    room: int
    used_slots: int
    slots: int
    begin_timestamp: int
    end_timestamp: int


class Inventory(msgspec.Struct):
    """A store's content; times are those of the first and last message, ms, 0 for none."""

    log_files: int
    begin_offset: int
    begin_timestamp: int
    end_timestamp: int
    topics: list[TopicContent]
    index: list[IndexContent]


def take_inventory(root: Path, layout: Layout) -> Inventory:
    """Look at the files of the queues and the index, not at each message. Raises OSError."""
    log = CommitLog(FILE_OPS, root / "commitlog", layout.mapped_file_size)
    try:
        last = -1
        topics = []
        for directory in sorted((root / "consumequeue").glob("*")):
            content, newest = _topic(directory, log.min_offset)
            topics.append(content)
            last = max(last, newest)
        first = log.find(log.min_offset)
        begin = next(records(first, first.base), None) if first is not None else None
        return Inventory(
            len(log.segments),
            log.min_offset,
            begin.store_timestamp if begin is not None else 0,
            max(log.store_timestamp_at(last), 0) if last >= 0 else 0,
            topics,
            [_index(path, layout) for path in index_paths(root / "index")],
        )
    finally:
        log.close()


def _topic(directory: Path, log_min: int) -> tuple[TopicContent, int]:
    content = TopicContent(directory.name)
    newest = -1
    for queue in directory.iterdir():
        content.queues += 1
        for path in queue.glob("[0-9]*"):
            with path.open("rb") as file:
                for start, stop in data_ranges(file.fileno(), 0, path.stat().st_size):
                    file.seek(start - start % UNIT_SIZE)
                    data = file.read(stop - start)
                    data = data[: len(data) - len(data) % UNIT_SIZE]
                    for place, size, _ in UNIT.iter_unpack(data):
                        if size > 0 and size != FILLER_SIZE and place >= log_min:
                            content.messages += 1
                            content.bytes += size
                            newest = max(newest, place)
    return content, newest


def _index(path: Path, layout: Layout) -> IndexContent:
    file = IndexFile(FILE_OPS, path, layout.shape)
    header = file.header
    file.close()
    return IndexContent(
        path.name,
        header.index_count - 1,
        layout.shape.entries - 1,
        header.slot_count,
        layout.shape.slots,
        header.begin_timestamp,
        header.end_timestamp,
    )
