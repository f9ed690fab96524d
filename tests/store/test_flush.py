"""Flushing: group commit, what a failed one means, and the mark recovery begins at."""

from __future__ import annotations

import errno
import math
import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.file_ops import FILE_OPS, FileOps
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.record import encode_batch
from tests.store.support import (
    HOUR_MS,
    TOPIC,
    FailingFlush,
    QuickOps,
    after_crash,
    bodies,
    draft,
    opened,
    put,
    queue_units,
    small,
)

LONG_SECONDS: Final = 30


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


def flushed(store: MessageStore) -> StoreError | None:
    """Have the store flush now; what went wrong."""
    answers = Answers()
    store.request_flush(answers.tell)
    return answers.wait(1)[0]


def test_what_a_failed_flush_left_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The kernel takes the pages it could not write for clean: a later success proves nothing."""
    disk = FailingFlush()
    live = tmp_path / "live"
    with opened(live, ops=disk) as store:
        put(store, b"before")
        assert flushed(store) is None
        disk.failures = 1
        put(store, b"x" * 3000, b"y" * 3000)  # over the end of a file
        failure = flushed(store)
        assert "Input/output error" in str(failure)
        assert store.flush_failure is failure
        after_crash(live, tmp_path / "killed")
        put(store, b"later")
        assert flushed(store) is None
        assert store.flush_failure is None
        assert store.flushed_physical_offset == store.max_physical_offset
        expected = [b"before", b"x" * 3000, b"y" * 3000, b"later"]
        assert bodies(store) == expected
        cut = disk.after_power_cut(live, tmp_path / "cut")
    assert caplog.text.count("cannot flush the commit log") == 1
    assert caplog.text.count("the commit log is flushed again") == 1
    assert not (live / "unflushed").exists()
    for directory, count in ((cut, 4), (tmp_path / "killed", 3)):
        with opened(directory) as store:
            assert bodies(store) == expected[:count]


@pytest.mark.parametrize("failures", [1, 2, 3, 7])
def test_a_disk_that_fails_for_long_is_told_once_and_made_good(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, failures: int
) -> None:
    disk = FailingFlush()
    live = tmp_path / "live"
    with opened(live, ops=disk) as store:
        disk.failures = failures
        for n in range(failures):
            put(store, b"%d" % n * 900)
            assert flushed(store) is not None
            assert store.flushed_physical_offset == 0
        put(store, b"last")
        assert flushed(store) is None
        expected = [b"%d" % n * 900 for n in range(failures)] + [b"last"]
        assert bodies(store) == expected
        cut = disk.after_power_cut(live, tmp_path / "cut")
    assert len(caplog.messages) == 2
    with opened(cut) as store:
        assert bodies(store) == expected


STEPS = st.one_of(
    st.tuples(st.just("put"), st.integers(0, 900)),
    st.tuples(st.just("flush"), st.just(0)),
    st.tuples(st.just("fail"), st.integers(1, 3)),
    st.tuples(st.just("mark"), st.just(0)),
)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_whatever_fails_a_power_cut_takes_only_what_was_not_flushed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    directory = tmp_path_factory.mktemp("cut")
    disk = FailingFlush()
    sent: list[bytes] = []
    places: list[int] = []
    with opened(directory / "live", ops=disk) as store:

        def write(size: int) -> None:
            sent.append(b"%d:" % len(sent) + b"x" * size)
            places.extend(put(store, sent[-1]))

        def mark(_: int) -> None:
            with suppress(StoreError):
                store._queue_flusher.flush(renew_mark=True)

        def fail(count: int) -> None:
            disk.failures = count

        actions = {"put": write, "flush": lambda _: flushed(store), "fail": fail, "mark": mark}
        write(0)
        mark(0)
        for name, argument in steps:
            actions[name](argument)
        sure = sum(place < store.flushed_physical_offset for place in places)
        cut = disk.after_power_cut(directory / "live", directory / "cut")
        disk.failures = 0
    with opened(cut) as store:
        found = bodies(store)
    assert len(found) >= sure
    assert found == sent[: len(found)]
    shutil.rmtree(directory)


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


def test_the_next_process_makes_good_what_a_killed_one_left_in_doubt(tmp_path: Path) -> None:
    """The pages look clean to it, too, as long as the machine runs."""
    disk = FailingFlush()
    with opened(tmp_path / "live", ops=disk) as store:
        disk.failures = 1
        put(store, b"x")
        assert flushed(store) is not None
        killed = after_crash(tmp_path / "live", tmp_path / "killed")
    again = FailingFlush()
    with opened(killed, ops=again) as store:
        assert flushed(store) is None
        assert not (killed / "unflushed").exists()
        cut = again.after_power_cut(killed, tmp_path / "cut")
    with opened(cut) as store:
        assert bodies(store) == [b"x"]


def test_messages_are_refused_before_they_are_staged_when_too_much_waits(tmp_path: Path) -> None:
    disk = FailingFlush()
    config = StoreConfig(mapped_file_size=4096, flush_interval_ms=HOUR_MS, max_unflushed_bytes=500)
    with opened(tmp_path, config, ops=disk) as store:
        disk.failures = math.inf
        put(store, b"taken")
        assert flushed(store) is not None
        put(store, b"x" * 600)
        assert flushed(store) is not None
        with pytest.raises(StoreError, match=r"bytes wait already \(max_unflushed_bytes\)"):
            store.append(draft(b"refused"))
        assert store.staged == 0
        with pytest.raises(StoreError, match="bytes wait already"):
            store.append_batch(draft(b""), encode_batch([(0, b"refused", b"")]))
        disk.failures = 0
        assert flushed(store) is None
        put(store, b"taken again")
        assert bodies(store) == [b"taken", b"x" * 600, b"taken again"]


def test_what_belongs_together_is_taken_whole_when_the_disk_begins_to_fail(tmp_path: Path) -> None:
    disk = FailingFlush()
    config = StoreConfig(mapped_file_size=4096, flush_interval_ms=HOUR_MS, max_unflushed_bytes=0)
    with opened(tmp_path, config, ops=disk) as store:
        put(store, b"before")
        store.append(draft(b"first of a batch"))
        disk.failures = 1
        assert flushed(store) is not None
        store.append(draft(b"second of it"))
        store.write()
        with pytest.raises(StoreError, match="max_unflushed_bytes"):
            store.append(draft(b"refused"))
        assert flushed(store) is None
        assert len(bodies(store)) == 3


def test_bytes_the_kernel_dropped_are_not_passed_for_flushed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FailingFlush()
    store = MessageStore.open(tmp_path, small(), ops=disk)
    put(store, b"a")
    assert flushed(store) is None
    disk.failures = 1
    (place,) = put(store, b"b")
    assert flushed(store) is not None
    disk.lose_pages(tmp_path / "commitlog" / ("0" * 20), place, place + 40)
    for _ in range(2):
        assert f"lost the message at physical offset {place}" in str(flushed(store))
    with pytest.raises(StoreError, match="start the broker anew"):
        store.append(draft(b"c"))
    assert store.flushed_physical_offset == place
    assert caplog.text.count("lost the message") == 1
    with pytest.raises(StoreError, match="lost the message"):
        store.close()
    with opened(tmp_path) as again:
        assert bodies(again) == [b"a"]


def test_a_wipe_that_fails_to_flush_casts_doubt_on_the_messages_before_it(tmp_path: Path) -> None:
    """The kernel tells a failure once, and here not to the flusher."""

    class Refusing(FailingFlush):
        refusing = False

        def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
            if self.refusing and any(data):
                super().pwrite(fd, memoryview(data)[:50], position)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().pwrite(fd, data, position)

    disk = Refusing()
    live = tmp_path / "live"
    with opened(live, ops=disk) as store:
        put(store, b"written")
        disk.refusing, disk.failures = True, 1
        store.append(draft(b"refused"))
        with pytest.raises(StoreError):
            store.write()
        disk.refusing = False
        assert flushed(store) is None
        put(store, b"next")
        assert flushed(store) is None
        cut = disk.after_power_cut(live, tmp_path / "cut")
    with opened(cut) as store:
        assert bodies(store) == [b"written", b"next"]


def test_queue_entries_a_failed_flush_left_are_written_again(tmp_path: Path) -> None:
    class FailingQueues(FailingFlush):
        broken = False

        def fdatasync(self, fd: int) -> None:
            if self.broken and self._paths[fd].parent.name == "0":
                self._dirty.pop(self._paths[fd], None)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().fdatasync(fd)

    disk = FailingQueues()
    live = tmp_path / "live"
    with opened(live, ops=disk) as store:
        put(store, *[b"%d" % n for n in range(7)])
        disk.broken = True
        with pytest.raises(OSError, match="Input/output error"):
            store._queue_flusher.flush(renew_mark=True)
        disk.broken = False
        store._queue_flusher.flush(renew_mark=True)
        cut = disk.after_power_cut(live, tmp_path / "cut")
    assert len(queue_units(cut)) == 7


def test_a_close_whose_flush_fails_leaves_a_directory_to_recover(tmp_path: Path) -> None:
    disk = FailingFlush()
    store = MessageStore.open(tmp_path, small(), ops=disk)
    put(store, b"x")
    disk.failures = math.inf
    with pytest.raises(StoreError, match="Input/output error"):
        store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert bodies(again) == [b"x"]


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
