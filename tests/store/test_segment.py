"""Files of one size: what is wiped in them, and what is not even touched."""

from __future__ import annotations

import os
from pathlib import Path

from orbitmq.store.file_ops import FileOps
from orbitmq.store.segment import data_ranges, zero_range

SIZE = 4 << 20


class Recording(FileOps):
    """Remembers what was written where."""

    def __init__(self) -> None:
        self.written: list[tuple[int, int]] = []

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        self.written.append((position, position + len(data)))
        return super().pwrite(fd, data, position)


def test_wiping_takes_no_room(tmp_path: Path) -> None:
    """Only bytes that are there are overwritten: a hole stays one, zeros are left alone."""
    fd = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, SIZE)
    os.pwrite(fd, b"x" * 5000, 100_000)
    os.pwrite(fd, bytes(9000), 1_000_000)
    os.pwrite(fd, b"y" * 100, 3_000_000)
    blocks = os.fstat(fd).st_blocks
    ops = Recording()
    assert zero_range(ops, fd, 102_000, SIZE)
    assert os.fstat(fd).st_blocks == blocks
    assert all(stop <= 110_000 or start >= 2_990_000 for start, stop in ops.written)
    content = os.pread(fd, SIZE, 0)
    assert content[100_000:102_000] == b"x" * 2000
    assert not any(content[102_000:])
    assert not zero_range(ops, fd, 102_000, SIZE)
    os.close(fd)


def test_ranges_cover_all_data_in_pieces(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w+b") as file:
        file.write(b"z" * (3 << 20))
        file.truncate(SIZE)
        file.flush()
        ranges = list(data_ranges(file.fileno(), 10, SIZE))
        assert ranges[0][0] == 10
        assert ranges[-1][1] >= 3 << 20
        assert all(stop - start <= 1 << 20 for start, stop in ranges)
        assert list(data_ranges(file.fileno(), SIZE, SIZE)) == []
