"""Files that stay open for reading, within a bound: the ones read last.

Opening a file costs more than reading a few entries of it, and a store has more queue files than a
process may have open.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})


class OpenFiles:
    """At most ``limit`` open files. For one thread.

    A file that is deleted must be closed here, too, or it would be read on under its name.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._descriptors: dict[Path, int] = {}  # the one read last is the last

    def __len__(self) -> int:
        return len(self._descriptors)

    def read(self, path: Path, length: int, position: int) -> bytes:
        """Up to ``length`` bytes at ``position`` of a file. Raises OSError."""
        descriptor = self._descriptors.pop(path, -1)
        if descriptor < 0:
            descriptor = self._open(path)
        self._descriptors[path] = descriptor
        return os.pread(descriptor, length, position)

    def close(self, path: Path) -> None:
        """Close a file, if it is open."""
        descriptor = self._descriptors.pop(path, -1)
        if descriptor >= 0:
            os.close(descriptor)

    def close_all(self) -> None:
        """Close every file."""
        for path in list(self._descriptors):
            self.close(path)

    def _open(self, path: Path) -> int:
        while len(self._descriptors) >= self._limit:
            self.close(next(iter(self._descriptors)))
        try:
            return os.open(path, os.O_RDONLY)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._descriptors:
                raise
            self.close_all()  # the process is short of descriptors: these can be spared
            return os.open(path, os.O_RDONLY)
