"""Changes of a table, appended to a small file until the table's own file has them.

A table that is replaced as a whole (config_file.py) takes as long to save as it is large. A change
is put into its journal instead, one line each, and is safe from the end of the process from then
on. Now and then the whole table is saved, off the broker's thread: :meth:`Journal.retire` puts the
entries up to then aside, later ones go to a new file, and :meth:`Journal.drop_retired` removes
those put aside once the table's file is on the disk.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orbitmq.store.file_ops import FILE_OPS, FileOps, store_error, write_fully

logger = logging.getLogger("orbitmq.store")

_CLOSED: Final = -1


class Journal:
    """The journal at ``path``; entries are bytes without line ends.

    ``sync`` brings each to the disk, so that they survive a power cut too.
    """

    def __init__(self, path: Path, ops: FileOps = FILE_OPS, *, sync: bool = False) -> None:
        self.path: Final = path
        self.retired_path: Final = path.with_name(path.name + ".old")
        self._ops = ops
        self._sync = sync
        self._fd = _CLOSED
        self._end = 0

    def read(self) -> list[bytes] | None:
        """All entries, the oldest first; None when there is no journal. What comes next follows.

        An entry that was torn, and what is behind it, is left out with a warning. Raises
        StoreError when a file is there but cannot be read.
        """
        retired, current = self._content(self.retired_path), self._content(self.path)
        if retired is None and current is None:
            return None
        before, _ = _entries(retired or b"", self.retired_path)
        after, self._end = _entries(current or b"", self.path)
        return before + after

    def append(self, entries: Iterable[bytes]) -> None:
        """Put entries behind the others, all or none; they survive the end of the process.

        Raises DiskFullError or another StoreError.
        """
        data = b"".join(b"%08x %b\n" % (zlib.crc32(entry), entry) for entry in entries)
        try:
            if self._fd == _CLOSED:
                self._open()
            write_fully(self._ops, self._fd, data, self._end)
            if self._sync:
                self._ops.fdatasync(self._fd)
        except OSError as error:
            raise store_error(error, self.path, "write down a change") from error
        self._end += len(data)

    def retire(self) -> None:
        """Put the entries aside, unless others still are. Raises StoreError."""
        try:
            if self.path.exists() and not self.retired_path.exists():
                self.close()
                self._ops.replace(self.path, self.retired_path)
                self._end = 0
        except OSError as error:
            raise store_error(error, self.path, "put changes aside") from error

    def drop_retired(self) -> None:
        """Remove what was put aside: the table's file has it. Raises StoreError."""
        self._remove(self.retired_path)

    def remove(self) -> None:
        """Remove all: the table's file has it. Raises StoreError."""
        self.close()
        self._end = 0
        self._remove(self.retired_path)
        self._remove(self.path)

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._fd != _CLOSED:
            os.close(self._fd)
            self._fd = _CLOSED

    def _open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fd = self._ops.open(self.path, os.O_WRONLY | os.O_CREAT)
        try:
            self._ops.ftruncate(fd, self._end)
            if self._sync:
                self._ops.fsync_directory(self.path.parent)
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def _remove(self, path: Path) -> None:
        try:
            if path.exists():
                self._ops.unlink(path)
        except OSError as error:
            raise store_error(error, path, "remove changes that are saved") from error

    def _content(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise store_error(error, path, "read") from error


def _entries(content: bytes, path: Path) -> tuple[list[bytes], int]:
    """The entries of a file up to the first that is torn, and where they end."""
    found = []
    end = 0
    while (line_end := content.find(b"\n", end)) >= 0:
        checksum, _, entry = content[end:line_end].partition(b" ")
        if checksum != b"%08x" % zlib.crc32(entry):
            break
        found.append(entry)
        end = line_end + 1
    if end < len(content):
        logger.warning("%s is torn at byte %d of %d: the rest is left out", path, end, len(content))
    return found, end
