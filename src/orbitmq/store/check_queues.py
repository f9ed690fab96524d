"""Holding the consume queues against the log: each record has its entry, each entry its record."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT, UNIT_SIZE
from orbitmq.store.findings import Findings, Problem
from orbitmq.store.open_files import OpenFiles
from orbitmq.store.segment import segment_name
from orbitmq.wire.record import TRANSACTION_PREPARED, RecordInfo

_OPEN_FILES: Final = 64
_PIECE: Final = 50_000


class _Queue:
    """What is known of a queue: its files, and what the log has for it.

    ``missing`` are the queue offsets of records without an entry: first, last and how many.
    """

    def __init__(self, directory: Path, units: int) -> None:
        self.directory = directory
        self.units = units
        self.highest = -1
        self.matched = 0
        self.missing = (0, 0, 0)
        paths = directory.iterdir() if directory.is_dir() else ()
        names = [path.name for path in paths if path.name.isascii() and path.name.isdigit()]
        self.bases = sorted(int(name) // UNIT_SIZE for name in names)

    def path(self, offset: int) -> Path:
        base = offset - offset % self.units
        return self.directory / segment_name(base * UNIT_SIZE)


class QueueCheck:
    """The queues under ``directory``, with files of ``units`` entries.

    ``topics`` are those that there are by the settings. One that was deleted, and maybe made anew,
    has records in the log without an entry: those before its queue began at 0 again are no problem.
    """

    def __init__(
        self, directory: Path, units: int, topics: frozenset[str], findings: Findings
    ) -> None:
        self._directory = directory
        self._topics = topics
        self._units = units
        self._findings = findings
        self._queues: dict[tuple[str, int], _Queue] = {}
        self._deleted = 0
        self._files = OpenFiles(_OPEN_FILES)
        if directory.is_dir():
            for path in sorted(directory.glob("*/*")):
                if path.is_dir() and path.name.isascii() and path.name.isdigit():
                    self._add(path.parent.name, int(path.name))

    def _add(self, topic: str, queue_id: int) -> _Queue:
        queue = _Queue(self._directory / topic / str(queue_id), self._units)
        self._queues[topic, queue_id] = queue
        for base in queue.bases:
            path = queue.path(base)
            size = path.stat().st_size if path.exists() else 0
            if size != self._units * UNIT_SIZE:
                what = f"the file has {size} bytes, others {self._units * UNIT_SIZE}"
                self._problem(topic, queue_id, base, what)
        return queue

    def see(self, info: RecordInfo) -> None:
        """Take the next record of the log."""
        if info.sys_flag & TRANSACTION_PREPARED:
            return
        key = (info.topic, info.queue_id)
        queue = self._queues.get(key)
        if queue is None:
            if info.topic not in self._topics:
                self._deleted += 1
                return
            queue = self._add(*key)
        offset = info.queue_offset
        if offset <= queue.highest:  # the topic was deleted and made anew
            self._deleted += queue.matched + queue.missing[2]
            queue.matched, queue.missing = 0, (0, 0, 0)
        queue.highest = offset
        place, size, code = self._unit(queue, offset)
        if place == info.physical_offset and size == info.size:
            queue.matched += 1
            if code != info.tags_code and info.topic != SCHEDULE_TOPIC:
                what = f"the entry has tags code {code}, its message {info.tags_code}"
                self._problem(*key, offset, what)
        elif not size or size == FILLER_SIZE:
            first, _, count = queue.missing
            queue.missing = (first if count else offset, offset, count + 1)
        elif place < info.physical_offset:
            what = f"the entry points at {place}, its message is at {info.physical_offset}"
            self._problem(*key, offset, what)
        else:
            self._deleted += 1

    def _unit(self, queue: _Queue, offset: int) -> tuple[int, int, int]:
        path = queue.path(offset)
        try:
            data = self._files.read(path, UNIT_SIZE, offset % self._units * UNIT_SIZE)
        except FileNotFoundError:
            return 0, 0, 0
        return UNIT.unpack(data) if len(data) == UNIT_SIZE else (0, 0, 0)

    def finish(self, log_min: int) -> None:
        """Look at what the log did not lead to."""
        for (topic, queue_id), queue in self._queues.items():
            first, last, count = queue.missing
            if count:
                what = f"{count} message(s) of the log up to offset {last} have no entry here"
                self._problem(topic, queue_id, first, what)
            self._check_entries(topic, queue_id, queue, log_min)
        if self._deleted:
            self._findings.note(f"{self._deleted} messages are of topics that were deleted")

    def _check_entries(self, topic: str, queue_id: int, queue: _Queue, log_min: int) -> None:
        """No entry of a message in the log's range may be there that the log did not lead to."""
        live = 0
        highest = -1
        for base in queue.bases:
            for start in range(0, self._units, _PIECE):
                length = min(_PIECE, self._units - start) * UNIT_SIZE
                data = self._files.read(queue.path(base), length, start * UNIT_SIZE)
                whole = len(data) - len(data) % UNIT_SIZE
                for number, unit in enumerate(UNIT.iter_unpack(data[:whole])):
                    place, size, _ = unit
                    if size > 0 and size != FILLER_SIZE and place >= log_min:
                        live += 1
                        highest = base + start + number
        if live > queue.matched and highest >= 0:
            what = f"{live - queue.matched} entries up to this point at no message of this queue"
            self._problem(topic, queue_id, highest, what)

    def _problem(self, topic: str, queue_id: int, offset: int, what: str) -> None:
        path = self._directory / topic / str(queue_id)
        self._findings.add(Problem("queue", path, offset, what, topic=topic, queue_id=queue_id))

    def close(self) -> None:
        """Give the files back."""
        self._files.close_all()
