"""Timers on the disk: wheel, log and checkpoint as one, and what recovery makes of them.

A timer's message is in the commit log, in the queue of the timer topic. Taken in, it gets a unit in
the timer log, whose slot in the wheel then ends its chain. What is kept here can always be made
anew from that queue; the order of writing (log, wheel, checkpoint) sees to it that after a crash
only the log's tail has to be looked at. Follows TimerMessageStore.recover and doEnqueue, and does
not trust what they trust: units behind the commit log's end are cut, and a wheel or a log that
cannot be right is made anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.errors import CorruptStoreError
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FileOps
from orbitmq.store.segment import Segment
from orbitmq.store.timer_chain import Chain
from orbitmq.store.timer_checkpoint import TimerCheckpoint, TimerProgress
from orbitmq.store.timer_log import DELETE, NORMAL, ROLL, UNIT_SIZE, TimerLog, TimerUnit
from orbitmq.store.timer_wheel import NO_PLACE, SLOTS, Slot, TimerWheel

logger = logging.getLogger("orbitmq.store")

_BLANK_SLOTS: Final = 60
_JITTER_MS: Final = 10_000
_YEARS_MS: Final = 20 * 365 * 24 * 3_600_000
"""How far from now a wheel's times may be before it is taken for one of another precision."""


class NewTimer(NamedTuple):
    """A message to be taken in: when it is due, its record, and what a unit says of it."""

    time_ms: int
    physical_offset: int
    size: int
    topic_hash: int
    is_recall: bool


class TimerQueue(NamedTuple):
    """The timer topic's queue: its lowest and its highest offset.

    ``offset_of`` tells the queue offset of the message whose record begins at a place, or None;
    ``stored_at`` when the message of a queue offset was stored, ms, or -1.
    """

    low: int
    high: int
    offset_of: Callable[[int], int | None]
    stored_at: Callable[[int], int]


class TimerFlush(NamedTuple):
    """What one flush brings to the disk: taken by take_flush(), done by TimerStore.flush()."""

    files: list[Segment]
    pages: dict[int, bytes]
    progress: TimerProgress
    again_from: int
    """From where the log is written over itself first, since a sync of it failed; -1: nowhere."""


class TimerStore:
    """The timers of the store in ``root``.

    ``log_end`` is where the commit log ends. ``write_ms`` never goes back: slots before it take
    nothing more. ``read_ms``: slots before it are delivered. ``queue_offset`` is that of the next
    message to take in; below ``known_offset`` are those that were taken in before, so that the ones
    whose time is over were delivered. Raises OSError.
    """

    def __init__(
        self,
        ops: FileOps,
        root: Path,
        config: StoreConfig,
        now_ms: int,
        log_end: int,
        queue: TimerQueue,
    ) -> None:
        self.precision_ms: Final = config.timer_precision_ms
        self._window_ms: Final = _window_slots(config) * self.precision_ms
        self._ops = ops
        self.root: Final = root
        self._checkpoint = TimerCheckpoint(ops, root / "config" / "timercheck")
        self._wheel = TimerWheel(ops, root / "timerwheel", self.precision_ms)
        self._log = self._open_log(config.timer_log_file_size)
        self._flushed = 0
        self._sync_failed = False
        self._is_used = False
        self._next: int | None = None
        self._next_known = False
        self.write_ms = self._floor(now_ms)
        self.read_ms = self.write_ms
        self.queue_offset = self.known_offset = 0
        self._recover(now_ms, log_end, queue)

    # Taking in

    @property
    def has_room(self) -> bool:
        """Whether new slots cannot take the place of slots not delivered yet.

        They could after the broker was down for more than a week: then those come first.
        """
        behind = (self.write_ms - self.read_ms) // self.precision_ms
        return behind + self._window_ms // self.precision_ms + _BLANK_SLOTS < SLOTS

    def add(self, timers: Iterable[NewTimer]) -> None:
        """Take timers in, all or none; each is due at ``write_ms`` or later. Raises OSError.

        One that is due later than the wheel reaches is put where it goes round once more
        (TimerMessageStore.doEnqueue).
        """
        slots: dict[int, Slot] = {}
        units: list[tuple[int, TimerUnit]] = []
        end = self._log.end
        for timer in timers:
            place = self._log.place_after(end)
            end = place + UNIT_SIZE
            unit = self._unit(timer)
            slot = slots.get(unit.time_ms) or self._wheel.slot(unit.time_ms)
            if slot is not None:
                unit = unit._replace(previous=slot.last)
            units.append((place, unit))
            slots[unit.time_ms] = _appended(slot, place, unit)
        self._log.append(units)
        for slot in slots.values():
            self._wheel.put(slot)
            if self._next is None or slot.time_ms < self._next:
                self._next = slot.time_ms
        self._is_used = True

    def move_write_time(self, now_ms: int, limit_ms: int) -> None:
        """Slots before ``now_ms``, and before ``limit_ms``, take nothing more from now on.

        A wall clock set back by more than it jitters is believed: what is due between the two
        times comes when it says so. Apache's broker would deliver it at once.
        """
        now_ms = self._floor(now_ms)
        if now_ms < self.write_ms - _JITTER_MS and self.read_ms == self.write_ms:
            logger.warning("the clock was set back by %d ms", self.write_ms - now_ms)
            self.write_ms = self.read_ms = now_ms
            self._next_known = False
        self.write_ms = max(self.write_ms, min(now_ms, limit_ms))

    def first_time(self, time_ms: int, now_ms: int) -> int:
        """The slot of a timer due at ``time_ms`` that is taken in at ``now_ms``.

        Where that is further than the wheel reaches, its message goes round once more from there.
        """
        window, now_ms = self._window_ms, self._floor(now_ms)
        time_ms = self._floor(time_ms)
        beyond = time_ms - now_ms - window
        if beyond < 0:
            return time_ms
        slots = window // self.precision_ms
        if beyond < slots // 3 * self.precision_ms:
            return now_ms + slots // 2 * self.precision_ms  # or little would be left for the rest
        return now_ms + window

    def _unit(self, timer: NewTimer) -> TimerUnit:
        due_ms, now_ms = self._floor(timer.time_ms), self.write_ms
        time_ms = self.first_time(due_ms, now_ms)
        return TimerUnit(
            NO_PLACE,
            NORMAL | (ROLL if time_ms != due_ms else 0) | (DELETE if timer.is_recall else 0),
            now_ms,
            time_ms - now_ms,
            timer.physical_offset,
            timer.size,
            timer.topic_hash,
        )

    # Giving out

    def next_time(self) -> int | None:
        """The time of the next slot to deliver; None when nothing waits."""
        if not self._next_known:
            horizon = self.write_ms + self._window_ms + _BLANK_SLOTS * self.precision_ms
            self._next = self._wheel.next_time(self.read_ms, horizon)
            self._next_known = True
        return self._next

    def number_at(self, time_ms: int) -> int:
        """How many timers are due at ``time_ms`` (TimerWheel.getNum)."""
        slot = self._wheel.slot(time_ms)
        return slot.number if slot is not None else 0

    def pending(self) -> int:
        """How many timers wait, those in the slot being delivered among them (getAllNum)."""
        return sum(slot.number for slot in self._wheel.slots())

    def chain(self, time_ms: int) -> Chain:
        """The units of the slot of ``time_ms``."""
        slot = self._wheel.slot(time_ms)
        return Chain(self._log, slot.last if slot is not None else NO_PLACE)

    def delivered(self, time_ms: int) -> None:
        """The slot of ``time_ms``, which was the next, is dealt with."""
        self._wheel.remove(time_ms)
        self.read_ms = time_ms + self.precision_ms
        self._next_known = False
        self._is_used = True

    def nothing_before(self, time_ms: int) -> None:
        """There are no slots before ``time_ms``."""
        self.read_ms = max(self.read_ms, time_ms)

    # To the disk

    def take_flush(self) -> TimerFlush | None:
        """What is to be brought to the disk; None when all of it is there."""
        before = self._checkpoint.progress
        if not self._is_used and (before is None or before.queue_offset == self.queue_offset):
            return None  # that time goes by need not be written down
        self._is_used = False
        progress = TimerProgress(self.read_ms, self._log.end, self.queue_offset)
        pages = self._wheel.take_changes()
        files = self._log.files_of(self._flushed, self._log.end)
        return TimerFlush(files, pages, progress, self._flushed if self._sync_failed else -1)

    def flush(self, taken: TimerFlush, now_ms: int) -> None:
        """Bring it to the disk, on any thread, one at a time. Raises OSError: give it back then."""
        for file in taken.files:
            if taken.again_from >= 0:
                start = max(taken.again_from, file.base)
                file.write_again(start, min(file.end, taken.progress.log_position))
            file.sync()
        self._wheel.write(taken.pages)
        self._checkpoint.write(taken.progress, now_ms)
        self._checkpoint.progress = taken.progress

    def flush_ended(self, taken: TimerFlush, *, failed: bool) -> None:
        """Note how a flush went; what failed is brought to the disk with the next one."""
        self._sync_failed = failed
        if failed:
            self._is_used = True
            self._wheel.give_back(taken.pages)
        else:
            self._flushed = taken.progress.log_position

    def encode_progress(self) -> bytes:
        """What the checkpoint would say now, as Apache's brokers exchange it."""
        return self._checkpoint.encode(
            TimerProgress(self.read_ms, self._log.end, self.queue_offset), self.write_ms
        )

    def delete_before(self, min_physical_offset: int) -> None:
        """Delete the log's files whose messages are gone. Raises OSError."""
        self._log.delete_before(min_physical_offset)

    def close(self) -> None:
        """Give the files back, without a last flush."""
        self._log.close()
        self._wheel.close()

    # Recovery

    def _open_log(self, file_size: int) -> TimerLog:
        directory = self.root / "timerlog"
        try:
            return TimerLog(self._ops, directory, file_size)
        except CorruptStoreError as error:
            logger.warning("%s. The timer log is made anew from the timer topic", error)
            for path in directory.iterdir():
                self._ops.unlink(path)
            return TimerLog(self._ops, directory, file_size)

    def _recover(self, now_ms: int, log_end: int, queue: TimerQueue) -> None:
        progress = self._checkpoint.progress
        last = self._recover_log(progress, now_ms, log_end)
        offset = queue.offset_of(last.physical_offset) if last is not None else None
        next_offset = offset + 1 if offset is not None else 0
        if progress is not None:
            self.known_offset = min(progress.queue_offset, queue.high)
            if self._log.end >= progress.log_position:
                next_offset = max(next_offset, progress.queue_offset)
        self.queue_offset = max(queue.low, min(next_offset, queue.high))
        if self.queue_offset < queue.high:  # what comes next is not due before it was stored
            stored_ms = self._floor(queue.stored_at(self.queue_offset))
            self.write_ms = max(0, min(self.write_ms, stored_ms))
        if progress is not None:
            self.read_ms = self._floor(progress.read_ms)
        elif queue.high > queue.low:
            times = (slot.time_ms for slot in self._wheel.slots())
            self.read_ms = min(times, default=self.write_ms)
            self.read_ms = min(self.read_ms, self.write_ms)
            logger.warning(
                "%s/config/timercheck is missing or damaged: timers are delivered again that were "
                "due since %d",
                self.root, self.read_ms,
            )  # fmt: skip
        if self.known_offset > self.queue_offset:
            logger.warning(
                "timers %d to %d are taken in again from the timer topic",
                self.queue_offset, self.known_offset - 1,
            )  # fmt: skip
        self.write_ms = max(self.write_ms, self.read_ms)
        for slot in list(self._wheel.slots()):
            if slot.time_ms < self.read_ms:
                self._wheel.remove(slot.time_ms)
        self._is_used = bool(self._log.end or self.queue_offset)

    def _recover_log(
        self, progress: TimerProgress | None, now_ms: int, log_end: int
    ) -> TimerUnit | None:
        """Bring wheel and log into agreement; the log's last unit, None when it is empty."""
        log, wheel = self._log, self._wheel
        if any(abs(slot.time_ms - now_ms) > _YEARS_MS for slot in islice(wheel.slots(), 1)):
            logger.warning(
                "%s was not written with timer_precision_ms=%d: timers are taken in again",
                wheel.path, self.precision_ms,
            )  # fmt: skip
            wheel.clear()
            log.delete_all()
        start = log.begin
        if not wheel.existed:
            progress = None
        elif progress is not None and self._checkpoint.is_own:
            start = progress.log_position - UNIT_SIZE
        elif progress is not None:
            start = progress.log_position - log.file_size
            start -= start % log.file_size
        last = self._replay(max(start, log.begin), log_end)
        is_as_left = progress is not None and log.end == progress.log_position
        if not (is_as_left and self._checkpoint.is_own) and self._is_ahead(last):
            logger.warning("%s is made anew from the timer log", wheel.path)
            wheel.clear()
            last = self._replay(log.begin, log_end)
        return last

    def _is_ahead(self, last: TimerUnit | None) -> bool:
        """Whether the wheel knows of more than the log has."""
        if last is None and self._log.end > self._log.begin:
            return True
        return any(slot.last >= self._log.end for slot in self._wheel.slots())

    def _replay(self, start: int, log_end: int) -> TimerUnit | None:
        """Put the log's units from ``start`` on into the wheel, and end it with the last sound one.

        A unit of a record behind the commit log's end, which a power cut took, is not sound.
        """
        end, last = start, None
        for place, unit in self._log.scan(start):
            if unit.physical_offset + unit.size > log_end:
                break
            slot = self._wheel.slot(unit.time_ms)
            if slot is None or slot.last < place:
                self._wheel.put(_appended(slot, place, unit))
            end, last = place + UNIT_SIZE, unit
        self._log.cut(end)
        return last

    def _floor(self, time_ms: int) -> int:
        return time_ms - time_ms % self.precision_ms


def _appended(slot: Slot | None, place: int, unit: TimerUnit) -> Slot:
    change = -1 if unit.magic & DELETE else 1
    if slot is None:
        return Slot(unit.time_ms, place, place, change, 0)
    return slot._replace(last=place, number=slot.number + change)


def _window_slots(config: StoreConfig) -> int:
    """How many slots ahead of the write time a timer may be put (TimerMessageStore)."""
    most = SLOTS // 2 - _BLANK_SLOTS
    wanted = config.timer_roll_window_slots
    return wanted if 2 <= wanted <= most else most
