"""The store against a model: writes, full disks, closes, crashes, retention, deleted topics."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from orbitmq.errors import DiskFullError
from orbitmq.store.message_store import MessageStore
from orbitmq.store.pull import GetStatus
from orbitmq.wire.message_view import decode_records
from tests.store.support import HOUR_MS, FullDisk, after_kill, draft, log_records, messages, small

CONFIG = msgspec.structs.replace(
    small(mapped_file_size=1024, consume_queue_units=4),
    delete_when=";".join(map(str, range(24))),
    clean_interval_ms=HOUR_MS,
    delete_log_files_interval_ms=0,
    delete_queue_files_interval_ms=0,
    disk_max_used_ratio=100,
    disk_clean_forcibly_ratio=100,
    disk_warning_ratio=100,
)
DELETED = "Deleted"
QUEUES = st.sampled_from([("A", 0), ("A", 1), ("%RETRY%g", 0), (DELETED, 0)])


class StoreMachine(RuleBasedStateMachine):
    """Keeps what was acknowledged in ``stored`` and what waits for write() in ``staged``.

    Both with where each message is in the log.
    """

    @initialize()
    def start(self) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.directory = self.root / "0"
        self.generation = 0
        self.number = 0
        self.disk = FullDisk()
        self.stored: dict[tuple[str, int], list[tuple[bytes, int]]] = {}
        self.staged: list[tuple[tuple[str, int], tuple[bytes, int]]] = []
        self.places: list[int] = []  # of all records, those of deleted topics too
        self.store = MessageStore.open(self.directory, CONFIG, ops=self.disk)

    def teardown(self) -> None:
        self.store.close()
        self.acknowledge()
        log_min = min(
            (int(path.name) for path in (self.directory / "commitlog").iterdir()), default=0
        )
        records, _ = log_records(self.directory, 1024)
        assert [info.physical_offset for info in records] == [
            place for place in self.places if place >= log_min
        ]
        shutil.rmtree(self.root)

    @rule(queue=QUEUES, size=st.integers(0, 700))
    def append(self, queue: tuple[str, int], size: int) -> None:
        self.number += 1
        body = b"%d:" % self.number + b"x" * size
        topic, queue_id = queue
        place = self.store.append(draft(body, topic, queue_id, tags="T"))
        waiting = sum(1 for staged_queue, _ in self.staged if staged_queue == queue)
        assert place.queue_offset == len(self.stored.get(queue, [])) + waiting
        self.staged.append((queue, (body, place.physical_offset)))

    @rule()
    def write(self) -> None:
        self.store.write()
        self.acknowledge()

    def acknowledge(self) -> None:
        for queue, message in self.staged:
            self.stored.setdefault(queue, []).append(message)
            self.places.append(message[1])
        self.staged.clear()

    @rule(room=st.integers(0, 2000))
    def write_to_a_full_disk(self, room: int) -> None:
        self.disk.room = room
        try:
            self.store.write()
        except DiskFullError:
            self.staged.clear()
        else:
            self.acknowledge()
        finally:
            self.disk.room = None

    @rule(renew_mark=st.booleans())
    def flush_queues(self, renew_mark: bool) -> None:
        self.store._queue_flusher.flush(renew_mark=renew_mark)

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.acknowledge()
        self.store = MessageStore.open(self.directory, CONFIG, ops=self.disk)

    @rule(lose=st.sampled_from(["nothing", "consumequeue", "checkpoint", "both"]))
    def crash_and_open(self, lose: str) -> None:
        self.generation += 1
        copy = after_kill(self.store, self.root / str(self.generation))
        self.store.close()
        self.staged.clear()
        if lose in {"consumequeue", "both"}:
            shutil.rmtree(copy / "consumequeue")
        if lose in {"checkpoint", "both"}:
            (copy / "checkpoint").unlink(missing_ok=True)
        self.directory = copy
        self.store = MessageStore.open(copy, CONFIG, ops=self.disk)
        self.delete()  # as the broker does: the log has its messages still
        if lose in {"consumequeue", "both"}:
            for queue, stored in self.stored.items():
                if not self.live(queue):  # nothing tells any more that there was something
                    stored.clear()

    @precondition(lambda self: not self.staged)
    @rule()
    def delete_topic(self) -> None:
        self.delete()
        self.store._queue_flusher.flush(renew_mark=True)

    def delete(self) -> None:
        self.store.delete_topic(DELETED)
        self.stored.pop((DELETED, 0), None)

    @rule(count=st.integers(1, 4))
    def retain(self, count: int) -> None:
        """Let the oldest files be old."""
        old = time.time() - 100 * 3600
        for path in sorted((self.directory / "commitlog").iterdir())[:count]:
            os.utime(path, (old, old))
        self.store.cleaner.clean()

    def live(self, queue: tuple[str, int]) -> list[bytes]:
        """What the log still has of a queue."""
        log_min = self.store.min_physical_offset
        return [body for body, place in self.stored.get(queue, []) if place >= log_min]

    @rule(queue=QUEUES, offset=st.integers(0, 30), count=st.integers(1, 5))
    def pull(self, queue: tuple[str, int], offset: int, count: int) -> None:
        stored = [body for body, _ in self.stored.get(queue, [])]
        low = len(stored) - len(self.live(queue))
        result = self.store.get_messages(*queue, offset, count, 1 << 20)
        if offset >= len(stored):
            assert result.status is not GetStatus.FOUND
            return
        if offset < low:
            assert result.status is GetStatus.OFFSET_TOO_SMALL
            assert result.next_begin_offset == low
            return
        in_one_file = 4 - offset % 4
        expected = stored[offset : offset + min(count, in_one_file)]
        assert [view.body for view in decode_records(b"".join(result.slices))] == expected
        assert result.next_begin_offset == offset + len(expected)

    @invariant()
    def all_is_there(self) -> None:
        for (topic, queue_id), stored in self.stored.items():
            found = messages(self.store, topic, queue_id)
            assert [view.body for view in found] == self.live((topic, queue_id))
            assert self.store.max_offset(topic, queue_id) == len(stored)


def test_store_against_the_model() -> None:
    run_state_machine_as_test(
        StoreMachine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
