"""The commit log: every record of the store, one after the other, in files of one size.

Records are staged first and then written together, so that a tick of the broker costs one write.
A write that fails takes all of its records back, and makes sure that the bytes it left behind can
never be read as records: not now, and not after a crash.
"""

from __future__ import annotations

import logging
import mmap
import os
import struct
import zlib
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple

from orbitmq.errors import InvalidMessageError
from orbitmq.store.file_ops import FileOps, store_error
from orbitmq.store.segment import Segment, list_segments
from orbitmq.wire.batch_records import BatchRecords
from orbitmq.wire.record import (
    LAYOUTS,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    RECORD_HEADER,
    BatchItem,
    Draft,
    encode_blank,
    encode_record,
)

logger = logging.getLogger("orbitmq.store")

END_BLANK: Final = 8
"""Bytes a file keeps free for the filler at its end (END_FILE_MIN_BLANK_LENGTH)."""

_HEAD: Final = struct.Struct(">iI20xq")  # size, magic, physical offset
_SYS_FLAG: Final = struct.Struct(">i")
_TIMESTAMP: Final = struct.Struct(">q")


class LogPart(NamedTuple):
    """What is written of one file, up to ``end``; ``view`` is all of the file, from ``base`` on."""

    view: memoryview
    base: int
    end: int


class CommitLog:
    """The files under ``commitlog/``.

    ``end`` is the physical offset after the last written record, ``staged_end`` the one after
    the last staged record. One thread stages and writes; ``sync``, ``write_again`` and
    ``delete_oldest`` may be called from others. ``failed_syncs`` counts what the disk refused: the
    kernel tells a failure to one caller only, so a flush means something only if none failed since
    its bytes were written.
    """

    def __init__(self, ops: FileOps, directory: Path, segment_size: int) -> None:
        self._ops = ops
        self._advice = mmap.MADV_NORMAL
        self.directory: Final = directory
        self._size = segment_size
        bases = list_segments(directory, segment_size, "commit-log file", "mapped_file_size")
        self._segments = [Segment(ops, directory, base, segment_size) for base in bases]
        self._listing = Lock()  # held to replace that list, which is never changed itself
        self.end = self._segments[-1].end if self._segments else 0
        self._stale_end = self.end  # up to here a failed write may have left bytes
        self._wipe_again = False
        self.failed_syncs = 0
        self._syncing = Lock()
        self.staged_end = self._chunk_start = self._staging_limit = self.end
        self._parts: list[bytes] = []
        self._full_chunks: list[tuple[int, list[bytes]]] = []
        self._restart_staging()

    @property
    def min_offset(self) -> int:
        """Where the oldest file begins; equal to ``end`` when there is none."""
        return self._segments[0].base if self._segments else self.end

    @property
    def segments(self) -> list[Segment]:
        """The files, oldest first, in a list of the caller's own."""
        return self._segments.copy()

    def set_read_ahead(self, *, enabled: bool) -> None:
        """Whether the system reads on ahead of what is read (CommitLog.scanFileAndSetReadMode)."""
        self._advice = mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM
        for segment in self.segments:
            segment.advise(self._advice)

    def stage(self, draft: Draft, queue_offset: int, store_timestamp: int) -> int:
        """Give ``draft`` its place and encode it; its record ends at ``staged_end``.

        Returns the record's size. Rolls to the next file when this one has no room for the
        record and the filler after it (CommitLog.DefaultAppendMessageCallback.doAppend). Raises
        RecordError for a field that does not fit and InvalidMessageError for a record no file
        can hold; nothing is staged then.
        """
        position = self.staged_end
        record = encode_record(draft, queue_offset, position, store_timestamp)
        size = len(record)
        if position + size + END_BLANK > self._staging_limit:
            self.check_size(size)
            position = self._roll()
            record = encode_record(draft, queue_offset, position, store_timestamp)
        self._parts.append(record)
        self.staged_end = position + size
        return size

    @property
    def room(self) -> tuple[int, int]:
        """Where the next record begins, and where it must end to be in the same file."""
        return self.staged_end, self._staging_limit - END_BLANK

    def stage_records(self, records: bytes) -> None:
        """Stage records that are encoded already, for the places that ``room`` tells."""
        self._parts.append(records)
        self.staged_end += len(records)

    def stage_batch(
        self, records: BatchRecords, items: Sequence[BatchItem], queue_offsets: Sequence[int]
    ) -> tuple[list[int], list[int]]:
        """As stage(), for messages that have all else in common; all are staged, or none.

        Returns their physical offsets and their sizes.
        """
        sizes = records.sizes(items)
        self.check_size(max(sizes))
        offsets: list[int] = []
        by_file: list[tuple[list[bytes], int]] = []  # and where they end
        position, limit = self.staged_end, self._staging_limit
        while len(offsets) < len(items):
            first = len(offsets)
            ends = list(accumulate(sizes[first:], initial=position))
            stop = max(0, bisect_right(ends, limit - END_BLANK) - 1)  # so many fit
            rest = slice(first, first + stop)
            pieces = records.encode(items[rest], queue_offsets[rest], ends[:stop], sizes[rest])
            by_file.append((pieces, ends[stop]))
            offsets += ends[:stop]
            position, limit = limit, limit + self._size
        for number, (pieces, end) in enumerate(by_file):
            if number:
                self._roll()
            self._parts += pieces
            self.staged_end = end
        return offsets, sizes

    def check_size(self, size: int) -> None:
        """Raise InvalidMessageError for a record of ``size`` bytes that no file can hold."""
        if size + END_BLANK > self._size:
            raise InvalidMessageError(
                f"a record of {size} bytes does not fit in a commit-log file of {self._size} bytes "
                "(mapped_file_size)"
            )

    def write(self) -> None:
        """Write what is staged: one pwrite a file.

        When that fails, everything staged is dropped, ``end`` stays, and DiskFullError or
        another StoreError says why; the log goes on to work.
        """
        chunks = [*self._full_chunks, (self._chunk_start, self._parts)]
        staged_end = self.staged_end
        old_files = self._segments
        try:
            self._clean_stale()
            for start, parts in chunks:
                self._segment_to_write(start).write(start, b"".join(parts))
        except OSError as error:
            self._take_back(old_files, staged_end)
            raise store_error(error, self.directory, "write the commit log") from error
        else:
            self.end = staged_end
        finally:
            self._restart_staging()

    def _restart_staging(self) -> None:
        self.staged_end = self._chunk_start = self.end
        self._parts = []
        self._full_chunks = []
        self._staging_limit = (self.end // self._size + 1) * self._size

    def _roll(self) -> int:
        """Stage the filler that ends the current file; the next file's first offset."""
        limit = self._staging_limit
        self._parts.append(encode_blank(limit - self.staged_end))
        self._full_chunks.append((self._chunk_start, self._parts))
        self._parts = []
        self._chunk_start = limit
        self._staging_limit = limit + self._size
        return limit

    def _segment_to_write(self, start: int) -> Segment:
        if self._segments and start < self._segments[-1].end:
            return self._segments[-1]
        segment = Segment.create(self._ops, self.directory, start - start % self._size, self._size)
        segment.advise(self._advice)
        with self._listing:
            self._segments = [*self._segments, segment]
        return segment

    def _take_back(self, old_files: list[Segment], staged_end: int) -> None:
        """Remove what a failed write left: new files, and bytes after ``end`` in an old one."""
        new_files = [segment for segment in self._segments if segment not in old_files]
        with self._listing:
            self._segments = [segment for segment in self._segments if segment in old_files]
        for segment in new_files:
            try:
                segment.delete()
            except OSError:
                logger.exception("cannot delete %s, made by a write that failed", segment.path)
        if self._segments and self.end < self._segments[-1].end:
            self._stale_end = max(self._stale_end, min(staged_end, self._segments[-1].end))
            try:
                self._clean_stale()
            except OSError as error:
                logger.warning(
                    "a failed write is not wiped yet, next try before a write: %s", error
                )

    def _clean_stale(self) -> None:
        """Wipe what failed writes left after ``end``, or a crash might bring it back."""
        if self._stale_end > self.end:
            segment = self._segments[-1]
            if segment.zero(self.end, self._stale_end, again=self._wipe_again):
                self._wipe_again = True
                self._sync(segment)
            self._wipe_again = False
            self._stale_end = self.end

    def find(self, offset: int) -> Segment | None:
        """The file that holds ``offset``."""
        segments = self._segments
        if not segments:
            return None
        index = (offset - segments[0].base) // self._size
        return segments[index] if 0 <= index < len(segments) else None

    def next_file(self, offset: int) -> int:
        """Where the file after the one that holds ``offset`` begins (CommitLog.rollNextFile)."""
        return offset + self._size - offset % self._size

    def part(self, offset: int) -> LogPart | None:
        """What is written of the file that holds ``offset``; None when the log has no such file."""
        segment = self.find(offset)
        if segment is None:
            return None
        try:
            return LogPart(segment.view, segment.base, min(segment.end, self.end))
        except FileNotFoundError:  # deleted since it was found
            return None

    def slice(self, offset: int, size: int) -> memoryview | None:
        """``size`` written bytes at ``offset``; None unless all are in one file of the log."""
        part = self.part(offset)
        if part is None or not 0 <= size <= part.end - offset:
            return None
        start = offset - part.base
        return part.view[start : start + size]

    def record_at(self, offset: int) -> memoryview | None:
        """The record that begins at ``offset``; None when none does, or it is not written yet."""
        head = self.slice(offset, RECORD_HEADER.body)
        if head is None:
            return None
        size, magic, place = _HEAD.unpack_from(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or place != offset or size < MIN_RECORD_SIZE:
            return None
        return self.slice(offset, size)

    def store_timestamp_at(self, offset: int) -> int:
        """When the record at ``offset`` was stored, ms; -1 when there is none."""
        record = self.record_at(offset)
        if record is None:
            return -1
        (sys_flag,) = _SYS_FLAG.unpack_from(record, RECORD_HEADER.sys_flag)
        layout = LAYOUTS[sys_flag >> 4 & 3]
        (timestamp,) = _TIMESTAMP.unpack_from(record, layout.store_timestamp)
        return int(timestamp)

    def fingerprint(self, offset: int) -> int:
        """A checksum of the fixed part of the record at ``offset``; 0 for an offset of no file."""
        segment = self.find(offset)
        if segment is None:
            return 0
        return zlib.crc32(os.pread(segment.fd, RECORD_HEADER.body, offset - segment.base))

    def sync(self, start: int, stop: int) -> None:
        """Bring the bytes from ``start`` to ``stop`` to the disk. Raises OSError."""
        for segment in self.segments:
            if segment.base < stop and segment.end > start:
                self._sync(segment)

    def write_again(self, start: int, stop: int) -> None:
        """Write the bytes from ``start`` to ``stop``, of one file, over themselves."""
        segment = self.find(start)
        if segment is not None:
            segment.write_again(start, stop)

    def _sync(self, segment: Segment) -> None:
        with self._syncing:
            try:
                segment.sync()
            except OSError:
                self.failed_syncs += 1
                raise

    def delete_oldest(self) -> Path:
        """Remove the oldest file, which must not be the last; its path.

        Slices of it that someone has stay readable. Raises OSError.
        """
        first = self._segments[0]
        first.unlink()
        with self._listing:
            self._segments = self._segments[1:]
        self._ops.fsync_directory(self.directory)  # or a power cut might keep it and lose the next
        return first.path

    def cut(self, end: int) -> bool:
        """Make ``end`` the log's end: later files go, later bytes of its own file become zero.

        For recovery, before anything is staged. Whether a byte other than zero was there, apart
        from deleted files. Raises OSError.
        """
        keep = [segment for segment in self._segments if segment.base < end]
        for segment in reversed(self._segments[len(keep) :]):
            segment.delete()
        self._ops.fsync_directory(self.directory)
        self._segments = keep
        changed = bool(keep) and keep[-1].zero(end, keep[-1].end)
        if changed:
            keep[-1].sync()
        self.end = self._stale_end = end
        self._restart_staging()
        return changed

    def close(self) -> None:
        """Give all files back; nothing is found in the log from then on."""
        for segment in self._segments:
            segment.close()
        self._segments = []
