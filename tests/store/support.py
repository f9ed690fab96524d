"""What the store's tests share: small stores, drafts, disks that fail, and looks at the files."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock
from typing import Final

from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import StoreError
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FileOps
from orbitmq.store.message_store import MessageStore
from orbitmq.store.pull import GetStatus
from orbitmq.wire.ids import tags_code
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Draft, RecordInfo, check_record, host_bytes, is_blank

HOST = host_bytes("127.0.0.1", 10911)
HOUR_MS = 3_600_000
TOPIC = "TopicTest"
LONG_SECONDS: Final = 30


def small(
    mapped_file_size: int = 4096,
    consume_queue_units: int = 10,
    queue_flush_interval_ms: int = HOUR_MS,
    max_message_size: int = 4096,
    *,
    cut_damaged_log: bool = False,
) -> StoreConfig:
    """Files of a few messages, and background threads that do nothing unless asked."""
    return StoreConfig(
        mapped_file_size=mapped_file_size,
        consume_queue_units=consume_queue_units,
        max_message_size=max_message_size,
        flush_interval_ms=HOUR_MS,
        queue_flush_interval_ms=queue_flush_interval_ms,
        cut_damaged_log=cut_damaged_log,
        max_hash_slot_num=16,
        max_index_num=64,
    )


class QuickOps(FileOps):
    """Leaves out the waiting for the disk, which no test but those of flushing looks at."""

    def fdatasync(self, fd: int) -> None:
        pass

    def fsync_directory(self, path: Path) -> None:
        pass


class FullDisk(QuickOps):
    """A disk with ``room`` for so many more bytes; None is enough for all."""

    def __init__(self) -> None:
        self.room: int | None = None
        self._lock = Lock()

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._lock:
            if self.room is None or not any(data):  # zeros over what is allocated need no room
                return super().pwrite(fd, data, position)
            if self.room == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written = super().pwrite(fd, memoryview(data)[: self.room], position)
            self.room -= written
            return written


class FailingFlush(FileOps):
    """A disk as Linux shows it: what fdatasync has not brought there is lost by a power cut.

    ``failures`` of the next fdatasyncs of the commit log are EIO. Each reports a failure once, and
    the pages it could not write look clean from then on: the next fdatasync leaves them out.
    """

    def __init__(self) -> None:
        self.failures = 0.0
        self.flushes = 0
        self._paths: dict[int, Path] = {}
        self._dirty: dict[Path, list[tuple[int, int]]] = {}
        self._durable: dict[Path, bytearray] = {}
        self._lock = Lock()

    def open(self, path: Path, flags: int) -> int:
        fd = super().open(path, flags)
        self._paths[fd] = path
        return fd

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._lock:
            written = super().pwrite(fd, data, position)
            self._dirty.setdefault(self._paths[fd], []).append((position, written))
            return written

    def ftruncate(self, fd: int, size: int) -> None:
        with self._lock:
            super().ftruncate(fd, size)
            self._durable[self._paths[fd]] = bytearray(size)

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            path = self._paths[fd]
            dirty = self._dirty.pop(path, [])
            if path.parent.name == "commitlog":
                self.flushes += 1
                if self.failures > 0:
                    self.failures -= 1
                    raise OSError(errno.EIO, os.strerror(errno.EIO))
            content = self._durable.setdefault(path, bytearray(path.stat().st_size))
            for position, length in dirty:
                content[position : position + length] = os.pread(fd, length, position)

    def fsync_directory(self, path: Path) -> None:
        pass

    def after_power_cut(self, source: Path, target: Path) -> Path:
        """The directory as it would be found if the power failed now."""
        with self._lock:
            after_crash(source, target)
            for path, content in self._durable.items():
                copy = target / path.relative_to(source) if path.is_relative_to(source) else None
                if copy is not None and copy.exists():  # one made since then is not there
                    copy.write_bytes(content)
        return target

    def lose_pages(self, path: Path, start: int, stop: int) -> None:
        """Have the kernel drop the pages of a part that it could not write: zeros are read."""
        with path.open("r+b") as file:
            file.seek(start)
            file.write(bytes(stop - start))


def draft(
    body: bytes,
    topic: str = TOPIC,
    queue_id: int = 0,
    tags: str | None = None,
    properties: dict[str, str] | None = None,
    sys_flag: int = 0,
) -> Draft:
    pairs = dict(properties or {})
    if tags is not None:
        pairs["TAGS"] = tags
    return Draft(
        topic, queue_id, body, encode_properties(pairs), tags_code(tags), 0, sys_flag, 1, HOST, HOST
    )


@contextmanager
def opened(
    directory: Path,
    config: StoreConfig | None = None,
    clock: Clock = SYSTEM_CLOCK,
    ops: FileOps | None = None,
) -> Iterator[MessageStore]:
    store = MessageStore.open(directory, config or small(), clock, ops or QuickOps())
    try:
        yield store
    finally:
        store.close()


def put(store: MessageStore, *bodies: bytes, topic: str = TOPIC, queue_id: int = 0) -> list[int]:
    """Store messages with one write; their physical offsets."""
    places = [store.append(draft(body, topic, queue_id)) for body in bodies]
    store.write()
    return [place.physical_offset for place in places]


def messages(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[MessageView]:
    """All messages of a queue, by pulls of three; checks that their offsets have no gap."""
    offset = store.min_offset(topic, queue_id)
    found: list[MessageView] = []
    while True:
        result = store.get_messages(topic, queue_id, offset, 3, 1 << 20)
        if result.status is not GetStatus.FOUND:
            break
        views = decode_records(b"".join(result.slices))
        assert [view.queue_offset for view in views] == list(range(offset, offset + len(views)))
        assert result.count == len(views)
        assert result.next_begin_offset == offset + len(views)
        found += views
        offset = result.next_begin_offset
    assert offset == store.max_offset(topic, queue_id)
    return found


def bodies(store: MessageStore, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    return [view.body for view in messages(store, topic, queue_id)]


def after_crash(source: Path, target: Path) -> Path:
    """The directory as it would be found if the process using it were killed now."""

    def copy(file: str, to: str) -> None:
        with suppress(FileNotFoundError):  # replaced or removed meanwhile
            shutil.copy2(file, to)

    return Path(shutil.copytree(source, target, copy_function=copy))


def after_kill(store: MessageStore, target: Path) -> Path:
    """As after_crash, of an open store, while its background thread removes no files."""
    with store._queue_flusher._one_at_a_time:
        return after_crash(store.directory, target)


def log_bytes(directory: Path) -> bytes:
    """The commit log's files, one after the other."""
    return b"".join(path.read_bytes() for path in sorted((directory / "commitlog").iterdir()))


def log_records(directory: Path, file_size: int = 4096) -> tuple[list[RecordInfo], int]:
    """Every record found by walking the files as Apache does, and where the walk ends.

    After that end there may be nothing but zeros.
    """
    data = log_bytes(directory)
    names = [int(path.name) for path in (directory / "commitlog").iterdir()]
    base = min(names, default=0)
    records: list[RecordInfo] = []
    position = 0
    while position < len(data):
        limit = position - position % file_size + file_size
        info = check_record(data, position, limit)
        if info is not None:
            assert info.physical_offset == base + position
            records.append(info)
            position += info.size
        elif is_blank(data, position, limit):
            assert int.from_bytes(data[position : position + 4], "big") == limit - position
            position = limit
        else:
            break
    assert not any(data[position:])
    return records, position


def queue_units(directory: Path, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
    """The entries in the files of a consume queue, without the zeros at the end."""
    path = directory / "consumequeue" / topic / str(queue_id)
    data = b"".join(file.read_bytes() for file in sorted(path.iterdir()))
    units = [data[start : start + 20] for start in range(0, len(data), 20)]
    while units and not any(units[-1]):
        units.pop()
    return units


class Answers:
    """Callbacks for request_flush, and what they were told."""

    def __init__(self) -> None:
        self.errors: list[StoreError | None] = []
        self._told = Event()

    def tell(self, error: StoreError | None) -> None:
        self.errors.append(error)
        self._told.set()

    def wait(self, count: int) -> list[StoreError | None]:
        while len(self.errors) < count:
            assert self._told.wait(LONG_SECONDS)
            self._told.clear()
        return self.errors


def flushed(store: MessageStore) -> StoreError | None:
    """Have the store flush now; what went wrong."""
    answers = Answers()
    store.request_flush(answers.tell)
    return answers.wait(1)[0]
