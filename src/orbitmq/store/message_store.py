"""The store the broker talks to: messages in, messages out, and nothing lost in between.

One thread, the broker's loop, calls everything here. It stages what the messages of one tick
bring, writes it with one call, and only then are they in the queues and may be acknowledged.
Flushing to the disk happens on two threads of the store's own.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from typing import Final
from weakref import WeakSet

from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import DiskFullError, StoreError
from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.store.appended import Appended, WriteListener, Written
from orbitmq.store.batches import stage_batch
from orbitmq.store.cleaner import Cleaner
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue, QueueUnit
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.directory import StoreDirectory
from orbitmq.store.file_ops import FILE_OPS, FileOps, store_error
from orbitmq.store.flusher import Dispatched, QueueFlusher
from orbitmq.store.limits import Limits
from orbitmq.store.log_flusher import FlushCallback, LogFlusher
from orbitmq.store.opening import StoreParts, open_parts
from orbitmq.store.pull import GetResult, get_messages
from orbitmq.store.recovery import OnRecovery
from orbitmq.store.times import offset_by_timestamp, stored_at
from orbitmq.store.unindexed import Unindexed
from orbitmq.wire.plain_sends import Noted, SendRules, encode_sends
from orbitmq.wire.record import TRANSACTION_PREPARED, Draft

logger = logging.getLogger("orbitmq.store")

_units_of: Final[Callable[[Appended], bytes]] = attrgetter("units")


class MessageStore:
    """A store directory in use: made by open(), given back by close().

    All methods belong to one thread. ``staged`` is how many messages wait for write(),
    ``directory`` is the store directory, ``config`` its settings, ``cleaner`` what deletes old
    messages and looks after the disk, ``damages`` what opening passed over in the log,
    ``key_index`` where messages are found by their keys, ``unindexed`` those that are not in it
    yet; None: not here (message_index_enable).
    In a forked child it is closed, without a change to the directory.
    """

    def __init__(
        self, directory: StoreDirectory, parts: StoreParts, clock: Clock, ops: FileOps
    ) -> None:
        self.directory: Final = directory.root
        self._directory = directory
        self._clock = clock
        self._levels = DelayLevels(parts.config.delay_levels)
        self._log = parts.log
        self._limits = Limits(parts.log, parts.config)
        self._table = parts.table
        self._queues = parts.table.queues
        self._recovered = parts.recovered.dispatched
        self._last: Appended | None = None
        self.damages: Final = parts.recovered.damages
        self.staged = 0
        self._staged: list[Appended] = []
        self._write_listeners: list[WriteListener] = []
        self._closed = False
        self._delayed: dict[ConsumeQueue, int] = {}
        self._due_complaint = ""
        self._log_flusher = LogFlusher(
            parts.log, parts.recovered.flushed, parts.config, directory.unflushed
        )
        self._queue_flusher = QueueFlusher(
            parts.log,
            self._log_flusher,
            parts.table,
            parts.checkpoint,
            parts.config,
            self._state,
        )
        self.cleaner: Final = Cleaner(
            parts.log, parts.table, self._queue_flusher, parts.config, clock, ops
        )
        self.key_index: Final = parts.key_index
        self.unindexed: Unindexed | None = None
        if self.key_index is not None:
            self.unindexed = Unindexed(self.key_index, parts.log, parts.table)
            self.cleaner.add_listener(self.key_index.delete_before)
            self.add_write_listener(self.key_index.written)
        self.renew(parts.config)
        _OPEN.add(self)

    @classmethod
    def open(
        cls,
        directory: Path,
        config: StoreConfig | None = None,
        clock: Clock = SYSTEM_CLOCK,
        ops: FileOps = FILE_OPS,
        on_recovery: OnRecovery | None = None,
    ) -> MessageStore:
        """Open a store directory, made if it is new, and recover what a crash left.

        ``on_recovery`` is called now and then meanwhile. Raises StoreLockedError when another
        broker uses it, CorruptStoreError when its files cannot be those of ``config`` or are
        damaged, else StoreError.
        """
        place = StoreDirectory(directory)
        with ExitStack() as undo:
            undo.callback(place.release)
            try:
                parts = open_parts(place, config or StoreConfig(), clock, ops, undo, on_recovery)
            except OSError as error:
                raise store_error(error, directory, "open the store") from error
            undo.pop_all()
        store = cls(place, parts, clock, ops)
        store._log_flusher.start()
        store._queue_flusher.start()
        if store.key_index is not None:
            store.key_index.start()
        store.cleaner.start()
        if parts.checkpoint.mark is None and parts.log.end > parts.log.min_offset:
            store._queue_flusher.request_mark()  # or a crash now would cost a whole reading again
        return store

    def close(self) -> None:
        """Write and flush everything, and leave the directory as a proper shutdown does.

        Raises StoreError when that fails; the directory is then given back as after a crash.
        Does nothing the second time.
        """
        if self._closed:
            return
        self._closed = True
        try:
            try:
                self.write()
            finally:
                self.cleaner.stop()
                self._queue_flusher.stop()
                self._log_flusher.stop()
                if self.key_index is not None:
                    self.key_index.stop()
            self._queue_flusher.flush(renew_mark=True)
            self._directory.mark_clean()
        except OSError as error:
            raise store_error(error, self.directory, "close the store") from error
        finally:
            self._table.close()
            self._log.close()
            self._directory.release()

    def renew(self, config: StoreConfig) -> None:
        """Go by these settings from now on; what belongs to the directory stays as it is."""
        self.config = config
        self._limits.renew(config)
        self._log_flusher.renew(config)
        self._queue_flusher.renew(config)
        self.cleaner.renew(config)

    # Writing

    def append(self, draft: Draft) -> Appended:
        """Give a message its place and stage it; write() makes it real.

        Raises InvalidMessageError when it is too long, RecordError when a field does not fit,
        IllegalNameError for an impossible topic or queue; nothing is staged then. A message of a
        prepared or rolled-back transaction has queue offset 0 and enters no queue. Raises
        StoreError when the disk fails and too much waits for it already, and DiskFullError while
        it is nearly full (disk_warning_ratio).
        """
        if len(draft.body) > self._limits.safe_body or draft.properties.endswith(b"\0"):
            self._limits.check(draft)
        if self._closed or self._log_flusher.refusal or self.cleaner.refusal:
            self._refuse()
        queue: ConsumeQueue | None = None
        queue_offset = 0
        if not draft.sys_flag & TRANSACTION_PREPARED:
            queue = self._queues.get((draft.topic, draft.queue_id))
            if queue is None:
                queue = self._table.get_or_create(draft.topic, draft.queue_id)
            queue_offset = queue.next_offset
        now = self._clock.now_ms()
        log = self._log
        size = log.stage(draft, queue_offset, now)
        offset = log.staged_end - size
        tags_code = draft.tags_code
        if queue is not None:
            queue.next_offset = queue_offset + 1
            if draft.topic == SCHEDULE_TOPIC:
                tags_code = self._levels.queue_tags_code(draft.properties, tags_code, now)
                self._delayed.setdefault(queue, queue_offset)
        unit = UNIT.pack(offset, size, tags_code)
        appended = Appended(queue_offset, offset, size, now, queue, unit)
        self._staged.append(appended)
        self.staged += 1
        return appended

    def append_plain(
        self,
        noted: Sequence[Noted],
        first: int,
        rules: SendRules,
        find_topic: Callable[[str], tuple[int, int] | None],
    ) -> list[bytes | None]:
        """As append(), for the plain messages from the ``first`` on; their answers.

        It may be that none is taken: see encode_sends. Raises StoreError, for all of them.
        """
        if self._closed or self._log_flusher.refusal or self.cleaner.refusal:
            self._refuse()
        now = self._clock.now_ms()
        position, limit = self._log.room
        records, answers, runs = encode_sends(
            noted, first, rules, find_topic, self._find_queue, now, position, limit
        )
        if answers:
            self._log.stage_records(records)
        for queue, queue_offset, offset, size, units in runs:
            self._staged.append(Appended(queue_offset, offset, size, now, queue, units))
            queue.next_offset += len(units) // UNIT_SIZE
        self.staged += len(answers)
        return answers

    def _find_queue(self, topic: str, queue_id: int) -> tuple[ConsumeQueue, int]:
        """A queue, made if need be, and the offset that its next message gets."""
        queue = self._queues.get((topic, queue_id))
        if queue is None:
            queue = self._table.get_or_create(topic, queue_id)
        return queue, queue.next_offset

    def append_batch(self, common: Draft, body: bytes) -> Appended:
        """As append(), for the messages in the ``body`` of a batch (wire/record.py).

        They have all of ``common`` but flag, body, properties and tags, are not to be delayed, and
        all of them are staged or none. Raises RecordError when one is not whole, too.
        """
        if self._closed or self._log_flusher.refusal or self.cleaner.refusal:
            self._refuse()
        queue, first = self._place(common)
        now = self._clock.now_ms()
        staged = stage_batch(
            self._log, self._limits, common, body, first if queue is not None else None, now
        )
        appended = Appended(first, staged.offset, staged.size, now, queue, staged.units)
        number = len(staged.units) // UNIT_SIZE
        if queue is not None:
            queue.next_offset = first + number
        self._staged.append(appended)
        self.staged += number
        return appended

    def _place(self, draft: Draft) -> tuple[ConsumeQueue | None, int]:
        """The queue that takes a message, if any, and the message's offset in it."""
        if draft.sys_flag & TRANSACTION_PREPARED:
            return None, 0
        return self._find_queue(draft.topic, draft.queue_id)

    def _refuse(self) -> None:
        """Raise the StoreError that says why; what belongs together is taken whole."""
        if self._closed:
            raise self._closed_error()
        if not self._staged:
            if self._log_flusher.refusal:
                raise StoreError(self._log_flusher.refusal, str(self.directory))
            if self.cleaner.refusal:
                raise DiskFullError(self.cleaner.refusal, str(self.directory))

    def _closed_error(self) -> StoreError:
        return StoreError(
            f"the store {self.directory} is closed, or was opened by the process that this one is "
            "a fork of",
            str(self.directory),
        )

    def _abandon(self) -> None:
        """What a forked child does with its copy: leave the store to its parent."""
        self._closed = True
        self._staged, self.staged = [], 0
        self._directory.abandon()

    def write(self) -> None:
        """Write all staged messages, put them into their queues, tell the write listeners.

        When it returns they survive the end of the process. When it raises DiskFullError or
        another StoreError, none of them was stored, and their offsets go to the next ones.
        """
        staged, number = self._staged, self.staged
        if not staged:
            return
        self._staged, self.staged = [], 0
        try:
            self._log.write()
        except StoreError:
            for appended in staged:
                if appended.queue is not None:
                    appended.queue.next_offset = appended.queue.max_offset
            self._delayed.clear()
            raise
        by_queue: dict[ConsumeQueue, list[Appended]] = {}
        for appended in staged:
            queue = appended.queue
            if queue in by_queue:
                by_queue[queue].append(appended)
            elif queue is not None:
                by_queue[queue] = [appended]
        with self._table.lock:
            for queue, runs in by_queue.items():
                queue.add(b"".join(map(_units_of, runs)))
            self._last = staged[-1]
        if self._delayed:
            self._write_down_delayed()
        written = Written(staged, by_queue, number)
        for listener in self._write_listeners:
            try:
                listener(written)
            except Exception:
                logger.exception("a write listener failed for %d messages", number)

    def _state(self) -> Dispatched:
        """How far the log is in the queues."""
        last = self._last
        if last is None:
            return self._recovered
        offset, size, _ = UNIT.unpack(last.units[-UNIT_SIZE:])
        return Dispatched(offset + size, offset, last.store_timestamp)

    def _write_down_delayed(self) -> None:
        """Have entries that tell when messages are due in their files before these are answered.

        An Apache broker of 4.9 that takes the directory over after a kill makes missing ones anew
        before it knows the delay levels, and delivers at once. Here they can be made anew.
        """
        for queue, offset in self._delayed.items():
            try:
                queue.write_down(offset)
            except OSError as error:
                if str(error) != self._due_complaint:
                    self._due_complaint = str(error)
                    logger.warning("%s is not written yet: %s", queue, error)
        self._delayed.clear()

    def add_write_listener(self, listener: WriteListener) -> None:
        """Have ``listener`` called once in each write(), with all that was written.

        What it raises is logged; the messages are stored all the same.
        """
        self._write_listeners.append(listener)

    def request_flush(self, callback: FlushCallback) -> None:
        """Have ``callback`` called once all written so far is on the disk.

        It is called from the flusher's thread, with None, or with the StoreError that says why
        the disk does not have it. One fdatasync serves all who wait.
        """
        if self._closed:
            callback(self._closed_error())
        else:
            self._log_flusher.request(callback)

    def delete_topic(self, topic: str) -> bool:
        """Delete all queues of a topic; whether there were any. Its records stay in the log.

        A message that comes later starts its queue anew at offset 0. The files are removed in the
        background, soon.
        """
        if self._closed:
            raise self._closed_error()
        removed = self._table.remove_topic(topic)
        if removed:
            self._queue_flusher.request_mark()
        return removed

    # Reading

    def set_read_ahead(self, *, enabled: bool) -> None:
        """Whether the system is to read on ahead of what is read of the commit log, as it does."""
        self._log.set_read_ahead(enabled=enabled)

    def get_messages(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        max_bytes: int,
        match: Callable[[int], bool] | None = None,
        match_record: Callable[[memoryview], bool] | None = None,
    ) -> GetResult:
        """Up to ``max_count`` messages, ``max_bytes`` of records, from queue offset ``offset``.

        The first message is found whatever its size. ``match`` chooses by the tags code in the
        queue, ``match_record`` by the record; it may raise ScanStopped to end the read before the
        record. Status and next offset are those of
        DefaultMessageStore.getMessage; at most 800 entries, or ``max_count`` if that is more, are
        looked at, and none past the end of a consume-queue file.
        """
        queue = self._queues.get((topic, queue_id))
        return get_messages(self._log, queue, offset, (max_count, max_bytes), match, match_record)

    def read_units(self, topic: str, queue_id: int, offset: int, max_count: int) -> list[QueueUnit]:
        """Up to ``max_count`` consume-queue entries from ``offset``, none past the file's end.

        [] when there are none. Entries below ``min_offset`` point at messages that are gone.
        """
        queue = self._queues.get((topic, queue_id))
        data = queue.read(offset, max_count) if queue is not None else b""
        return [QueueUnit(offset + i, *unit) for i, unit in enumerate(UNIT.iter_unpack(data))]

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The record that begins at ``physical_offset``; None when none does."""
        return self._log.record_at(physical_offset)

    # Offsets and times

    def topics(self) -> dict[str, list[int]]:
        """The topics that have queues here, with their queue ids."""
        return self._table.topics()

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset of the oldest message still there; 0 for a queue never written."""
        queue = self._queues.get((topic, queue_id))
        return queue.min_offset if queue is not None else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset the next message gets, staged ones left out; 0 for one never written."""
        queue = self._queues.get((topic, queue_id))
        return queue.max_offset if queue is not None else 0

    def offset_by_timestamp(
        self, topic: str, queue_id: int, timestamp: int, *, upper: bool = False
    ) -> int:
        """The queue offset that store time ``timestamp`` (ms) stands for: see times.py."""
        queue = self._queues.get((topic, queue_id))
        return offset_by_timestamp(self._log, queue, timestamp, upper=upper) if queue else 0

    def store_timestamp_at(self, topic: str, queue_id: int, offset: int) -> int:
        """When the message at a queue offset was stored, ms; -1 when it is not there."""
        queue = self._queues.get((topic, queue_id))
        return stored_at(self._log, queue, offset) if queue is not None else -1

    def earliest_timestamp(self, topic: str | None = None, queue_id: int = 0) -> int:
        """When the oldest message of a queue, or without ``topic`` of the log, was stored, ms.

        -1 when there is none (DefaultMessageStore.getEarliestMessageTime).
        """
        if topic is None:
            return self._log.store_timestamp_at(self._log.min_offset)
        return self.store_timestamp_at(topic, queue_id, self.min_offset(topic, queue_id))

    @property
    def min_physical_offset(self) -> int:
        """Where the commit log begins."""
        return self._log.min_offset

    @property
    def max_physical_offset(self) -> int:
        """Where the commit log ends; the next record goes there."""
        return self._log.end

    @property
    def flushed_physical_offset(self) -> int:
        """Up to where the commit log is known to be on the disk."""
        return self._log_flusher.flushed

    @property
    def flush_failure(self) -> StoreError | None:
        """Why the disk does not have all that is stored; None while flushing works."""
        return self._log_flusher.failure


_OPEN: Final[WeakSet[MessageStore]] = WeakSet()


def _abandon_all() -> None:
    for store in _OPEN:
        store._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
