"""Holding the timers against each other and the log: each slot's chain, each entry's message.

Only what waits is looked at: Apache's wheel keeps slots whose time is over, and both logs keep
entries. What a start brings into agreement anyway, after a crash or after Apache's broker, whose
wheel may be older than its log, is no problem.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

from orbitmq.errors import CorruptStoreError
from orbitmq.names import TIMER_TOPIC
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.file_ops import FILE_OPS
from orbitmq.store.findings import Findings, Problem
from orbitmq.store.timer_checkpoint import TimerCheckpoint, TimerProgress
from orbitmq.store.timer_log import DELETE, UNIT_SIZE, TimerLog, TimerUnit
from orbitmq.store.timer_wheel import NO_PLACE, WHEEL_SIZE, Slot, TimerWheel
from orbitmq.wire.record import check_record

_PROGRESS_EVERY: Final = 2_000
_USUAL_PRECISION_MS: Final = 1_000


def check_timers(
    root: Path,
    log: CommitLog,
    end: int,
    findings: Findings,
    on_progress: Callable[[str, int, int], object],
) -> None:
    """Look at the timers of the store in ``root``, whose commit log ends at ``end``."""
    wheel, directory = root / "timerwheel", root / "timerlog"
    paths = list(directory.glob("[0-9]*"))
    if not wheel.exists() and not paths:
        return
    known = TimerCheckpoint(FILE_OPS, root / "config" / "timercheck")
    if known.progress is None:
        findings.note("config/timercheck is missing or damaged: which timers wait is not known")
        return
    if not wheel.exists() or wheel.stat().st_size != WHEEL_SIZE:
        size = wheel.stat().st_size if wheel.exists() else 0
        findings.add(Problem("timers", wheel, 0, f"has {size} of {WHEEL_SIZE} bytes"))
        return
    sizes = [path.stat().st_size for path in paths]
    try:
        entries = TimerLog(FILE_OPS, directory, max(set(sizes), key=sizes.count, default=1 << 20))
    except CorruptStoreError as error:
        findings.add(Problem("timers", directory, 0, str(error)))
        return
    is_exact = known.is_own and not (root / "abort").exists()
    with closing(entries), closing(TimerWheel(FILE_OPS, wheel, 1)) as slots:
        look = _Look(known.progress, entries, log, end, findings)
        look.at_entries(len(paths) * entries.file_size, on_progress)
        look.at_slots(slots, is_exact=is_exact)


class _Look:
    """One look at the timers that wait: those of slots from the read time on.

    ``chains`` has of each slot's time the places of its first and last entry, and their number.
    """

    def __init__(
        self,
        progress: TimerProgress,
        entries: TimerLog,
        log: CommitLog,
        end: int,
        findings: Findings,
    ) -> None:
        self._progress = progress
        self._entries = entries
        self._log = log
        self._end = end
        self._findings = findings
        self._directory = log.directory.parent / "timerlog"
        self._chains: dict[int, Slot] = {}
        self._was_set_back = False
        self._gone = 0

    def at_entries(self, total: int, on_progress: Callable[[str, int, int], object]) -> None:
        """Look at each entry of the timer log."""
        begin = position = self._entries.begin
        written_ms = 0
        for number, (place, unit) in enumerate(self._entries.scan(begin), 1):
            position = place + UNIT_SIZE
            self._was_set_back = self._was_set_back or unit.write_ms < written_ms
            written_ms = unit.write_ms
            if unit.time_ms >= self._progress.read_ms:
                self._at_entry(place, unit)
            if number % _PROGRESS_EVERY == 0:
                on_progress("timers", place - begin, total)
        on_progress("timers", total, total)
        self._entries.end = position
        if position < self._progress.log_position:
            what = f"its entries end here, {self._progress.log_position} is known to be written"
            self._problem(position, what)
        if self._gone:
            self._findings.note(f"the messages of {self._gone} timers are no longer stored")

    def _at_entry(self, place: int, unit: TimerUnit) -> None:
        chain = self._chains.get(unit.time_ms)
        change = -1 if unit.magic & DELETE else 1
        if chain is None or unit.previous == NO_PLACE:
            chain = Slot(unit.time_ms, place, place, 0, 0)
        elif unit.previous != chain.last:
            what = f"the entry follows {unit.previous} in its chain, not {chain.last}"
            self._problem(place, what)
        self._chains[unit.time_ms] = chain._replace(last=place, number=chain.number + change)
        if unit.physical_offset < self._log.min_offset:
            self._gone += 1
        elif not self._is_message(unit):
            where = f"where no message of {TIMER_TOPIC} is"
            self._problem(place, f"the entry points at {unit.physical_offset}, {where}")

    def _is_message(self, unit: TimerUnit) -> bool:
        if unit.physical_offset + unit.size > self._end:
            return False
        record = self._log.record_at(unit.physical_offset)
        if record is None or len(record) != unit.size:
            return False
        info = check_record(bytes(record), 0, unit.size, verify_crc=False)
        return info is not None and info.topic == TIMER_TOPIC

    def at_slots(self, wheel: TimerWheel, *, is_exact: bool) -> None:
        """Look at the slots of ``wheel``; with ``is_exact`` they must know every entry.

        The wheel was opened with a precision of 1, so that its slots' times are quotients.
        """
        precision = self._precision(wheel)
        for quotient, *places in wheel.slots():
            slot = Slot(quotient * precision, *places)
            if slot.time_ms >= self._progress.read_ms:
                self._at_slot(wheel.path, slot, is_exact=is_exact)
        if is_exact and self._chains and not self._was_set_back:
            first = min(self._chains.values(), key=lambda chain: chain.first)
            what = f"the entries of {len(self._chains)} slots, from this one on, are in no slot"
            self._problem(first.first, what)

    def _at_slot(self, path: Path, slot: Slot, *, is_exact: bool) -> None:
        chain = self._chains.pop(slot.time_ms, None)
        unit = self._entries.unit_at(slot.last)
        if unit is None or unit.time_ms != slot.time_ms:
            what = f"the slot's chain ends at {slot.last} of the timer log, where no entry of it is"
            self._findings.add(Problem("timers", path, slot.time_ms, what))
        elif is_exact and chain is not None and slot.first >= self._entries.begin:
            counted = chain.first, chain.last, chain.number
            if counted != (slot.first, slot.last, slot.number):
                what = (
                    f"the slot has {slot.number} timers from {slot.first} to {slot.last} of the "
                    f"timer log, there are {chain.number} from {chain.first} to {chain.last}"
                )
                self._findings.add(Problem("timers", path, slot.time_ms, what))

    def _precision(self, wheel: TimerWheel) -> int:
        """The step of the wheel in ms, which its file does not say."""
        for quotient, _, last, _, _ in wheel.slots():
            unit = self._entries.unit_at(last)
            if unit is not None and unit.time_ms and not unit.time_ms % quotient:
                return unit.time_ms // quotient
        return _USUAL_PRECISION_MS

    def _problem(self, place: int, what: str) -> None:
        self._findings.add(Problem("timers", self._directory, place, what))
