"""The calls by which the store changes files, in one replaceable object.

Tests put a disk that fills up or fails in its place; the store itself never patches anything.
Also here: what an operating system's refusal becomes for the caller.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import DiskFullError, StoreError

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_fdatasync: Final = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class DiskSpace(NamedTuple):
    """Bytes of a file system: all, those free, and those of them that this user may take."""

    total: int
    free: int
    available: int


class FileOps:
    """Writes, flushes and renames; every method raises OSError as the system call does."""

    def open(self, path: Path, flags: int) -> int:
        """Open a file for writing; mode 0644 when it is created."""
        return os.open(path, flags, 0o644)

    def pwrite(self, fd: int, data: bytes | memoryview, position: int) -> int:
        """Write at ``position``; may write less than all, and returns how much."""
        return os.pwrite(fd, data, position)

    def ftruncate(self, fd: int, size: int) -> None:
        """Set the file's size; a larger one leaves a hole that reads as zeros."""
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        """Bring the file's content to the disk."""
        _fdatasync(fd)

    def fsync_directory(self, path: Path) -> None:
        """Bring the names in a directory to the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def replace(self, source: Path, target: Path) -> None:
        """Rename ``source`` to ``target`` in one step, over what is there."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def disk_space(self, path: Path) -> DiskSpace:
        """How much room there is where ``path`` is."""
        found = os.statvfs(path)
        unit = found.f_frsize
        return DiskSpace(found.f_blocks * unit, found.f_bfree * unit, found.f_bavail * unit)


FILE_OPS: Final = FileOps()
"""The operating system's own calls."""


def write_fully(ops: FileOps, fd: int, data: bytes | memoryview, position: int) -> None:
    """Write all of ``data`` at ``position``: a disk that fills up takes a part first."""
    written = ops.pwrite(fd, data, position)
    while written < len(data):
        more = ops.pwrite(fd, memoryview(data)[written:], position + written)
        if more <= 0:
            raise OSError(errno.EIO, "the write does not get on")
        written += more


def store_error(error: OSError, path: Path, action: str) -> StoreError:
    """The StoreError for a failed ``action`` ("write the commit log") on ``path``."""
    if error.errno in _NO_ROOM:
        return DiskFullError(
            f"cannot {action}: no space is left for {path}. Nothing of it took effect. Free space "
            "on that disk or delete old messages; the store goes on once there is room",
            str(path),
        )
    return StoreError(f"cannot {action}: {path}: {error.strerror or error}", str(path))
