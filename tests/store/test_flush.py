"""Flushing: group commit, what a failed one means, and the mark recovery begins at."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Event, Thread

import pytest

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_ops import FILE_OPS, FileOps
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from tests.store.support import (
    LONG_SECONDS,
    TOPIC,
    Answers,
    FailingFlush,
    QuickOps,
    after_crash,
    bodies,
    flushed,
    opened,
    put,
    queue_units,
    small,
)


class SlowDisk(FileOps):
    """Counts fdatasyncs, and lets each one go on only when told so."""

    def __init__(self) -> None:
        self.begun = 0
        self.has_begun = Event()
        self.may_end = Event()

    def fdatasync(self, fd: int) -> None:
        self.begun += 1
        self.has_begun.set()
        assert self.may_end.wait(LONG_SECONDS)
        super().fdatasync(fd)


def test_one_flush_answers_all_who_wait(tmp_path: Path) -> None:
    disk = SlowDisk()
    first, others = Answers(), Answers()
    with opened(tmp_path, small(mapped_file_size=1 << 16), ops=disk) as store:
        put(store, b"first")
        store.request_flush(first.tell)
        assert disk.has_begun.wait(LONG_SECONDS)
        for n in range(50):
            put(store, b"%d" % n)
            store.request_flush(others.tell)
        assert first.errors == []
        disk.may_end.set()
        assert first.wait(1) == [None]
        assert others.wait(50) == [None] * 50
        assert disk.begun == 2
        assert store.flushed_physical_offset == store.max_physical_offset


def test_a_request_with_nothing_to_flush_is_answered(tmp_path: Path) -> None:
    answers = Answers()
    with opened(tmp_path) as store:
        store.request_flush(answers.tell)
        assert answers.wait(1) == [None]


def test_the_background_flushes_unasked(tmp_path: Path) -> None:
    flushed = Event()

    class Telling(QuickOps):
        def fdatasync(self, fd: int) -> None:
            flushed.set()

    config = StoreConfig(mapped_file_size=4096, flush_interval_ms=1)
    with opened(tmp_path, config, ops=Telling()) as store:
        put(store, b"x")
        assert flushed.wait(LONG_SECONDS)


def test_a_large_arrear_is_brought_to_the_disk_piece_by_piece(tmp_path: Path) -> None:
    disk = FailingFlush()
    config = small(mapped_file_size=4 << 20, max_message_size=4 << 20)
    live = tmp_path / "live"
    with opened(live, config, ops=disk) as store:
        disk.failures = 1
        for n in range(7):
            put(store, bytes([65 + n]) * 900_000)
        put(store, b"Z" * 3_000_000)
        assert flushed(store) is not None
        disk.failures = 1
        disk.flushes = 0
        assert flushed(store) is not None
        assert disk.flushes == 1  # it gives up at the first piece, and costs no more than that
        assert flushed(store) is None
        assert 4 <= disk.flushes - 1 <= 8
        cut = disk.after_power_cut(live, tmp_path / "cut")
    with opened(cut, config) as store:
        assert [body[:1] for body in bodies(store)] == [
            b"A",
            b"B",
            b"C",
            b"D",
            b"E",
            b"F",
            b"G",
            b"Z",
        ]


def test_a_failing_callback_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: StoreError | None) -> None:
        raise ValueError("callback")

    answers = Answers()
    with opened(tmp_path) as store:
        store.request_flush(fail)
        store.request_flush(answers.tell)
        assert answers.wait(1) == [None]
    assert "a callback of request_flush failed" in caplog.text


def test_who_waits_at_the_close_is_answered(tmp_path: Path) -> None:
    answers = Answers()
    store = MessageStore.open(tmp_path, small(), ops=QuickOps())
    put(store, b"x")
    store.request_flush(answers.tell)
    store.close()
    assert answers.errors == [None]
    store.request_flush(answers.tell)
    assert isinstance(answers.errors[1], StoreError)


def test_queues_and_mark_reach_the_disk_in_the_background(tmp_path: Path) -> None:
    marked = Event()

    class Telling(QuickOps):
        def open(self, path: Path, flags: int) -> int:
            if path.name == "checkpoint":
                marked.set()
            return super().open(path, flags)

    config = StoreConfig(
        mapped_file_size=4096, consume_queue_units=10, queue_flush_interval_ms=1, mark_bytes=1
    )
    with opened(tmp_path, config, ops=Telling()) as store:
        put(store, *[b"x"] * 25)
        assert marked.wait(LONG_SECONDS)
        assert len(list((tmp_path / "consumequeue" / TOPIC / "0").iterdir())) == 3
        assert len(bodies(store)) == 25


def test_a_topic_is_deleted_while_the_disk_is_busy(tmp_path: Path) -> None:
    disk = SlowDisk()
    with opened(tmp_path, ops=disk) as store:
        put(store, *[b"old"] * 12)
        flushing = Thread(target=store._queue_flusher.flush, kwargs={"renew_mark": True})
        flushing.start()
        assert disk.has_begun.wait(LONG_SECONDS)
        assert store.delete_topic(TOPIC)
        put(store, b"new")
        assert bodies(store) == [b"new"]
        assert flushing.is_alive()
        disk.may_end.set()
        flushing.join()
    with opened(tmp_path) as store:
        assert bodies(store) == [b"new"]
    assert len(list((tmp_path / "consumequeue" / TOPIC / "0").iterdir())) == 1


def test_a_topic_made_anew_while_a_flush_runs_is_written_after_its_old_files_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"old"] * 12)
        store._queue_flusher.flush(renew_mark=True)
        remove_files = store._table._remove_files

        def removed_too_late() -> OSError | None:
            failure = remove_files()
            monkeypatch.undo()
            store._table.remove_topic(TOPIC)
            put(store, b"new")
            return failure

        monkeypatch.setattr(store._table, "_remove_files", removed_too_late)
        for _ in range(2):
            store._queue_flusher.flush(renew_mark=False)
            assert bodies(store) == [b"new"]
        assert len(queue_units(tmp_path)) == 1


def test_files_that_cannot_be_removed_are_no_part_of_the_topic_made_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with opened(tmp_path) as store:
        put(store, *[b"old"] * 12)
        store._queue_flusher.flush(renew_mark=True)
        old = queue_units(tmp_path)
        with monkeypatch.context() as patched:
            patched.setattr("orbitmq.store.queue_table.shutil.rmtree", refuse)
            store.delete_topic(TOPIC)
            put(store, b"new")
            wait_until(lambda: "cannot be flushed" in caplog.text, "the complaint")
            with pytest.raises(OSError, match="Permission denied"):
                store._queue_flusher.flush(renew_mark=False)
            assert queue_units(tmp_path) == old
            assert bodies(store) == [b"new"]
    with opened(tmp_path) as store:
        assert bodies(store) == [b"new"]


def test_after_a_crash_all_that_was_read_is_flushed(tmp_path: Path) -> None:
    """The mark may not pass over what a killed process left in the page cache only."""
    synced: list[str] = []

    class Recording(QuickOps):
        def open(self, path: Path, flags: int) -> int:
            fd = super().open(path, flags)
            self.names[fd] = path.name
            return fd

        def __init__(self) -> None:
            self.names: dict[int, str] = {}

        def fdatasync(self, fd: int) -> None:
            synced.append(self.names[fd])

    with opened(tmp_path / "live") as store:
        put(store, b"x")
        store._queue_flusher.flush(renew_mark=True)
        put(store, *[b"x" * 900] * 10)
        crash = after_crash(tmp_path / "live", tmp_path / "crash")
    with opened(crash, ops=Recording()) as store:
        assert store.flushed_physical_offset < 4096
        store._queue_flusher.flush(renew_mark=True)
        assert store.flushed_physical_offset == store.max_physical_offset > 8192
        logs = [path.name for path in sorted((crash / "commitlog").iterdir())]
        assert [name for name in synced if name in logs[1:]] == logs[1:]


def test_the_mark_is_written_after_queues_and_log(tmp_path: Path) -> None:
    steps: list[str] = []

    class Recording(QuickOps):
        def __init__(self) -> None:
            self.names: dict[int, str] = {}

        def open(self, path: Path, flags: int) -> int:
            fd = super().open(path, flags)
            self.names[fd] = path.parent.parent.name if path.name.isdigit() else path.name
            return fd

        def fdatasync(self, fd: int) -> None:
            steps.append(self.names[fd])

    with opened(tmp_path / "store", ops=Recording()) as store:
        put(store, b"x")
        store._queue_flusher.flush(renew_mark=True)
        assert steps == [TOPIC, "store", "checkpoint"]
        mark = Checkpoint(FILE_OPS, tmp_path / "store" / "checkpoint").mark
        assert mark is not None
        assert (mark.position, mark.last_record) == (store.max_physical_offset, 0)
        assert (mark.queues, mark.offsets) == (1, 1)


def test_flush_modes_have_the_names_of_broker_conf() -> None:
    assert FlushMode("SYNC_FLUSH") is FlushMode.SYNC
    assert StoreConfig().flush_mode is FlushMode("ASYNC_FLUSH")
