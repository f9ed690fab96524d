"""Files that stay open for reading, within a bound: the ones read last.

Opening a file costs more than reading a few entries of it, and a store has more queue files than a
process may have open.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Lock
from typing import Final

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class OpenFiles:
    """At most ``limit`` open files.

    A file that is deleted must be closed here afterwards, or it would be read on under its name.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._descriptors: dict[Path, int] = {}  # the one read last is the last
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._descriptors)

    def read(self, path: Path, length: int, position: int) -> bytes:
        """Up to ``length`` bytes at ``position`` of a file. Raises OSError."""
        with self._lock:
            descriptor = self._descriptors.pop(path, -1)
            if descriptor < 0:
                descriptor = self._open(path)
            self._descriptors[path] = descriptor
            return os.pread(descriptor, length, position)

    def close(self, path: Path) -> None:
        """Close a file, if it is open."""
        with self._lock:
            self._close(path)

    def close_all(self) -> None:
        """Close every file."""
        with self._lock:
            self._close_all()

    def _close(self, path: Path) -> None:
        descriptor = self._descriptors.pop(path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def _close_all(self) -> None:
        for path in list(self._descriptors):
            self._close(path)

    def _open(self, path: Path) -> int:
        while len(self._descriptors) >= self._limit:
            self._close(next(iter(self._descriptors)))
        try:
            return os.open(path, os.O_RDONLY)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._descriptors:
                raise
            self._close_all()  # the process is short of descriptors: these can be spared
            return os.open(path, os.O_RDONLY)
