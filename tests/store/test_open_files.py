"""Queue files stay open while they are read, within a bound and not beyond their end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from orbitmq import descriptors
from orbitmq.store.open_files import OpenFiles
from tests.store.support import TOPIC, bodies, opened, put


@pytest.fixture
def openings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are opened for reading from now on."""
    names: list[str] = []
    system = os.open

    def watched(path: Path, flags: int, *rest: Any) -> int:
        if flags == os.O_RDONLY:
            names.append(Path(path).name)
        return system(path, flags, *rest)

    monkeypatch.setattr(os, "open", watched)
    return names


def files(directory: Path, names: str) -> list[Path]:
    paths = [directory / name for name in names]
    for path in paths:
        path.write_text(path.name * 10)
    return paths


def test_those_read_last_stay_open(tmp_path: Path, openings: list[str]) -> None:
    a, b, c = files(tmp_path, "abc")
    open_files = OpenFiles(2)
    for path in (a, b, a, b, a, c, a, c, b):
        assert open_files.read(path, 2, 5) == path.name.encode() * 2
        assert len(open_files) <= 2
    assert openings == ["a", "b", "c", "b"]
    open_files.close(a)
    open_files.close_all()
    assert len(open_files) == 0


def test_they_are_given_up_when_descriptors_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, c = files(tmp_path, "abc")
    open_files = OpenFiles(9)
    open_files.read(a, 1, 0)
    open_files.read(b, 1, 0)
    system = os.open

    def short(path: Path, flags: int) -> int:
        if len(open_files):
            raise OSError(errno.EMFILE, "Too many open files")
        return system(path, flags)

    monkeypatch.setattr(os, "open", short)
    assert open_files.read(c, 1, 0) == b"c"
    assert len(open_files) == 1
    with pytest.raises(FileNotFoundError):
        open_files.read(tmp_path / "missing", 1, 0)
    open_files.close_all()


def test_a_store_opens_a_queue_file_once(tmp_path: Path, openings: list[str]) -> None:
    with opened(tmp_path) as store:
        for queue_id in range(3):
            put(store, *[b"x"] * 12, queue_id=queue_id)  # 10 to a file
        store._queue_flusher.flush(renew_mark=False)
        openings.clear()
        for _ in range(5):
            for queue_id in range(3):
                assert bodies(store, queue_id=queue_id) == [b"x"] * 12
        assert len([name for name in openings if len(name) == 20]) <= 7  # one of the log
        open_files = store._table._open_files
        assert len(open_files) == 6
    assert len(open_files) == 0


def test_a_store_keeps_within_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptors, "queue_files", lambda: 4)
    with opened(tmp_path) as store:
        for queue_id in range(10):
            put(store, b"x", queue_id=queue_id)
        store._queue_flusher.flush(renew_mark=False)
        for _ in range(2):
            for queue_id in range(10):
                assert bodies(store, queue_id=queue_id) == [b"x"]
                assert len(store._table._open_files) <= 4


def test_files_of_a_deleted_topic_are_not_read_on(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        put(store, *[b"old"] * 12)
        store._queue_flusher.flush(renew_mark=False)
        assert bodies(store) == [b"old"] * 12
        assert len(store._table._open_files) == 2
        store.delete_topic(TOPIC)
        assert len(store._table._open_files) == 0
        put(store, *[b"new"] * 11)
        store._queue_flusher.flush(renew_mark=False)
        assert bodies(store) == [b"new"] * 11


def test_what_is_read_ahead_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))
    reads: list[tuple[int, int]] = []
    system, own = os.pread, -1

    def watched(descriptor: int, length: int, position: int) -> bytes:
        if descriptor == own:
            reads.append((length, position))
        return system(descriptor, length, position)

    monkeypatch.setattr(os, "pread", watched)
    open_files = OpenFiles(2)
    assert open_files.read(path, 4, 0) == bytes(range(4))
    own = open_files._files[path].descriptor
    for position in range(100, 140, 4):
        assert open_files.read(path, 4, position, 40) == bytes(range(position, position + 4))
    assert reads == [(40, 100)]
    assert open_files.read(path, 4, 138, 40) == bytes(range(138, 142))
    assert open_files.read(path, 4, 136) == bytes(range(136, 140))  # now before what is kept
    assert open_files.read(path, 4, 198, 40) == bytes([198, 199])  # the file ends there
    assert reads[1:] == [(40, 138), (4, 136), (40, 198)]
    open_files.close(path)
    path.write_bytes(bytes(200))
    assert open_files.read(path, 4, 198, 40) == bytes(2)
    open_files.close_all()


def test_entries_that_come_later_are_not_missed(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        expected: list[bytes] = []
        for number in range(7):
            expected.append(b"%d" % number)
            put(store, expected[-1])
            if number % 2:
                store._queue_flusher.flush(renew_mark=False)
            for _ in range(2):
                assert bodies(store) == expected
