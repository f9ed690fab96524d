"""The ``checkpoint`` file: Apache's timestamps, and the mark this store's recovery starts from.

Apache RocketMQ uses the first 40 of the file's 4096 bytes: the store times up to which the log and
the queues are on disk, and a few offsets. The mark stands further back, where Apache neither looks
nor writes: up to which physical offset everything, log and queues, is on disk, with enough beside
it to notice that the directory is no longer the one it was written for. Behind it, how many entries
a consume-queue file has, and how many bytes a commit-log file; last, up to where the key index is
on disk.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from orbitmq.store.file_ops import FileOps, write_fully

CHECKPOINT_SIZE: Final = 4096
_APACHE: Final = struct.Struct(">5q")
_MARK_PLACE: Final = 1024
_MARK: Final = struct.Struct(">8sqqIIq")
_MARK_MAGIC: Final = b"OrbitMQ1"
_CHECKSUM: Final = struct.Struct(">I")
_UNITS_PLACE: Final = 1536
_UNITS: Final = struct.Struct(">8sII")
_UNITS_MAGIC: Final = b"OrbitMQu"
_INDEX_PLACE: Final = 2048
_INDEX: Final = struct.Struct(">8s8q")
_INDEX_MAGIC: Final = b"OrbitMQi"
_NEVER: Final = 2**63 - 1


class Mark(NamedTuple):
    """Everything before ``position`` of the commit log, and its queue entries, is on disk.

    ``last_record`` is where the last record before ``position`` begins (-1: there is none) and
    ``fingerprint`` its checksum; ``queues`` counts the consume queues that have entries before
    ``position``, ``offsets`` adds up the queue offsets they reach.
    """

    position: int
    last_record: int
    fingerprint: int
    queues: int
    offsets: int


class IndexMark(NamedTuple):
    """The key index as it is on disk: all before ``position`` of the commit log is in it.

    ``files`` of them, the newest by the name ``name`` (a number; 0: there is none) and with these
    fields in its header, when the log began at ``log_min``.
    """

    position: int
    log_min: int
    files: int
    name: int
    index_count: int
    slot_count: int
    end_offset: int
    end_timestamp: int


class Checkpoint:
    """The file's content; ``existed`` says whether there was a usable one.

    ``log_timestamp`` and ``queue_timestamp`` are Java's physicMsgTimestamp and logicsMsgTimestamp
    (StoreCheckpoint), ms. What else Apache keeps in the file is preserved. ``queue_units`` is the
    consume_queue_units that the directory was last used with, ``log_file_size`` the
    mapped_file_size; 0 when that is not known.
    ``index_timestamp`` is Java's indexMsgTimestamp: an index file of later messages is not to be
    trusted after a crash. ``indexed_timestamp`` is up to when messages are in the index, ms: the
    two others are written no later, so that Apache's recovery reads what the index lacks.
    """

    def __init__(self, ops: FileOps, path: Path) -> None:
        self._ops = ops
        self._path = path
        content = path.read_bytes() if path.exists() else b""
        self.existed: Final = len(content) == CHECKPOINT_SIZE
        if not self.existed:
            content = bytes(CHECKPOINT_SIZE)
        self._writing = Lock()
        self.log_timestamp, self.queue_timestamp, self.index_timestamp, *rest = _APACHE.unpack_from(
            content
        )
        self.indexed_timestamp = _NEVER
        self._rest: Final = tuple(rest)
        self.mark = _read_mark(content)
        self.index_mark = _read_index_mark(content)
        magic, *sizes = _UNITS.unpack_from(content, _UNITS_PLACE)
        self.queue_units: int
        self.log_file_size: int
        self.queue_units, self.log_file_size = sizes if magic == _UNITS_MAGIC else (0, 0)

    def forget_mark(self) -> None:
        """Have the next recovery read the whole log. Raises OSError."""
        if self.mark is not None:
            self.mark = None
            self.write()

    def write(self) -> None:
        """Bring all of it to the disk, in one write of one page, on any thread. Raises OSError."""
        with self._writing:
            self._write(self._page())

    def _page(self) -> bytearray:
        page = bytearray(CHECKPOINT_SIZE)
        log = min(self.log_timestamp, self.indexed_timestamp)
        queue = min(self.queue_timestamp, self.indexed_timestamp)
        _APACHE.pack_into(page, 0, log, queue, self.index_timestamp, *self._rest)
        if self.mark is not None:
            mark = _MARK.pack(_MARK_MAGIC, *self.mark)
            page[_MARK_PLACE : _MARK_PLACE + _MARK.size] = mark
            _CHECKSUM.pack_into(page, _MARK_PLACE + _MARK.size, zlib.crc32(mark))
        _UNITS.pack_into(page, _UNITS_PLACE, _UNITS_MAGIC, self.queue_units, self.log_file_size)
        if self.index_mark is not None:
            index_mark = _INDEX.pack(_INDEX_MAGIC, *self.index_mark)
            page[_INDEX_PLACE : _INDEX_PLACE + _INDEX.size] = index_mark
            _CHECKSUM.pack_into(page, _INDEX_PLACE + _INDEX.size, zlib.crc32(index_mark))
        return page

    def _write(self, page: bytearray) -> None:
        fd = self._ops.open(self._path, os.O_RDWR | os.O_CREAT)
        try:
            write_fully(self._ops, fd, bytes(page), 0)
            self._ops.fdatasync(fd)
        finally:
            os.close(fd)


def _read_mark(content: bytes) -> Mark | None:
    mark = content[_MARK_PLACE : _MARK_PLACE + _MARK.size]
    magic, *fields = _MARK.unpack(mark)
    (checksum,) = _CHECKSUM.unpack_from(content, _MARK_PLACE + _MARK.size)
    if magic != _MARK_MAGIC or checksum != zlib.crc32(mark):
        return None
    return Mark(*fields)


def _read_index_mark(content: bytes) -> IndexMark | None:
    mark = content[_INDEX_PLACE : _INDEX_PLACE + _INDEX.size]
    magic, *fields = _INDEX.unpack(mark)
    (checksum,) = _CHECKSUM.unpack_from(content, _INDEX_PLACE + _INDEX.size)
    if magic != _INDEX_MAGIC or checksum != zlib.crc32(mark):
        return None
    return IndexMark(*fields)
