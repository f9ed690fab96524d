"""A disk that loses, in a power cut, what was not brought to it: contents and names.

Everything the store changes goes through one lock, and the cut is taken under it: an image of the
disk at one moment of all threads. A file's content is on the disk as of its last fdatasync, a name
as of the last flush of its directory. Of what was written since, each sector is there or not.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from threading import RLock

from orbitmq.store.file_ops import FileOps

_SECTOR = 512


class PowerCut(FileOps):
    """The power fails at the ``moment``-th change; the disk is then found in ``image``.

    ``on_cut`` is called at that moment, before anything else happens. The store itself goes on,
    without effect on the image.
    """

    def __init__(
        self, root: Path, image: Path, moment: int, seed: int, on_cut: Callable[[], None]
    ) -> None:
        self._root = root
        self._image = image
        self._left = moment
        self._random = random.Random(seed)
        self._on_cut = on_cut
        self._lock = RLock()
        self._names: dict[Path, dict[str, int]] = {}  # of each directory, as on the disk
        self._durable: dict[int, bytes] = {}
        self._handles: dict[int, int] = {}  # by inode: kept open, so that none is used again

    @property
    def is_cut(self) -> bool:
        return self._left <= 0

    def cut(self) -> None:
        """The power fails now, if it has not."""
        with self._lock:
            if self._left > 0:
                self._left = 1
                self._pass_moment()

    def close(self) -> None:
        for handle in self._handles.values():
            os.close(handle)

    def open(self, path: Path, flags: int) -> int:
        with self._lock:
            self._pass_moment()
            fd = super().open(path, flags)
            self._know(fd)
            return fd

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        with self._lock:
            half = len(data) // 2
            written = super().pwrite(fd, memoryview(data)[:half], position) if half > 1 else 0
            self._pass_moment()
            return written + super().pwrite(fd, memoryview(data)[written:], position + written)

    def ftruncate(self, fd: int, size: int) -> None:
        with self._lock:
            self._pass_moment()
            super().ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        with self._lock:
            self._pass_moment()
            self._durable[os.fstat(fd).st_ino] = _content(fd)

    def fsync_directory(self, path: Path) -> None:
        with self._lock:
            self._pass_moment()
            names = {}
            for entry in os.scandir(path):
                names[entry.name] = -1 if entry.is_dir() else entry.inode()
                if entry.is_file() and entry.inode() not in self._handles:
                    fd = os.open(entry.path, os.O_RDONLY)  # made by other means, like abort
                    self._know(fd)
                    self._durable[entry.inode()] = _content(fd)
                    os.close(fd)
            self._names[path] = names

    def replace(self, source: Path, target: Path) -> None:
        with self._lock:
            self._pass_moment()
            super().replace(source, target)

    def unlink(self, path: Path) -> None:
        with self._lock:
            self._pass_moment()
            super().unlink(path)

    def _know(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        if inode not in self._handles:
            self._handles[inode] = os.dup(fd)

    def _pass_moment(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._on_cut()
            self._image.mkdir()
            self._write_image(self._root, self._image)

    def _write_image(self, directory: Path, image: Path) -> None:
        for name, inode in self._names.get(directory, {}).items():
            if inode < 0:
                (image / name).mkdir()
                self._write_image(directory / name, image / name)
            else:
                (image / name).write_bytes(self._left_of(inode))

    def _left_of(self, inode: int) -> bytes:
        """What the disk has of a file: its durable content, and some of what came since."""
        durable = self._durable.get(inode, b"")
        now = _content(self._handles[inode])
        if durable == now or self._random.random() < 0.3:
            return durable
        size = len(now) if self._random.random() < 0.5 else len(durable)
        pieces = [
            (now if self._random.random() < 0.5 else durable)[start : start + _SECTOR].ljust(
                _SECTOR, b"\0"
            )
            for start in range(0, size, _SECTOR)
        ]
        return b"".join(pieces)[:size]


def _content(fd: int) -> bytes:
    return os.pread(fd, os.fstat(fd).st_size, 0)
