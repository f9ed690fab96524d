"""A disk that fills up or fails: nothing of a failed write takes effect, and the store goes on."""

from __future__ import annotations

import errno
import os
import pickle
from pathlib import Path

import pytest

from orbitmq.errors import DiskFullError, StoreError
from orbitmq.store.message_store import MessageStore
from orbitmq.testing.wait import wait_until
from orbitmq.wire.record import record_size
from tests.store.support import (
    TOPIC,
    FullDisk,
    QuickOps,
    after_crash,
    bodies,
    draft,
    log_records,
    opened,
    put,
    queue_units,
    small,
)


def test_a_disk_that_fills_up_at_any_byte(tmp_path: Path) -> None:
    """The failing write goes over the end of a file; after it, smaller messages are written."""
    lost = [b"L" * size for size in (120, 600, 90, 3500, 40)]
    need = sum(record_size(draft(body)) for body in lost)
    for room in range(0, need, 97):
        directory = tmp_path / str(room)
        disk = FullDisk()
        with opened(directory, ops=disk) as store:
            put(store, b"before")
            end = store.max_physical_offset
            for body in lost:
                store.append(draft(body))
            disk.room = room
            with pytest.raises(DiskFullError, match="no space is left for .*commitlog"):
                store.write()
            assert store.staged == 0
            assert store.max_physical_offset == end
            assert store.max_offset(TOPIC, 0) == 1
            crash = after_crash(directory, tmp_path / f"{room}-crash-1")
            disk.room = None
            (place,) = put(store, b"after")
            assert place == end
            assert bodies(store) == [b"before", b"after"]
            later_crash = after_crash(directory, tmp_path / f"{room}-crash-2")
        for copy, expected in (
            (crash, [b"before"]),
            (later_crash, [b"before", b"after"]),
            (directory, [b"before", b"after"]),
        ):
            with opened(copy) as store:
                assert bodies(store) == expected
            assert len(log_records(copy)[0]) == len(expected)


def test_the_error_names_directory_and_remedy(tmp_path: Path) -> None:
    disk = FullDisk()
    with opened(tmp_path, ops=disk) as store:
        store.append(draft(b"x"))
        disk.room = 0
        with pytest.raises(DiskFullError, match="Free space") as raised:
            store.write()
        assert raised.value.path == str(tmp_path / "commitlog")
        assert str(tmp_path) in str(raised.value)
        assert pickle.loads(pickle.dumps(raised.value)).path == raised.value.path
        disk.room = None


class Failing(QuickOps):
    """Raises EIO from the operations whose names are in ``broken``."""

    def __init__(self) -> None:
        self.broken: set[str] = set()

    def check(self, name: str) -> None:
        if name in self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def open(self, path: Path, flags: int) -> int:
        if flags & os.O_CREAT:
            self.check("create")
        return super().open(path, flags)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self.check("pwrite")
        written = super().pwrite(fd, data, position)
        self.check("pwrite late")
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        self.check("ftruncate")
        super().ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        self.check("fdatasync")
        super().fdatasync(fd)

    def fsync_directory(self, path: Path) -> None:
        self.check("fsync_directory")
        super().fsync_directory(path)


@pytest.mark.parametrize(
    "broken", ["create", "ftruncate", "fsync_directory", "pwrite", "pwrite late"]
)
def test_any_failure_takes_the_whole_write_back(tmp_path: Path, broken: str) -> None:
    ops = Failing()
    live = tmp_path / "live"
    with opened(live, ops=ops) as store:
        put(store, b"before")
        ops.broken = {broken}
        store.append(draft(b"x" * 3000))
        store.append(draft(b"y" * 3000))
        with pytest.raises(StoreError, match="Input/output error"):
            store.write()
        ops.broken.clear()
        assert len(list((live / "commitlog").iterdir())) == 1
        put(store, b"after")
        crash = after_crash(live, tmp_path / "crash")
    with opened(crash) as store:
        assert bodies(store) == [b"before", b"after"]


def test_what_cannot_be_wiped_at_once_is_wiped_before_the_next_write(tmp_path: Path) -> None:
    """Old and new record have the same length: without wiping, the second old one would follow."""
    ops = Failing()
    with opened(tmp_path / "live", ops=ops) as store:
        put(store, b"before")
        for body in (b"old-1", b"old-2"):
            store.append(draft(body))
        ops.broken = {"pwrite late", "pwrite"}
        with pytest.raises(StoreError):
            store.write()
        ops.broken = {"pwrite late"}
        for body in (b"old-3", b"old-4"):
            store.append(draft(body))
        with pytest.raises(StoreError):
            store.write()
        ops.broken.clear()
        put(store, b"new-1")
        crash = after_crash(tmp_path / "live", tmp_path / "crash")
    with opened(crash) as store:
        assert bodies(store) == [b"before", b"new-1"]


def test_queues_that_cannot_be_flushed_stay_in_memory(tmp_path: Path) -> None:
    disk = FullDisk()
    with opened(tmp_path, ops=disk) as store:
        put(store, *[b"x"] * 7)
        store._queue_flusher.flush(renew_mark=False)
        put(store, *[b"x"] * 20)
        disk.room = 70
        with pytest.raises(OSError, match="No space"):
            store._queue_flusher.flush(renew_mark=False)
        assert len(bodies(store)) == 27
        disk.room = None
        store._queue_flusher.flush(renew_mark=False)
        assert len(queue_units(tmp_path)) == 27
        assert len(bodies(store)) == 27


def test_a_background_flush_complains_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk()
    flusher_config = small(queue_flush_interval_ms=1)
    with opened(tmp_path, flusher_config, ops=disk) as store:
        disk.room = record_size(draft(b"x")) + 10  # enough for the log only
        put(store, b"x")
        wait_until(lambda: store._queue_flusher._complaint != "")
        disk.room = None
        wait_until(lambda: store._queue_flusher._complaint == "")
    assert caplog.text.count("consume queues stay in memory") == 1


def test_a_close_that_fails_says_so_and_lets_go(tmp_path: Path) -> None:
    ops = Failing()
    store = MessageStore.open(tmp_path, small(), ops=ops)
    put(store, b"written")
    store.append(draft(b"staged"))
    ops.broken = {"pwrite"}
    with pytest.raises(StoreError):
        store.close()
    assert (tmp_path / "abort").exists()
    with opened(tmp_path) as again:
        assert bodies(again) == [b"written"]


def test_an_open_that_fails_lets_go(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, b"x")
    (tmp_path / "checkpoint").write_bytes(bytes(4096))
    ops = Failing()
    ops.broken = {"pwrite", "fdatasync"}
    (tmp_path / "commitlog" / ("0" * 20)).write_bytes(bytes(100) + b"x" * 3996)
    with pytest.raises(StoreError, match="cannot open the store: .*Input/output error"):
        MessageStore.open(tmp_path, small(), ops=ops)
    with opened(tmp_path) as store:
        assert store.max_physical_offset == 0
