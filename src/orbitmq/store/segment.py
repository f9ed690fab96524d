"""Files of a fixed size named after their first byte's offset: what logs and queues are made of.

Reading goes through a read-only mapping or pread; writing only through pwrite, because a write
through a mapping of a full disk ends the process (SIGBUS) instead of raising an error. Files are
made sparse: they have their full size, as Apache RocketMQ demands, and take up what was written.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Final

from orbitmq.errors import CorruptStoreError
from orbitmq.store.file_ops import FileOps, write_fully

logger = logging.getLogger("orbitmq.store")
_CHUNK: Final = 1 << 20


def segment_name(base: int) -> str:
    """The file name for the segment that begins at offset ``base`` (UtilAll.offset2FileName)."""
    return f"{base:020d}"


def list_segments(directory: Path, size: int, kind: str, setting: str) -> list[int]:
    """The first offsets of the segments in ``directory``, ascending; [] when it does not exist.

    Empty last files, left by a crash right after their creation, are deleted; Java's
    MappedFileQueue.doLoad deletes one. Raises CorruptStoreError when a file has another size than
    ``size`` (``kind`` says what it is, ``setting`` what sets it) or one is missing in between.
    """
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    files = [entry for entry in entries if entry.name.isascii() and entry.name.isdigit()]
    while files and files[-1].stat().st_size == 0:
        logger.warning("the %s %s is empty, as a crash leaves it: deleted", kind, files[-1].path)
        Path(files.pop().path).unlink()
    for entry in files:
        found = entry.stat().st_size
        if found != size:
            raise CorruptStoreError(
                f"the {kind} {entry.path} has {found} bytes, but {setting} makes {size}: open the "
                "directory with the setting it was written with, or restore the file",
                entry.path,
            )
    bases = [int(entry.name) for entry in files]
    for base, following in pairwise(bases):
        if following != base + size:
            missing = directory / segment_name(base + size)
            raise CorruptStoreError(
                f"{missing} is missing between other files of {directory}: restore it, or move "
                "the files after it away to give up what is in them",
                str(missing),
            )
    return bases


def create_file(ops: FileOps, path: Path, size: int) -> int:
    """Make a sparse file of ``size`` bytes and return its descriptor; on an error it is gone."""
    fd = ops.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        ops.ftruncate(fd, size)
    except OSError:
        os.close(fd)
        ops.unlink(path)
        raise
    return fd


def data_ranges(fd: int, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """The parts between ``start`` and ``stop`` that may hold other bytes than zero.

    Pieces of a megabyte at most; holes of a sparse file are left out.
    """
    position = start
    while position < stop:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA)
            hole = os.lseek(fd, position, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return
            hole = stop  # the file system cannot tell holes: everything may be data
        end = min(position + _CHUNK, hole, stop)
        if position < end:
            yield position, end
        position = end


def zero_range(ops: FileOps, fd: int, start: int, stop: int, *, again: bool = False) -> bool:
    """Make bytes ``start`` to ``stop`` zero; whether any of them was not.

    Bytes that are zero already are not written, so nothing is allocated: this works on a full
    disk. With ``again`` they are, since they were made zero before without reaching the disk.
    """
    changed = False
    for position, end in data_ranges(fd, start, stop):
        data = os.pread(fd, end - position, position)
        if again or any_byte(data):
            write_fully(ops, fd, bytes(len(data)), position)
            changed = True
    return changed


def write_again(ops: FileOps, fd: int, start: int, stop: int) -> None:
    """Write bytes ``start`` to ``stop`` as they read now; zeros are left out.

    For after a failed fdatasync, which leaves pages that look clean without being on the disk
    (see log_flusher.py). Raises OSError.
    """
    for position in range(start, stop, _CHUNK):
        data = os.pread(fd, min(_CHUNK, stop - position), position)
        if any_byte(data):
            write_fully(ops, fd, data, position)


def any_byte(data: bytes) -> bool:
    """Whether a byte of ``data`` is other than zero."""
    return data.count(0) != len(data)


class Segment:
    """One file of the commit log, opened when it is first used.

    ``base`` is the offset of its first byte. All that touches the file raises OSError.
    """

    def __init__(self, ops: FileOps, directory: Path, base: int, size: int) -> None:
        self.base: Final = base
        self.end: Final = base + size
        self.path: Final = directory / segment_name(base)
        self._ops = ops
        self._fd = -1
        self._opening = Lock()
        self._map: mmap.mmap | None = None
        self._view: memoryview | None = None
        self._advice = mmap.MADV_NORMAL

    @classmethod
    def create(cls, ops: FileOps, directory: Path, base: int, size: int) -> Segment:
        """Make the file; after an error there is none."""
        segment = cls(ops, directory, base, size)
        segment._fd = create_file(ops, segment.path, size)
        try:
            ops.fsync_directory(directory)
        except OSError:
            segment.delete()
            raise
        return segment

    @property
    def fd(self) -> int:
        """The descriptor, open for reading and writing."""
        if self._fd < 0:
            with self._opening:
                if self._fd < 0:
                    self._fd = self._ops.open(self.path, os.O_RDWR)
        return self._fd

    @property
    def view(self) -> memoryview:
        """The whole file, read-only; what is written appears in it."""
        if self._view is None:
            self._map = self._mapped()
            self._map.madvise(self._advice)
            self._view = memoryview(self._map)
        return self._view

    def advise(self, advice: int) -> None:
        """Tell the system how the file will be read: an advice of madvise."""
        self._advice = advice
        if self._map is not None:
            self._map.madvise(advice)

    def _mapped(self) -> mmap.mmap:
        """The file's mapping, which keeps a descriptor of its own: a second is for writing only."""
        if self._fd >= 0:
            return mmap.mmap(self._fd, self.end - self.base, prot=mmap.PROT_READ)
        fd = os.open(self.path, os.O_RDONLY)
        try:
            return mmap.mmap(fd, self.end - self.base, prot=mmap.PROT_READ)
        finally:
            os.close(fd)

    def read(self, offset: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``offset`` of the log, without touching the mapping."""
        return os.pread(self.fd, min(length, self.end - offset), offset - self.base)

    def write(self, offset: int, data: bytes) -> None:
        """Write ``data`` at ``offset`` of the log; after an error a part of it may be there."""
        write_fully(self._ops, self.fd, data, offset - self.base)

    def sync(self) -> None:
        """Bring what was written to the disk."""
        self._ops.fdatasync(self.fd)

    def write_again(self, start: int, stop: int) -> None:
        """Write what stands from ``start`` to ``stop`` of the log over itself."""
        write_again(self._ops, self.fd, start - self.base, stop - self.base)

    def zero(self, start: int, stop: int, *, again: bool = False) -> bool:
        """Make the bytes from ``start`` to ``stop`` of the log zero: see zero_range."""
        return zero_range(self._ops, self.fd, start - self.base, stop - self.base, again=again)

    def find_bytes(self, pattern: bytes, start: int) -> Iterator[int]:
        """The offsets at and after ``start`` where ``pattern`` stands."""
        for piece, piece_end in data_ranges(self.fd, start - self.base, self.end - self.base):
            data = os.pread(self.fd, piece_end - piece + len(pattern) - 1, piece)
            found = data.find(pattern)
            while found >= 0:
                yield self.base + piece + found
                found = data.find(pattern, found + 1)

    def close(self) -> None:
        """Give the file back. A slice still held by someone keeps its mapping alive."""
        view, mapped, fd = self._view, self._map, self._fd
        self._view, self._map, self._fd = None, None, -1
        if fd >= 0:
            os.close(fd)
        if view is not None and mapped is not None:
            view.release()
            try:
                mapped.close()
            except BufferError:
                logger.debug("%s stays mapped until the last message from it is dropped", self.path)

    def delete(self) -> None:
        """Close and remove the file."""
        self.close()
        self._ops.unlink(self.path)

    def modified_ms(self) -> int:
        """When the file was last written, ms."""
        return self.path.stat().st_mtime_ns // 1_000_000

    def unlink(self) -> None:
        """Remove the file while others may be reading it: they can go on.

        It is closed when nobody has this object or a slice of ``view`` any more. Whoever comes to
        open it from now on gets FileNotFoundError.
        """
        self._ops.unlink(self.path)

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
