"""Looking a store directory through: every record, queue entry, index slot and settings file.

Nothing is changed. A directory of Apache RocketMQ's is looked through like one of ours. The log is
read once, and what refers to it is held against it: check_queues.py, check_index.py,
check_timers.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from orbitmq.errors import BodyError
from orbitmq.store.check_index import IndexCheck
from orbitmq.store.check_queues import QueueCheck
from orbitmq.store.check_timers import check_timers
from orbitmq.store.checkpoint import CHECKPOINT_SIZE, Checkpoint
from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.consume_queue import UNIT_SIZE
from orbitmq.store.damage import broken_files, next_record
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.findings import Findings, Problem
from orbitmq.store.index_file import HEADER, IndexShape
from orbitmq.store.index_recovery import index_paths
from orbitmq.store.index_slots import ENTRY
from orbitmq.store.log_records import records
from orbitmq.store.segment import any_byte
from orbitmq.wire import fastjson
from orbitmq.wire.record import is_blank

__all__ = ["Layout", "OnProgress", "Problem", "check_store", "find_layout"]

OnProgress: TypeAlias = Callable[[str, int, int], object]
"""Called now and then with what is looked through, how much of it was, and how much there is."""

_DEFAULT_SHAPE: Final = IndexShape(5_000_000, 20_000_000)
_PROGRESS_EVERY: Final = 2_000
_SLOTS_A_ENTRY: Final = 4


class Layout(NamedTuple):
    """The sizes a directory was written with: see StoreConfig."""

    mapped_file_size: int
    consume_queue_units: int
    shape: IndexShape


def find_layout(root: Path, shape: IndexShape | None = None) -> Layout:
    """The sizes that most of the files have; without files those last used, or the defaults.

    ``shape``: that of index files, which one size alone does not tell; without it Java's
    four entries a slot are taken for granted. Raises OSError.
    """
    log_size = _usual_size(list((root / "commitlog").glob("[0-9]*")))
    queue_size = _usual_size(list((root / "consumequeue").glob("*/*/[0-9]*")))
    index_size = _usual_size(index_paths(root / "index"))
    known = Checkpoint(FILE_OPS, root / "checkpoint")
    return Layout(
        log_size or known.log_file_size or 1 << 30,
        queue_size // UNIT_SIZE or known.queue_units or 300_000,
        shape or _guessed_shape(index_size) or _DEFAULT_SHAPE,
    )


def _usual_size(paths: list[Path]) -> int:
    sizes = [path.stat().st_size for path in paths]
    return max(set(sizes), key=sizes.count, default=0)


def _guessed_shape(size: int) -> IndexShape | None:
    slots = (size - HEADER.size) // (4 + _SLOTS_A_ENTRY * ENTRY.size)
    shape = IndexShape(slots, _SLOTS_A_ENTRY * slots)
    return shape if slots > 0 and shape.size == size else None


def check_store(root: Path, layout: Layout, on_progress: OnProgress | None = None) -> Findings:
    """Look everything through; nobody else may use the directory meanwhile. Raises OSError."""
    findings = Findings()
    progress = on_progress or _unheard
    _check_settings(root, findings)
    broken = broken_files(root / "commitlog", layout.mapped_file_size, layout.mapped_file_size)
    for file in broken:
        what = "is missing between others" if file.size < 0 else f"has {file.size} bytes only"
        findings.add(
            Problem("log", root / "commitlog", file.base, f"the file of this offset {what}")
        )
    if broken:
        findings.note("the records were not looked at: the commit log has files of other sizes")
        return findings
    log = CommitLog(FILE_OPS, root / "commitlog", layout.mapped_file_size)
    topics = _known_topics(root / "config" / "topics.json")
    queues = QueueCheck(root / "consumequeue", layout.consume_queue_units, topics, findings)
    index = IndexCheck(root / "index", layout.shape, log.min_offset, findings)
    try:
        _check_log(log, queues, index, findings, progress)
        queues.finish(log.min_offset)
        index.finish()
        check_timers(root, log, findings.end, findings, progress)
    finally:
        index.close()
        queues.close()
        log.close()
    return findings


def _check_log(
    log: CommitLog,
    queues: QueueCheck,
    index: IndexCheck,
    findings: Findings,
    progress: OnProgress,
) -> None:
    begin = position = log.min_offset
    total = log.end - begin
    while (segment := log.find(position)) is not None:
        for info in records(segment, position):
            findings.messages += 1
            position += info.size
            queues.see(info)
            index.see(info)
            if findings.messages % _PROGRESS_EVERY == 0:
                progress("messages", position - begin, total)
        rest = segment.read(position, END_BLANK)
        if rest and not is_blank(rest, 0, len(rest)):
            sound = next_record(log, position + 1)
            if sound is None:
                break
            findings.add(
                Problem("log", segment.path, position, f"damaged up to {sound}", end=sound)
            )
            position = sound
        else:
            position = segment.end
        progress("messages", position - begin, total)
    findings.end = position
    _check_tail(log, position, findings)
    progress("messages", total, total)


def _check_tail(log: CommitLog, end: int, findings: Findings) -> None:
    """Behind the last record there may be nothing but zeros."""
    for segment in log.segments:
        if segment.end > end:
            start = max(end, segment.base)
            piece = segment.read(start, 1 << 20)
            if any_byte(piece):
                findings.add(
                    Problem(
                        "tail",
                        segment.path,
                        start,
                        "bytes of no whole message stand behind the last one, as a crash leaves "
                        "them",
                        end=segment.end,
                    )
                )
                return


def _check_settings(root: Path, findings: Findings) -> None:
    checkpoint = root / "checkpoint"
    if checkpoint.exists() and checkpoint.stat().st_size != CHECKPOINT_SIZE:
        size = checkpoint.stat().st_size
        findings.add(Problem("checkpoint", checkpoint, 0, f"has {size} of {CHECKPOINT_SIZE} bytes"))
    if (root / "abort").exists():
        findings.note("the broker that used this directory last did not end in order")
    for path in sorted((root / "config").glob("*.json")):
        what = settings_damage(path)
        if what:
            findings.add(Problem("config", path, 0, what))


def settings_damage(path: Path) -> str:
    """Why a settings file cannot be read as JSON, "" when it can."""
    content = path.read_bytes()
    if not content:
        return "is empty"
    try:
        fastjson.decode(content)
    except (BodyError, RecursionError) as error:
        return f"is no JSON: {error}"
    return ""


def _known_topics(path: Path) -> frozenset[str]:
    """The topics that a settings file has; none where it cannot be read."""
    if not path.exists() or settings_damage(path):
        return frozenset()
    content = fastjson.decode(path.read_bytes())
    table = content.get("topicConfigTable") if isinstance(content, dict) else None
    return frozenset(map(str, table)) if isinstance(table, dict) else frozenset()


def _unheard(what: str, done: int, total: int) -> None:
    """Nobody looks at the progress."""
