"""A flush that fails: who is told, what is written again, and what a power cut may take."""

from __future__ import annotations

import errno
import math
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import StoreError
from orbitmq.store.config import StoreConfig
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.record import encode_batch
from tests.store.support import (
    HOUR_MS,
    FailingFlush,
    after_crash,
    bodies,
    draft,
    flushed,
    opened,
    put,
    queue_units,
    small,
)


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
