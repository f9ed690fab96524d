"""Parts of the commit log that are no records, though no crash explains it.

A file was cut short or lost, or bytes were changed. Whoever walks the log notes such a part and
goes on at the next sound record; consume queues have filler for the messages in it, so that
readers pass over it.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.store.commit_log import CommitLog
from orbitmq.store.file_ops import FileOps, write_fully
from orbitmq.store.log_records import records
from orbitmq.store.segment import create_file, segment_name
from orbitmq.wire.record import MAGIC_V1, MAGIC_V2, RECORD_HEADER, encode_blank

logger = logging.getLogger("orbitmq.store")

_MOST_MISSING: Final = 1024


class Damage(NamedTuple):
    """The log from ``start`` up to the next sound record, at ``end``."""

    start: int
    end: int


def next_record(log: CommitLog, start: int) -> int | None:
    """Where the first sound record at or after ``start`` begins. Raises OSError."""
    for segment in log.segments:
        if segment.end <= start:
            continue
        found = []
        for magic in (MAGIC_V1, MAGIC_V2):
            pattern = magic.to_bytes(4, "big")
            for place in segment.find_bytes(pattern, max(start, segment.base)):
                offset = place - RECORD_HEADER.magic
                if offset >= start and next(records(segment, offset), None) is not None:
                    found.append(offset)
                    break
        if found:
            return min(found)
    return None


class BrokenFile(NamedTuple):
    """A file of the commit log that was cut short to ``size`` bytes, or is missing (-1)."""

    base: int
    size: int


def broken_files(directory: Path, size: int, known_size: int) -> list[BrokenFile]:
    """The files that were cut short, or are missing between others.

    [] where the files may have been written with another ``size``: ``known_size`` is that of the
    last use, 0 where not known. Raises OSError.
    """
    sizes = _sizes(directory)
    while sizes and not sizes[max(sizes)]:
        sizes.pop(max(sizes))  # empty last files are what a crash leaves
    fits = known_size == size or (not known_size and size in sizes.values())
    if not fits or any(base % size or found > size for base, found in sizes.items()):
        return []
    places = range(min(sizes, default=0), max(sizes, default=0), size)
    broken = [BrokenFile(base, found) for base, found in sizes.items() if found < size]
    if len(places) - len(sizes) <= _MOST_MISSING:
        broken += [BrokenFile(base, -1) for base in places if base not in sizes]
    return broken


def mend(ops: FileOps, directory: Path, broken: list[BrokenFile], size: int) -> None:
    """Let these files be there in full length. Raises OSError.

    What is not there any more becomes zeros; a missing file holds filler only, so that Apache's
    broker walks over it too.
    """
    for base, found in broken:
        path = directory / segment_name(base)
        if found < 0:
            _replace_missing(ops, path, size)
        else:
            _lengthen(ops, path, found, size)


def _sizes(directory: Path) -> dict[int, int]:
    try:
        entries = sorted(os.scandir(directory), key=lambda entry: entry.name)
    except FileNotFoundError:
        return {}
    return {
        int(entry.name): entry.stat().st_size
        for entry in entries
        if entry.name.isascii() and entry.name.isdigit()
    }


def _lengthen(ops: FileOps, path: Path, found: int, size: int) -> None:
    logger.error(
        "the commit-log file %s has been cut short to %d bytes: messages behind them are lost. Put "
        "a whole copy in its place, if there is one, and delete consumequeue and checkpoint",
        path, found,
    )  # fmt: skip
    fd = ops.open(path, os.O_RDWR)
    try:
        ops.ftruncate(fd, size)
        ops.fdatasync(fd)
    finally:
        os.close(fd)


def _replace_missing(ops: FileOps, path: Path, size: int) -> None:
    logger.error(
        "the commit-log file %s is missing between others: its messages are lost. An empty one "
        "takes its place; put a copy there, if there is one, and delete consumequeue and "
        "checkpoint",
        path,
    )
    fd = create_file(ops, path, size)
    try:
        write_fully(ops, fd, encode_blank(size), 0)
        ops.fdatasync(fd)
    finally:
        os.close(fd)
    ops.fsync_directory(path.parent)
