"""Which files of the key index are to be trusted when a store is opened, and from where on to read.

The index is made from the commit log, like the consume queues. Its files are as good as the last
save before the process ended (see index_file.py): after a crash the newest one is taken back to
the mark in ``checkpoint``. Where there is no such mark, because Apache RocketMQ used the directory
last, its own rule holds: files of messages later than indexMsgTimestamp go (IndexService.load).
Whatever goes, and whatever is damaged or missing, is made anew from the log, in the background;
Apache makes anew only what its recovery of the log happens to read.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.store.checkpoint import Checkpoint, IndexMark
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.file_ops import FileOps
from orbitmq.store.index_file import IndexFile, IndexHeader, IndexShape, IndexWriter

logger = logging.getLogger("orbitmq.store")

_NAME_LENGTH: Final = 17


class LoadedIndex(NamedTuple):
    """The files, the oldest first, and ``position``: from where on the log is not in them.

    The last file is an IndexWriter unless it is full. The record at ``known``, if not -1, is in the
    index although it does not lie before ``position``.
    """

    files: list[IndexFile]
    position: int
    known: int


def index_paths(directory: Path) -> list[Path]:
    """The index files in a directory, the oldest first: names as ``yyyyMMddHHmmssSSS``."""
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if is_index_name(path.name))


def is_index_name(name: str) -> bool:
    """Whether a file of that name is one of the key index."""
    return len(name) == _NAME_LENGTH and name.isascii() and name.isdigit()


def header_damage(file: IndexFile, previous_end: int, log_end: int) -> str:
    """What is impossible in a file's header, behind one that ends at ``previous_end``; or ""."""
    header = file.header
    if not 1 <= header.index_count <= file.shape.entries:
        return f"its header counts {header.index_count} of at most {file.shape.entries} entries"
    if header.index_count == 1:
        return ""
    if not previous_end <= header.begin_offset <= header.end_offset:
        return (
            f"its header says physical offsets {header.begin_offset} to {header.end_offset}, after "
            f"a file that ends at {previous_end}"
        )
    if header.end_offset >= log_end:
        return f"it has a message at {header.end_offset}, and the commit log ends at {log_end}"
    return ""


def load_index(
    ops: FileOps,
    directory: Path,
    shape: IndexShape,
    checkpoint: Checkpoint,
    log: CommitLog,
    *,
    clean: bool,
) -> LoadedIndex:
    """The index as it can be trusted; files that cannot are deleted, with a warning.

    ``clean`` says that whoever used the directory last closed it properly. Raises OSError.
    """
    mark = checkpoint.index_mark
    if mark is not None and not log.min_offset <= mark.position <= log.end:
        mark = None
    paths = index_paths(directory)
    if mark is not None and mark.log_min == log.min_offset:
        there = sum(int(path.name) <= mark.name for path in paths)
        if there < mark.files:
            _delete(ops, paths, f"{mark.files - there} file(s) of the key index are missing")
            return LoadedIndex([], log.min_offset, -1)
    loader = _Loader(ops, shape, log.end, clean, checkpoint.index_timestamp, mark)
    for number, path in enumerate(paths):
        refusal = loader.load(path)
        if refusal:
            _delete(ops, paths[number:], f"{path}: {refusal}")
            break
    return loader.loaded(log.min_offset)


class _Loader:
    """Opens the files one after the other until one is not to be trusted."""

    def __init__(
        self,
        ops: FileOps,
        shape: IndexShape,
        log_end: int,
        clean: bool,
        safe_timestamp: int,
        mark: IndexMark | None,
    ) -> None:
        self._ops = ops
        self._shape = shape
        self._log_end = log_end
        self._clean = clean
        self._safe_timestamp = safe_timestamp
        self._mark = mark
        self._files: list[IndexFile] = []
        self._is_marked = False

    def load(self, path: Path) -> str:
        """Open a file; why it is not to be trusted, or ""."""
        size = path.stat().st_size
        if size != self._shape.size:
            return f"it has {size} bytes, and the settings make {self._shape.size}"
        file = IndexFile(self._ops, path, self._shape)
        refusal = self._refusal(file)
        file.close()
        if not refusal:
            self._keep(file)
        return refusal

    def _refusal(self, file: IndexFile) -> str:
        mark, header, name = self._mark, file.header, int(file.path.name)
        end = self._files[-1].header.end_offset if self._files else 0
        if not self._clean and mark is not None and self._has_mark(file):
            if name > mark.name:
                return "it is newer than what the checkpoint says is on the disk"
            if name == mark.name:
                header = _header(mark, header)
                file.header = header
        elif not self._clean and header.end_timestamp > self._safe_timestamp:
            return "it is newer than what the checkpoint says is on the disk"
        return header_damage(file, end, self._log_end)

    def _has_mark(self, file: IndexFile) -> bool:
        """Whether the mark's file is there, as far as can be told at ``file``."""
        mark, name = self._mark, int(file.path.name)
        if mark is None or name > mark.name:
            return self._is_marked or (mark is not None and not mark.name)
        if name < mark.name:
            return file.is_full and (file.path.parent / f"{mark.name:017d}").exists()
        return file.header.index_count >= mark.index_count

    def _keep(self, file: IndexFile) -> None:
        mark = self._mark
        header = file.header
        if header.index_count < self._shape.entries:
            writer = IndexWriter(self._ops, file.path, self._shape)
            if not self._clean:
                writer.cut(header)
            self._files.append(writer)
        else:
            self._files.append(IndexFile(self._ops, file.path, self._shape))
        self._is_marked = (
            mark is not None
            and int(file.path.name) == mark.name
            and (header.index_count == mark.index_count)
        )

    def loaded(self, log_min: int) -> LoadedIndex:
        """What there is, and from where on to read."""
        for file in self._files[:-1]:
            if isinstance(file, IndexWriter):
                file.freeze()
        mark = self._mark
        if mark is not None and (self._is_marked or (not self._files and not mark.name)):
            return LoadedIndex(self._files, mark.position, -1)
        if not self._files:
            return LoadedIndex([], log_min, -1)
        last = self._files[-1]
        end = last.header.end_offset
        is_whole = last.header.index_count > 1 and not last.is_full
        return LoadedIndex(self._files, max(end, log_min), end if is_whole else -1)


def _header(mark: IndexMark, header: IndexHeader) -> IndexHeader:
    return header._replace(
        index_count=mark.index_count,
        slot_count=mark.slot_count,
        end_offset=mark.end_offset,
        end_timestamp=mark.end_timestamp,
    )


def _delete(ops: FileOps, paths: list[Path], reason: str) -> None:
    logger.warning(
        "%s: %d file(s) of the key index are made anew from the commit log", reason, len(paths)
    )
    for path in paths:
        ops.unlink(path)
