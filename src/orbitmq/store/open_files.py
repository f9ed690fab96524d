"""Files that stay open for reading, within a bound: the ones read last.

Opening a file costs more than reading a few entries of it, and a store has more queue files than a
process may have open. Of each file the bytes behind those asked for are kept, where they are read
on: a system call lets other threads have the interpreter, which costs more than the read itself.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from threading import Lock
from typing import Final

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class _OpenFile:
    """A descriptor, and what was read ahead: ``data``, from ``start`` on."""

    __slots__ = ("data", "descriptor", "start")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.start = 0
        self.data = b""

    def read(self, length: int, position: int, ahead: int) -> bytes:
        place = position - self.start
        if place >= 0 and place + length <= len(self.data):
            return self.data[place : place + length]
        if ahead <= length:
            return os.pread(self.descriptor, length, position)
        self.data = os.pread(self.descriptor, ahead, position)
        self.start = position
        return self.data[:length]


class OpenFiles:
    """At most ``limit`` open files.

    A file that is deleted must be closed here afterwards, or it would be read on under its name.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._files: dict[Path, _OpenFile] = {}  # the one read last is the last
        self._last: tuple[Path, _OpenFile] | None = None  # that one: most reads follow each other
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._files)

    def read(self, path: Path, length: int, position: int, ahead: int = 0) -> bytes:
        """Up to ``length`` bytes at ``position`` of a file. Raises OSError.

        ``ahead`` bytes there, if that is more, may be read and kept: they will not change any more.
        """
        with self._lock:
            last = self._last
            if last is not None and last[0] is path:
                return last[1].read(length, position, ahead)
            file = self._files.pop(path, None)
            if file is None:
                file = self._open(path)
            self._files[path] = file
            self._last = path, file
            return file.read(length, position, ahead)

    def close(self, path: Path) -> None:
        """Close a file, if it is open."""
        with self._lock:
            self._close(path)

    def close_all(self) -> None:
        """Close every file."""
        with self._lock:
            self._close_all()

    def _close(self, path: Path) -> None:
        file = self._files.pop(path, None)
        if file is not None:
            self._last = None
            os.close(file.descriptor)

    def _close_all(self) -> None:
        for path in list(self._files):
            self._close(path)

    def _open(self, path: Path) -> _OpenFile:
        while len(self._files) >= self._limit:
            self._close(next(iter(self._files)))
        try:
            return _OpenFile(os.open(path, os.O_RDONLY))
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._files:
                raise
            self._close_all()  # the process is short of descriptors: these can be spared
            return _OpenFile(os.open(path, os.O_RDONLY))
