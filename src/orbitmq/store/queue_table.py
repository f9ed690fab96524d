"""All consume queues of a store, by topic and queue id."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Final

from orbitmq import descriptors
from orbitmq.errors import CorruptStoreError, IllegalNameError
from orbitmq.store.consume_queue import ConsumeQueue, offset_before
from orbitmq.store.file_ops import FileOps
from orbitmq.store.open_files import OpenFiles

_MAX_NAME_BYTES: Final = 255
_BEYOND_ALL: Final = 2**63 - 1


class QueueTable:
    """The queues under ``consumequeue/``, loaded from there at the start.

    ``lock`` guards the tails: whoever adds entries holds it. Files are written and removed by
    flush() and sync() alone, so that nobody else waits for the disk. ``damaged`` has the queues
    whose files are of a wrong length, or not all there, with what is wrong: they are not among
    ``queues``.
    """

    def __init__(self, ops: FileOps, directory: Path, file_units: int) -> None:
        self.lock: Final = Lock()
        self.queues: Final[dict[tuple[str, int], ConsumeQueue]] = {}
        self._ops = ops
        self.directory: Final = directory
        self._file_units = file_units
        self.damaged: Final[list[tuple[Path, CorruptStoreError]]] = []
        self._open_files = OpenFiles(descriptors.queue_files())
        self._ids: dict[str, list[int]] = {}  # of each topic's queues
        self._gone: set[Path] = set()  # directories of topics and queues, still to be removed
        for topic in _directories(directory):
            for queue in _directories(topic):
                if queue.name.isascii() and queue.name.isdigit():
                    try:
                        self.get_or_create(topic.name, int(queue.name))
                    except CorruptStoreError as damage:
                        self.damaged.append((queue, damage))

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        """The queue, or None when no message was ever put into it."""
        return self.queues.get((topic, queue_id))

    def get_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """The queue, made when it is new; its files come with its first entries.

        Raises IllegalNameError for a topic that cannot be the name of a directory.
        """
        queue = self.queues.get((topic, queue_id))
        if queue is None:
            _check_name(topic, queue_id)
            directory = self.directory / topic / str(queue_id)
            queue = ConsumeQueue(
                self._ops,
                directory,
                topic,
                queue_id,
                self._file_units,
                self.lock,
                self._open_files,
                begins_anew=self._is_going(directory),
            )
            self.queues[topic, queue_id] = queue
            self._ids.setdefault(topic, []).append(queue_id)
        return queue

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        """The queues of ``topic``."""
        return [self.queues[topic, queue_id] for queue_id in self._ids.get(topic, ())]

    def all(self) -> list[ConsumeQueue]:
        """The queues there are now; may be called from any thread."""
        return list(self.queues.values())

    def topics(self) -> dict[str, list[int]]:
        """The queue ids of each topic that has queues, both sorted."""
        topics: dict[str, list[int]] = {}
        for topic, queue_id in sorted(self.queues):
            topics.setdefault(topic, []).append(queue_id)
        return topics

    def totals(self) -> tuple[int, int]:
        """How many queues have entries, and the sum of all ``max_offset``: see Mark."""
        offsets = [queue.max_offset for queue in self.all() if queue.max_offset]
        return len(offsets), sum(offsets) & _BEYOND_ALL

    def flush(self) -> None:
        """Remove the files of what is gone, then write all tails to files.

        Raises the first OSError, after trying every queue.
        """
        failure = self._remove_files()
        for queue in self.all():
            if not queue.removed and not self._is_going(queue.directory):
                try:
                    queue.flush()
                except OSError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    def sync(self) -> None:
        """Bring what flush wrote to the disk. Raises OSError."""
        for queue in self.all():
            if not queue.removed:
                queue.sync()

    def remove_topic(self, topic: str) -> bool:
        """Forget a topic's queues; whether there were any. The next flush removes their files."""
        removed = self.of_topic(topic)
        if removed:
            self._gone.add(self.directory / topic)  # before a queue of that name is made anew
        for queue in removed:
            self._forget(queue)
        return bool(removed)

    def remove_expired(self, log_min: int, is_kept: Callable[[str], bool]) -> int:
        """Forget the queues whose messages are all gone, unless their topic is kept; how many.

        The next flush removes their files. A queue that never had a message is kept too
        (ConsumeQueueStore.cleanExpired).
        """
        removed = 0
        for queue in self.all():
            if is_kept(queue.topic) or queue.next_offset > queue.max_offset:
                continue
            last = queue.unit(queue.max_offset - 1)
            if last is not None and last.physical_offset < log_min:
                self._gone.add(queue.directory)
                self._forget(queue)
                removed += 1
        return removed

    def _forget(self, queue: ConsumeQueue) -> None:
        queue.removed = True
        queue.close_files()
        del self.queues[queue.topic, queue.queue_id]
        ids = self._ids[queue.topic]
        ids.remove(queue.queue_id)
        if not ids:
            del self._ids[queue.topic]

    def _is_going(self, directory: Path) -> bool:
        gone = self._gone
        return bool(gone) and (directory in gone or directory.parent in gone)

    def close(self) -> None:
        """Give the files back."""
        self._open_files.close_all()

    def _remove_files(self) -> OSError | None:
        """Delete the directories of what is gone; the first error of one that stays.

        Such queues made anew are not written until that is done. Whoever makes them while it is
        done may still find the topic among those gone, and starts without files.
        """
        failure = None
        for directory in list(self._gone):
            try:
                shutil.rmtree(directory)
            except FileNotFoundError:
                pass  # nothing of it was written
            except OSError as error:
                failure = failure or error
                continue
            self._gone.discard(directory)
        return failure

    # Recovery: alone, before the threads start.

    def file_sizes(self) -> set[int]:
        """The sizes of all queue files there are, damaged or not."""
        files = self.directory.glob("*/*/*")
        return {
            path.stat().st_size for path in files if path.name.isascii() and path.name.isdigit()
        }

    def delete_damaged(self, log_min: int) -> dict[tuple[str, int], int]:
        """Delete the files of the damaged queues. Raises OSError.

        Where their messages before ``log_min`` end: those are not in the log any more.
        """
        reached = {}
        while self.damaged:
            directory, _ = self.damaged[-1]
            offset = offset_before(log_min, directory, self._file_units)
            reached[directory.parent.name, int(directory.name)] = offset
            shutil.rmtree(directory)
            self.damaged.pop()
        return reached

    def max_offsets(self) -> dict[tuple[str, int], int]:
        """The offset each queue reaches in its files."""
        self.cut(_BEYOND_ALL)
        return {key: queue.max_offset for key, queue in self.queues.items()}

    def fill_to(self, offsets: dict[tuple[str, int], int], log_end: int) -> None:
        """Let queues reach these offsets, with filler for what the log, up to its end, has not."""
        for (topic, queue_id), offset in offsets.items():
            self.get_or_create(topic, queue_id).fill_to(offset, log_end)

    def cut(self, physical_offset: int) -> None:
        """Keep the entries of records before ``physical_offset`` only."""
        for queue in self.queues.values():
            queue.cut(physical_offset)

    def finish_recovery(self, log_min: int) -> None:
        """Set the offsets that follow from the entries."""
        for queue in self.queues.values():
            queue.correct_min_offset(log_min)
            queue.next_offset = queue.max_offset


def _directories(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir())


def _check_name(topic: str, queue_id: int) -> None:
    size = len(topic.encode("utf-8", "surrogatepass"))
    if topic in {"", ".", ".."} or "/" in topic or "\0" in topic or size > _MAX_NAME_BYTES:
        raise IllegalNameError(
            f"topic {topic!r} cannot be a directory: 1 to {_MAX_NAME_BYTES} bytes without '/' can, "
            "other than '.' and '..'"
        )
    if queue_id < 0:
        raise IllegalNameError(f"queue {queue_id} of {topic}: ids begin at 0")
