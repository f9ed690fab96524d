"""Mending a store directory: what would be done, and doing it, with backups of what is replaced.

The log is the truth: consume queues and index are made anew from it, by opening the store as a
broker does. What is moved or changed is kept under ``repair-<time>/`` in the directory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.names import TIMER_TOPIC
from orbitmq.store.check import Layout, settings_damage
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.findings import Findings
from orbitmq.store.message_store import MessageStore
from orbitmq.store.segment import data_ranges

_POLL_SECONDS: Final = 0.05


class Step(NamedTuple):
    """What ``do`` does, in words; ``do`` takes the directory for backups."""

    what: str
    do: Callable[[Path], object]


def plan_repair(root: Path, findings: Findings) -> list[Step]:
    """What is to be done about the findings, in this order; [] when there is nothing to do."""
    steps = []
    for problem in findings.problems:
        if problem.kind == "tail":
            steps.append(_cut_tail(problem.path, problem.offset))
        elif problem.kind == "config":
            steps.append(_replace_settings(problem.path))
        elif problem.kind == "checkpoint":
            what = f"move {problem.path} aside: all of the log is read again"
            steps.append(Step(what, _mover(problem.path, root)))
    damaged = sorted({problem.offset for problem in findings.problems if problem.kind == "log"})
    for offset in damaged:
        what = (
            f"pass over the damage of the commit log at {offset}: what was there is lost, what "
            "follows stays readable. Restore the file from a copy instead, if there is one"
        )
        steps.append(Step(what, _nothing))
    for topic, queue_id in sorted(findings.queues):
        path = root / "consumequeue" / topic / str(queue_id)
        what = f"move {path} aside and make the queue anew from the commit log"
        steps.append(Step(what, _mover(path, root)))
    if "index" in findings.kinds:
        path = root / "index"
        what = f"move {path} aside and make the key index anew from the commit log"
        steps.append(Step(what, _mover(path, root)))
    if "timers" in findings.kinds:
        what = (
            f"move timerwheel and timerlog of {root} aside: a broker that starts takes the timers "
            f"in again from topic {TIMER_TOPIC}, but for those that were delivered"
        )
        steps.append(Step(what, _mover(root / "timerwheel", root, root / "timerlog")))
    return steps


def carry_out(
    root: Path,
    layout: Layout,
    steps: list[Step],
    on_progress: Callable[[str, int, int], object],
    clock: Clock = SYSTEM_CLOCK,
) -> Path:
    """Carry the steps out and bring the store into agreement; where the backups are.

    Raises StoreError and OSError. What was done before then stays done; it can be repeated.
    """
    now = clock.now_ms()
    name = time.strftime("repair-%Y%m%d-%H%M%S", time.localtime(now // 1000))
    backups = root / f"{name}-{now % 1000:03d}"
    backups.mkdir()
    for step in steps:
        step.do(backups)
    checkpoint = Checkpoint(FILE_OPS, root / "checkpoint")
    checkpoint.forget_mark()
    (root / "abort").touch()  # what is on the disk is to be looked at, as after a crash
    config = StoreConfig(
        mapped_file_size=layout.mapped_file_size,
        consume_queue_units=layout.consume_queue_units,
        max_hash_slot_num=layout.shape.slots,
        max_index_num=layout.shape.entries,
        disk_warning_ratio=100,
        file_reserved_hours=_FOR_EVER_HOURS,
    )
    on_progress("consume queues", 0, 1)
    store = MessageStore.open(
        root, config, on_recovery=lambda done, total: on_progress("consume queues", done, total)
    )
    on_progress("consume queues", 1, 1)
    try:
        index, end = store.key_index, store.max_physical_offset
        while index is not None and index.position < end:
            on_progress("key index", index.position, end)
            time.sleep(_POLL_SECONDS)
    finally:
        store.close()
    on_progress("key index", 1, 1)
    return backups


_FOR_EVER_HOURS: Final = 1 << 30


def _mover(path: Path, root: Path, *others: Path) -> Callable[[Path], object]:
    def move(backups: Path) -> None:
        for moved in (path, *others):
            target = backups / moved.relative_to(root)
            target.parent.mkdir(parents=True, exist_ok=True)
            if moved.exists():
                FILE_OPS.replace(moved, target)

    return move


def _cut_tail(path: Path, offset: int) -> Step:
    place = offset - int(path.name)

    def cut(backups: Path) -> None:
        """Keep what opening the store makes zero."""
        target = backups / "commitlog" / f"{path.name}.from-{place}"
        target.parent.mkdir(parents=True, exist_ok=True)
        with path.open("rb") as file, target.open("wb") as copy:
            for start, stop in data_ranges(file.fileno(), place, path.stat().st_size):
                file.seek(start)
                copy.seek(start - place)
                copy.write(file.read(stop - start))

    return Step(f"cut {path} behind its last whole message, at physical offset {offset}", cut)


def _replace_settings(path: Path) -> Step:
    backup = path.with_name(f"{path.name}.bak")
    has_backup = backup.exists() and not settings_damage(backup)

    def replace(backups: Path) -> None:
        target = backups / "config" / path.name
        target.parent.mkdir(parents=True, exist_ok=True)
        FILE_OPS.replace(path, target)
        if has_backup:
            path.write_bytes(backup.read_bytes())

    if has_backup:
        return Step(f"put {backup} in the place of {path}", replace)
    return Step(f"move {path} aside: there is no copy of it, and what it held is lost", replace)


def _nothing(_backups: Path) -> None:
    """Opening the store does it."""
