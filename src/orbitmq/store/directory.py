"""The store directory: where its files are, and that only one process uses it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreError, StoreLockedError
from orbitmq.store.file_ops import FileOps, store_error

_OWN: Final = "orbitmq from "
_HAS_OFD_LOCKS: Final = sys.platform == "linux"
_F_OFD_SETLK: Final = 37
"""Linux has it everywhere; a Python built beside older headers (such as uv's) does not name it."""


class StoreDirectory:
    """A locked store directory and the paths in it (Java's StorePathConfigHelper).

    ``was_clean`` says whether there was no ``abort`` file: whoever used it last closed it
    properly, or nobody has yet. ``own_from`` is from which physical offset on the log is what
    OrbitMQ wrote before it crashed; None when it was not OrbitMQ that used it last. Raises
    StoreLockedError when another process, or another store of this one, uses it, and StoreError
    when it cannot be made.
    """

    def __init__(self, root: Path) -> None:
        self.root: Final = root
        self.commit_log: Final = root / "commitlog"
        self.consume_queue: Final = root / "consumequeue"
        self.index: Final = root / "index"
        self.config: Final = root / "config"
        self.checkpoint: Final = root / "checkpoint"
        self.abort: Final = root / "abort"
        self.unflushed: Final = root / "unflushed"
        try:
            for path in (self.commit_log, self.consume_queue, self.config):
                path.mkdir(parents=True, exist_ok=True)
            self._lock_fd = _lock(root / "lock", root)
        except OSError as error:
            raise store_error(error, root, "open the store directory") from error
        self.was_clean: Final = not self.abort.exists()
        self.own_from: Final = _own_from(self.abort)

    def mark_in_use(self, ops: FileOps) -> None:
        """Make the ``abort`` file: from now on a missing close() means a crash. Raises OSError."""
        self.abort.touch()
        ops.fsync_directory(self.root)

    def mark_own(self, position: int) -> None:
        """Say in the ``abort`` file that what comes from ``position`` on is OrbitMQ's.

        Apache's broker looks only whether there is one, and puts its process id into its own. It
        need not reach the disk: without it, recovery takes a record that ends in NUL for whole.
        Raises OSError.
        """
        self.abort.write_text(f"{_OWN}{position}\n", "ascii")

    def mark_clean(self) -> None:
        """Remove the ``abort`` file: everything is on the disk. Raises OSError."""
        self.abort.unlink(missing_ok=True)

    def release(self) -> None:
        """Let others use the directory; does nothing the second time."""
        if self._lock_fd >= 0:
            _unlock_first_byte(self._lock_fd)
            self.abandon()

    def abandon(self) -> None:
        """Close what a forked child inherited of the lock: its parent alone holds it then.

        The lock belongs to the open file and would stay as long as any process has it open.
        """
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


@contextmanager
def locked(root: Path) -> Iterator[None]:
    """Keep brokers out of a store directory that is looked at, and look at none that one uses.

    Raises StoreLockedError, and StoreError when it is no store directory.
    """
    if not (root / "commitlog").is_dir():
        raise StoreError(f"{root} is no store directory: {_remedy(root)}", str(root))
    try:
        fd = _lock(root / "lock", root)
    except OSError as error:
        raise store_error(error, root, "lock the store directory") from error
    try:
        yield
    finally:
        _unlock_first_byte(fd)
        os.close(fd)


def _remedy(root: Path) -> str:
    below = sorted(path.parent for path in root.glob("*/commitlog"))
    if below:
        return f"there are {len(below)} in it, such as {below[0]}: give one of those"
    return "there is no commitlog in it. Give the directory that storePathRootDir or --store names"


def _own_from(abort: Path) -> int | None:
    """What mark_own() wrote; None when someone else made the file, or there is none."""
    try:
        text = abort.read_text("ascii", "replace")
    except FileNotFoundError:
        return None
    position = text.removeprefix(_OWN).strip()
    return int(position) if text.startswith(_OWN) and position.isdigit() else None


def _lock(path: Path, root: Path) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock_first_byte(fd)
    except (BlockingIOError, PermissionError) as error:
        os.close(fd)
        raise StoreLockedError(
            f"the store directory {root} is used by another broker: stop that one, or give this "
            "one a directory of its own",
            str(root),
        ) from error
    except OSError:
        os.close(fd)
        raise
    return fd


def _lock_first_byte(fd: int) -> None:
    """Take the lock Apache's broker takes (DefaultMessageStore.start), so that it is kept out too.

    Java's is a POSIX lock, which flock() does not see. A lock of the open file description
    conflicts with it, and unlike it also with another store of the same process.
    """
    if _HAS_OFD_LOCKS:
        fcntl.fcntl(fd, _F_OFD_SETLK, _first_byte(fcntl.F_WRLCK))
    else:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _unlock_first_byte(fd: int) -> None:
    """Give the lock back, whoever else has the open file."""
    if _HAS_OFD_LOCKS:
        fcntl.fcntl(fd, _F_OFD_SETLK, _first_byte(fcntl.F_UNLCK))
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)


def _first_byte(kind: int) -> bytes:
    """A ``struct flock`` for the file's first byte."""
    return struct.pack("@hhqqi4x", kind, os.SEEK_SET, 0, 1, 0)
