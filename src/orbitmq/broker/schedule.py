"""Delayed messages: when each is due, and its way to the topic it was sent to.

A message of delay level n waits in topic SCHEDULE_TOPIC_XXXX, queue n - 1, whose entries tell when
each is due, in order. A state machine: the time is an argument. How far each level is delivered is
kept in ``delayOffset.json``; what was delivered after it was last saved is delivered again after a
crash. Follows ScheduleMessageService.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Final

from orbitmq.broker.redraft import redraft
from orbitmq.errors import IllegalNameError, InvalidMessageError, RecordError
from orbitmq.names import HALF_TOPIC, SCHEDULE_TOPIC
from orbitmq.store.consume_queue import FILLER_SIZE, QueueUnit
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.properties import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    find_property,
)
from orbitmq.wire.record import Draft

log = logging.getLogger("orbitmq.broker")

LOOK_INTERVAL_MS: Final = 2_000
"""How often the first message of each level is looked at, whatever ``due_ms`` says: the wall clock
that it is told in may have been set back. Java's broker looks ten times a second."""
_QUEUE_ID: Final = re.compile("[0-9]{1,10}")
_BATCH: Final = 256
"""The most messages of a level that one run delivers, so that the broker's loop stays free."""


def postpone(draft: Draft, properties: dict[str, str], level: int, delays: DelayLevels) -> None:
    """Turn a message to where those of its delay level wait, and keep where it was going.

    ``properties`` are the draft's, not encoded yet. HookUtils.transformDelayLevelMessage.
    """
    level = min(level, delays.max_level)
    properties[DELAY] = str(level)
    properties[REAL_TOPIC] = draft.topic
    properties[REAL_QID] = str(draft.queue_id)
    for name in (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS):
        properties.pop(name, None)
    draft.topic = SCHEDULE_TOPIC
    draft.queue_id = level - 1


class Delivery:
    """Delivers delayed messages of ``store`` when they are due.

    ``write`` brings what was staged into the store, and raises StoreError when it cannot.
    ``offsets`` is, by level, the queue offset of the next message to deliver; ``changed`` says
    that they differ from what was last saved. ``due_ms`` is when the next run makes sense,
    wall-clock ms; None while nothing waits.
    """

    def __init__(self, store: MessageStore, delays: DelayLevels, write: Callable[[], None]) -> None:
        self.offsets: dict[int, int] = {}
        self.changed = False
        self.due_ms: int | None = 0
        self._store = store
        self._delays = delays
        self._write = write

    def load(self, offsets: dict[int, int]) -> None:
        """Go on from saved offsets, made to fit the queues: those may have lost their end."""
        for level, offset in offsets.items():
            low = self._store.min_offset(SCHEDULE_TOPIC, level - 1)
            high = self._store.max_offset(SCHEDULE_TOPIC, level - 1)
            self.offsets[level] = max(low, min(offset, high))
            if self.offsets[level] != offset:
                log.warning(
                    "delay level %d goes on at %d, not %d", level, self.offsets[level], offset
                )

    def message_arrived(self, due_ms: int) -> None:
        """A message that is due at ``due_ms`` was stored."""
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms

    def run(self, now_ms: int) -> None:
        """Deliver what is due; sets ``due_ms`` anew.

        Raises StoreError when the store takes nothing; what was not delivered stays due.
        """
        due = [self._run_level(level, now_ms) for level in range(1, self._delays.max_level + 1)]
        self.due_ms = min((time for time in due if time is not None), default=None)

    def _run_level(self, level: int, now_ms: int) -> int | None:
        """Deliver what is due of one level; when its next is."""
        queue_id = level - 1
        offset = max(self.offsets.get(level, 0), self._store.min_offset(SCHEDULE_TOPIC, queue_id))
        first = self._store.read_units(SCHEDULE_TOPIC, queue_id, offset, 1)
        if first and (due_ms := self._due(first[0], level, now_ms)) > now_ms:
            return due_ms
        units = self._store.read_units(SCHEDULE_TOPIC, queue_id, offset, _BATCH)
        next_due = now_ms if len(units) == _BATCH else None
        delivered = 0
        for unit in units:
            due_ms = self._due(unit, level, now_ms)
            if due_ms > now_ms:
                next_due = due_ms
                break
            self._stage(unit)
            delivered += 1
        if delivered:
            self._write()
            self.offsets[level] = offset + delivered
            self.changed = True
            end = self._store.max_offset(SCHEDULE_TOPIC, queue_id)
            if next_due is None and end > offset + delivered:
                next_due = now_ms  # entries go on in the queue's next file
        return next_due

    def _due(self, unit: QueueUnit, level: int, now_ms: int) -> int:
        """When a message is due; now, if the clock was set back since it came.

        DeliverDelayedMessageTimerTask.correctDeliverTimestamp.
        """
        latest = self._delays.delivery_time(level, now_ms)
        return unit.tags_code if unit.tags_code <= latest else now_ms

    def _stage(self, unit: QueueUnit) -> None:
        """Stage a message for its real topic; one that cannot go there is logged and left out."""
        if unit.size == FILLER_SIZE:
            log.error("the delayed message at %d of its queue is lost", unit.queue_offset)
            return
        record = self._store.record_at(unit.physical_offset)
        if record is None:
            log.error("the delayed message at %d is no longer there", unit.physical_offset)
            return
        try:
            draft = redraft(record)
            topic = find_property(draft.properties, REAL_TOPIC)
            queue_id = find_property(draft.properties, REAL_QID) or ""
            if topic is None or topic == HALF_TOPIC or not _QUEUE_ID.fullmatch(queue_id):
                log.error("a delayed message cannot go to topic %s queue %s", topic, queue_id)
                return
            draft.topic = topic
            draft.queue_id = int(queue_id)
            self._store.append(draft)
        except (RecordError, InvalidMessageError, IllegalNameError):
            log.exception("the delayed message at %d is left out", unit.physical_offset)
