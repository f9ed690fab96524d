"""A small file that is replaced as a whole: topics, groups, offsets.

As Java's ConfigManager and MixAll.string2File do it, the former content stays beside it as
``.bak``. Unlike Java, the new content is on the disk before it takes the old one's place.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from orbitmq.errors import BodyError, CorruptStoreError
from orbitmq.store.file_ops import FILE_OPS, FileOps, store_error, write_fully

logger = logging.getLogger("orbitmq.store")

_T = TypeVar("_T")


class ConfigFile:
    """The file at ``path``. Its directory is made when the first content is saved."""

    def __init__(self, path: Path, ops: FileOps = FILE_OPS) -> None:
        self.path: Final = path
        self.backup_path: Final = path.with_name(path.name + ".bak")
        self._new_path = path.with_name(path.name + ".tmp")
        self._ops = ops

    def load(self) -> bytes | None:
        """The content last saved; the one before when there is none; None when there is neither.

        Raises StoreError when a file is there but cannot be read, and CorruptStoreError when one
        is there, but empty, and no other: what it held is lost, and to save over it would hide it.
        """
        content, backup = self._read(self.path), self._read(self.backup_path)
        if content:
            return content
        if backup:
            if content is not None:
                logger.warning("%s is empty: its backup %s is used", self.path, self.backup_path)
            return backup
        for path, read in ((self.path, content), (self.backup_path, backup)):
            if read is not None:
                raise CorruptStoreError(
                    f"{path} is empty, and there is no other copy of it: what it held is lost. "
                    f"Restore {self.path} from a copy, or delete it (and {self.backup_path.name}) "
                    "to start without",
                    str(path),
                )
        return None

    def load_as(self, parse: Callable[[bytes], _T]) -> _T | None:
        """What ``parse`` makes of the content, or of the one before where that raises BodyError.

        Raises as :meth:`load` does, and CorruptStoreError when neither can be parsed.
        """
        content = self.load()
        if content is None:
            return None
        try:
            return parse(content)
        except BodyError as error:
            backup = self.load_backup()
            try:
                if backup is None:
                    raise
                parsed = parse(backup)
            except BodyError as second:
                raise CorruptStoreError(
                    f"{self.path} cannot be read ({second}), nor can its backup: mend the file, or "
                    "remove it to start without what it holds",
                    str(self.path),
                ) from second
            logger.warning("%s cannot be read (%s): its backup is used", self.path, error)
            return parsed

    def load_backup(self) -> bytes | None:
        """The content before the last; for a caller that cannot make sense of the last one."""
        return self._read(self.backup_path) or None

    def save(self, content: bytes) -> None:
        """Replace the content. After a crash at any moment, load() gives the old or the new one.

        Raises DiskFullError or another StoreError; the old content stays then.
        """
        directory = self.path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._write_new(content)
            if self.path.exists():
                self._ops.replace(self.path, self.backup_path)
            self._ops.replace(self._new_path, self.path)
            self._ops.fsync_directory(directory)
        except OSError as error:
            raise store_error(error, self.path, "save") from error

    def _write_new(self, content: bytes) -> None:
        fd = self._ops.open(self._new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            write_fully(self._ops, fd, content, 0)
            self._ops.fdatasync(fd)
        finally:
            os.close(fd)

    def _read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise store_error(error, path, "read") from error
