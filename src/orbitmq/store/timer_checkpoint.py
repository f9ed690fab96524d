"""The ``config/timercheck`` file: how far timers are taken in and delivered.

Its first 56 bytes are Apache's TimerCheckpoint: the time up to which slots are delivered, up to
where the timer log is on the disk, the next offset of the timer topic's queue, the same of a
master, and a data version (state version, time, counter). Further back stands a mark that says
that OrbitMQ wrote them: with it, the wheel on the disk is as new as the log is up to that place.
Apache's may be older: its flush writes the wheel while the log goes on, and a proper shutdown does
not write it once more.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.store.file_ops import FileOps, write_fully

_SIZE: Final = 4096
_APACHE: Final = struct.Struct(">7q")
_MARK_PLACE: Final = 1024
_MARK: Final = struct.Struct(">8sI")
_MARK_MAGIC: Final = b"OrbitMQt"


class TimerProgress(NamedTuple):
    """How far timers are.

    All before ``read_ms`` was delivered (wall-clock ms), the timer log is on the disk up to
    ``log_position``, and ``queue_offset`` of the timer topic is next.
    """

    read_ms: int
    log_position: int
    queue_offset: int


class TimerCheckpoint:
    """The file's content.

    ``progress`` is None when there is no usable file; ``is_own`` says that OrbitMQ wrote it last.
    """

    def __init__(self, ops: FileOps, path: Path) -> None:
        self._ops = ops
        self._path = path
        content = path.read_bytes() if path.exists() else b""
        self.progress: TimerProgress | None = None
        self.is_own = False
        self._state_version = self._counter = 0
        if len(content) >= _APACHE.size:
            fields = _APACHE.unpack_from(content)
            read_ms, position, offset, _master, self._state_version, _time, self._counter = fields
            if read_ms > 0 and position >= 0 and offset >= 0:
                self.progress = TimerProgress(read_ms, position, offset)
        if len(content) == _SIZE:
            mark = _MARK.unpack_from(content, _MARK_PLACE)
            self.is_own = mark == (_MARK_MAGIC, zlib.crc32(content[: _APACHE.size]))

    def encode(self, progress: TimerProgress, now_ms: int) -> bytes:
        """The 56 bytes that are Apache's."""
        read_ms, position, offset = progress
        return _APACHE.pack(
            read_ms, position, offset, offset, self._state_version, now_ms, self._counter
        )

    def write(self, progress: TimerProgress, now_ms: int) -> None:
        """Bring ``progress`` to the disk, in one write of one page. Raises OSError."""
        self._counter += 1
        apache = self.encode(progress, now_ms)
        page = bytearray(_SIZE)
        page[: len(apache)] = apache
        _MARK.pack_into(page, _MARK_PLACE, _MARK_MAGIC, zlib.crc32(apache))
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fd = self._ops.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            write_fully(self._ops, fd, bytes(page), 0)
            self._ops.fdatasync(fd)
        finally:
            os.close(fd)
