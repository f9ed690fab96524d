"""Timers: messages due at a time of their own, from the timer topic to where they were sent to.

A message with a timer is stored in topic rmq_sys_wheel_timer (timer_messages.py). From its queue it
is taken into the wheel (store/timer_store.py), and when its step of the wheel is over it is
stored once more, in its own topic. A state machine: the time is an argument. How far both have come
is saved every ``timer_flush_interval_ms``; what was delivered after that is delivered again after a
crash. Follows TimerMessageStore, whose eight threads are one loop here; each run does a slice.
"""

from __future__ import annotations

import logging
import random
import re
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from orbitmq.broker.redraft import store_timestamp
from orbitmq.broker.timer_messages import delivered
from orbitmq.broker.timer_metrics import TimerMetrics
from orbitmq.errors import IllegalNameError, InvalidMessageError, RecordError
from orbitmq.names import TIMER_TOPIC
from orbitmq.store.consume_queue import QueueUnit
from orbitmq.store.file_ops import FileOps, store_error
from orbitmq.store.message_store import MessageStore
from orbitmq.store.timer_chain import Chain
from orbitmq.store.timer_log import TimerUnit
from orbitmq.store.timer_store import NewTimer, TimerQueue, TimerStore
from orbitmq.wire.ids import java_hash
from orbitmq.wire.properties import REAL_TOPIC, TIMER_DEL_UNIQKEY, TIMER_OUT_MS, find_property
from orbitmq.wire.record import check_record, properties_of

log = logging.getLogger("orbitmq.broker")

_BATCH: Final = 256
"""The most messages that one run takes in, and delivers, so that the broker's loop stays free."""
_FOLLOWED: Final = 2_000
"""The most entries of a chain that one step looks at."""
_STEPS: Final = 16
"""The most steps of a run."""
_ROLL_DOUBT_MS: Final = 3_600_000
_TIME: Final = re.compile(r"[0-9]{1,18}")


class _Found(NamedTuple):
    """A message of the timer topic; ``timer`` is None for one that is left out.

    ``topic`` is where it goes, "" where it is not counted; one ``is_late`` that is due already.
    """

    unit: QueueUnit
    timer: NewTimer | None
    topic: str
    is_late: bool


class _Slot:
    """The slot being delivered; ``recalled`` are the keys of messages taken back."""

    def __init__(self, time_ms: int, chain: Chain) -> None:
        self.time_ms = time_ms
        self.chain = chain
        self.recalled: set[str] = set()
        self.is_followed = False


class Timers:
    """Takes in and delivers the timers of ``store``; ``timers`` keeps them.

    ``write`` brings what was staged into the store, and raises StoreError when it cannot.
    ``due_ms`` is when the next run makes sense, wall-clock ms; None while nothing waits.
    ``metrics`` counts, by topic, those that wait.
    """

    def __init__(
        self,
        store: MessageStore,
        timers: TimerStore,
        metrics: TimerMetrics,
        write: Callable[[], None],
    ) -> None:
        self.due_ms: int | None = 0
        self.metrics = metrics
        self.timers = timers
        self._store = store
        self._write = write
        self._slot: _Slot | None = None
        self._is_behind = True
        self._handled = 0

    def message_arrived(self) -> None:
        """A message was stored in the timer topic."""
        self.due_ms = 0

    def run(self, now_ms: int) -> None:
        """Take in what came and deliver what is due; sets ``due_ms`` anew.

        Raises StoreError when the store takes nothing, OSError when the timer log does not; what
        was not done stays to be done.
        """
        timers = self.timers
        goes_on = True
        for _ in range(_STEPS):
            goes_on = self._step(now_ms)
            if not goes_on or self._handled >= _BATCH:
                break
        self._handled = 0
        if goes_on:
            self.due_ms = now_ms
            return
        next_ms = timers.next_time()
        self.due_ms = None if next_ms is None else next_ms + timers.precision_ms

    def _step(self, now_ms: int) -> bool:
        """Take in what there is, then go on with the next slot that is due; whether to go on.

        Slot by slot, because one may store messages anew in the timer topic that go round, and
        the recalls of others: both are in the wheel before time moves on. So are messages that
        came before the broker was started.
        """
        timers = self.timers
        has_more = timers.has_room and self._take_in(now_ms)
        self._is_behind = self._is_behind and has_more
        if not self._is_behind:
            next_ms = timers.next_time()
            timers.move_write_time(
                now_ms, now_ms if next_ms is None else next_ms + timers.precision_ms
            )
        is_delivering = self._deliver_slots(now_ms)
        return has_more or is_delivering or not timers.has_room

    def is_congested(self, time_ms: int) -> bool:
        """Whether no more timers are taken for a step of the wheel.

        Between the limit and its double chance decides (TimerMessageStore.isReject).
        """
        limit = self._store.config.timer_congestion_per_slot
        beyond = self.timers.number_at(time_ms) - limit
        if beyond <= 0:
            return False
        return random.randrange(limit) < beyond  # noqa: S311 - not a secret

    @property
    def backlog(self) -> int:
        """How many messages wait to be taken in (getEnqueueBehindMessages)."""
        return self._store.max_offset(TIMER_TOPIC, 0) - self.timers.queue_offset

    # Taking in

    def _take_in(self, now_ms: int) -> bool:
        """Take in a batch from the queue; whether there is more."""
        timers = self.timers
        offset = max(timers.queue_offset, self._store.min_offset(TIMER_TOPIC, 0))
        units = self._store.read_units(TIMER_TOPIC, 0, offset, _BATCH)
        for is_late, group in groupby(map(self._found, units), key=lambda found: found.is_late):
            messages = list(group)
            if is_late:
                places = [(found.unit.physical_offset, None) for found in messages]
                self._deliver(places, set(), now_ms)
            else:
                kept = [found for found in messages if found.timer is not None]
                timers.add(found.timer for found in kept if found.timer is not None)
                for found in kept:
                    self.metrics.add(found.topic, 1)
            timers.queue_offset = messages[-1].unit.queue_offset + 1
            self.metrics.took_in(len(messages))
            self._handled += len(messages)
        return bool(units) and self.backlog > 0

    def _found(self, unit: QueueUnit) -> _Found:
        """What to do with a message of the timer topic; one that is no timer is logged."""
        try:
            record = self._record(unit.physical_offset)
            timer, topic = _timer_of(record, unit)
        except RecordError as error:
            _leave_out(unit.physical_offset, error)
            return _Found(unit, None, "", is_late=False)
        if unit.queue_offset < self.timers.known_offset and self._was_delivered(timer, record):
            return _Found(unit, None, "", is_late=False)
        is_late = timer.time_ms < self.timers.write_ms
        return _Found(unit, timer, "" if timer.is_recall else topic, is_late)

    def _was_delivered(self, timer: NewTimer, record: memoryview) -> bool:
        """Whether a message that was taken in before, by a wheel that is lost, was delivered.

        One that goes round is taken for that when it must have been stored anew an hour ago.
        """
        first_ms = self.timers.first_time(timer.time_ms, store_timestamp(record))
        doubt_ms = 0 if first_ms == timer.time_ms else _ROLL_DOUBT_MS
        return first_ms + doubt_ms < self.timers.read_ms

    # Delivering

    def _deliver_slots(self, now_ms: int) -> bool:
        """Deliver a batch of what is due; whether there is more."""
        slot = self._slot
        if slot is None:
            time_ms = self.timers.next_time()
            if time_ms is None or time_ms >= self.timers.write_ms:
                self.timers.nothing_before(self.timers.write_ms)
                return self._is_behind
            slot = self._slot = _Slot(time_ms, self.timers.chain(time_ms))
        if not slot.is_followed:
            slot.is_followed = slot.chain.follow(_FOLLOWED)
            self._handled += 0 if slot.is_followed else _BATCH
        elif recalls := slot.chain.recalls(_BATCH):
            for recall in recalls:
                slot.recalled |= self._recalled_by(recall)
        else:
            self._deliver_from(slot, now_ms)
        return True

    def _deliver_from(self, slot: _Slot, now_ms: int) -> None:
        units = slot.chain.timers(_BATCH)
        places = [(unit.physical_offset, unit) for unit in units if unit is not None]
        topics = self._deliver(places, slot.recalled, now_ms)
        slot.chain.done(len(units))
        self._handled += len(units)
        self._is_behind = self._is_behind or any(unit is not None and unit.rolls for unit in units)
        for topic in topics:
            self.metrics.add(topic, -1)
        if len(units) < _BATCH:
            self.timers.delivered(slot.time_ms)
            self._slot = None

    def _record(self, physical_offset: int) -> memoryview:
        record = self._store.record_at(physical_offset)
        if record is None:
            raise RecordError("it is no longer there")
        return record

    def _recalled_by(self, recall: TimerUnit) -> set[str]:
        record = self._store.record_at(recall.physical_offset)
        if record is None:
            return set()
        key = find_property(properties_of(record), TIMER_DEL_UNIQKEY)
        return {key} if key else set()

    def _deliver(
        self,
        places: Sequence[tuple[int, TimerUnit | None]],
        recalled: set[str],
        now_ms: int,
    ) -> list[str]:
        """Store messages anew, but those recalled; the topics all of them are for.

        One that cannot go where it should is logged and left out.
        """
        topics = []
        for physical_offset, unit in places:
            try:
                record = self._record(physical_offset)
                topics.append(find_property(properties_of(record), REAL_TOPIC) or "")
                draft = delivered(record, unit, now_ms, recalled)
                if draft is not None:
                    self._store.append(draft)
            except (RecordError, InvalidMessageError, IllegalNameError) as error:
                _leave_out(physical_offset, error)
        if self._store.staged:
            self._write()
        self.metrics.delivered(len(topics))
        return topics


def _leave_out(physical_offset: int, error: Exception) -> None:
    log.error("the timer message at %d is left out: %s", physical_offset, error)


def open_timers(store: MessageStore, ops: FileOps, now_ms: int) -> TimerStore:
    """The timers in the directory of ``store``, brought into agreement with it.

    Raises StoreError when their files cannot be used.
    """

    def queue_offset_of(physical_offset: int) -> int | None:
        record = store.record_at(physical_offset)
        info = check_record(bytes(record), 0, len(record)) if record is not None else None
        return info.queue_offset if info is not None and info.topic == TIMER_TOPIC else None

    queue = TimerQueue(
        store.min_offset(TIMER_TOPIC, 0),
        store.max_offset(TIMER_TOPIC, 0),
        queue_offset_of,
        lambda offset: store.store_timestamp_at(TIMER_TOPIC, 0, offset),
    )
    end = store.max_physical_offset
    try:
        return TimerStore(ops, store.directory, store.config, now_ms, end, queue)
    except OSError as error:
        raise store_error(error, store.directory, "open the timers") from error


def _timer_of(record: memoryview, unit: QueueUnit) -> tuple[NewTimer, str]:
    """A stored message as a timer, and the topic it is for. Raises RecordError if it is none."""
    properties = properties_of(record)
    text = find_property(properties, TIMER_OUT_MS) or ""
    topic = find_property(properties, REAL_TOPIC) or ""
    if not _TIME.fullmatch(text) or not topic:
        raise RecordError(f"it has no time ({TIMER_OUT_MS}={text[:40]!r}), or no topic to go to")
    is_recall = find_property(properties, TIMER_DEL_UNIQKEY) is not None
    timer = NewTimer(int(text), unit.physical_offset, unit.size, java_hash(topic), is_recall)
    return timer, topic
