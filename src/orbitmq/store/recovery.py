"""Making a store whole after its process ended in any way, at any moment.

The commit log is the truth; consume queues are made from it. Recovery finds a place up to which
log and queues are known to agree and to be on disk, takes away the queue entries after it, reads
the log from there record by record, puts their entries into the queues, and ends the log where the
first record is not whole. Whatever stands after that end becomes zero, so it can never come back.

A record has a checksum of its body only, so one that was written in part may look whole: when what
is missing belongs to its properties, which then end in NUL bytes. This store writes no record that
ends so (MessageStore.append), Apache's may. Therefore the ``abort`` file tells from where on the
records are this store's own: there, a last record that ends in NUL is torn. Anywhere else, and in a
directory that was closed properly, it is whole.

Where it begins:

* at the mark in ``checkpoint``, if log and queues are still those it was written for. Also when
  Apache RocketMQ has used the directory since: it has only added to what was there;
* in a directory that has no mark, but that Apache closed properly: at the last record the queues
  know of (ConsumeQueueStore.getDispatchFromPhyOffset);
* else at the beginning of the log. That reads all of it, at about 4 microseconds a message. Also
  when a consume-queue file has a wrong length, or is missing in between: where the log still has
  every message, the queue's files are deleted and made anew.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from orbitmq.errors import CorruptStoreError, IllegalNameError
from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.flusher import Dispatched
from orbitmq.store.log_records import records
from orbitmq.store.queue_table import QueueTable
from orbitmq.store.segment import Segment
from orbitmq.wire.record import (
    MAGIC_V1,
    MAGIC_V2,
    RECORD_HEADER,
    TRANSACTION_PREPARED,
    RecordInfo,
    is_blank,
)

logger = logging.getLogger("orbitmq.store")

_FLUSH_EVERY = 50_000
_BEYOND_ALL = 2**63 - 1


class Recovered(NamedTuple):
    """How far the log is in the queues now, and up to where it is sure to be on the disk."""

    dispatched: Dispatched
    flushed: int


class _Start(NamedTuple):
    """Where reading begins; ``last_record`` precedes it; ``known`` unless it is the whole log."""

    position: int
    last_record: int
    known: bool


def recover(
    log: CommitLog,
    table: QueueTable,
    checkpoint: Checkpoint,
    config: StoreConfig,
    *,
    clean: bool,
    own_from: int | None,
) -> Recovered:
    """Bring log and queues into agreement.

    ``clean`` says that whoever used the directory last closed it properly, ``own_from`` from where
    on the records are those of this store, whose process then ended; None: nowhere. Raises
    CorruptStoreError when the log is damaged before its end (see cut_damaged_log), and OSError.
    """
    mark = checkpoint.mark
    sure = mark.position if mark is not None and _is_of_this_log(mark, log) else _BEYOND_ALL
    if table.damaged:
        _give_up_damaged_queues(log, table, checkpoint, config)
        start = _Start(log.min_offset, -1, known=False)
    else:
        start = _choose_start(log, table, checkpoint, clean=clean)
    checkpoint.queue_units = config.consume_queue_units
    if not start.known:
        table.cut(log.min_offset)
        if checkpoint.mark is not None:
            checkpoint.mark = None
            checkpoint.write()
    scan = _Scan(log, table, DelayLevels(config.delay_levels), start)
    scan.own_from = _BEYOND_ALL if clean or own_from is None else own_from
    end = scan.run()
    if clean or end < sure:  # after a crash nothing behind the mark was sure to be on disk
        _check_damage(log, end, scan.torn_end, may_cut=config.cut_damaged_log)
    if log.cut(end):
        logger.warning("what followed the last whole message, at physical offset %d, is cut", end)
    table.finish_recovery(log.min_offset)
    timestamp = scan.timestamp or checkpoint.log_timestamp
    return Recovered(Dispatched(end, scan.last_record, timestamp), min(start.position, end))


def _choose_start(
    log: CommitLog, table: QueueTable, checkpoint: Checkpoint, *, clean: bool
) -> _Start:
    mark = checkpoint.mark
    if mark is not None:
        if _is_of_this_log(mark, log):
            table.cut(mark.position)
            if table.totals() == (mark.queues, mark.offsets):
                return _Start(mark.position, mark.last_record, known=True)
        logger.warning(
            "the consume queues or the log are not those of the last mark (something was deleted "
            "or restored): making all queues anew from the commit log"
        )
    elif clean and checkpoint.existed:
        table.cut(_BEYOND_ALL)
        last_record = _last_record_of_queues(table)
        info = _info_at(log, last_record)
        if info is not None:
            return _Start(last_record + info.size, last_record, known=True)
    return _Start(log.min_offset, -1, known=False)


def _give_up_damaged_queues(
    log: CommitLog, table: QueueTable, checkpoint: Checkpoint, config: StoreConfig
) -> None:
    """Delete the files of damaged queues, to be made anew from the log.

    Raises CorruptStoreError where they are not damaged but written with another setting, or where
    the log no longer begins at 0: a queue whose messages are all gone would lose its offsets.
    """
    directory, damage = table.damaged[0]
    expected = config.consume_queue_units
    written = checkpoint.queue_units
    if not written and expected * UNIT.size in table.file_sizes():  # a directory of Apache's
        written = expected
    if written != expected:
        hint = f" (that was {written})" if written else ""
        raise CorruptStoreError(
            f"{damage}{hint}. If it was cut short, delete {directory}: the queue is made anew from "
            "the commit log",
            damage.path,
        )
    if log.min_offset > 0:
        raise CorruptStoreError(
            f"{damage}. It is not made anew from the commit log, which begins at {log.min_offset}: "
            f"a queue without messages there would begin at offset 0 again; delete {directory} to "
            "have it so",
            damage.path,
        )
    for directory, damage in table.damaged:
        logger.warning("%s. %s is made anew from the commit log", damage, directory)
    table.delete_damaged()


def _is_of_this_log(mark: Mark, log: CommitLog) -> bool:
    if mark.last_record < 0:
        return mark.position == log.min_offset
    return (
        log.min_offset <= mark.last_record < mark.position <= log.end
        and log.fingerprint(mark.last_record) == mark.fingerprint
    )


def _last_record_of_queues(table: QueueTable) -> int:
    units = [queue.unit(queue.max_offset - 1) for queue in table.queues.values()]
    return max((unit.physical_offset for unit in units if unit is not None), default=-1)


def _info_at(log: CommitLog, offset: int) -> RecordInfo | None:
    segment = log.find(offset)
    if segment is None:
        return None
    return next(records(segment, offset), None)


class _Scan:
    """One pass over the log from a start to its end, filling the queues.

    ``torn_end`` is where the torn record would end, if one was found that looks whole.
    """

    def __init__(
        self, log: CommitLog, table: QueueTable, levels: DelayLevels, start: _Start
    ) -> None:
        self.last_record = start.last_record
        self.timestamp = 0
        self.own_from = _BEYOND_ALL
        self.torn_end = 0
        self._log = log
        self._table = table
        self._levels = levels
        self._position = start.position
        self._count = 0

    def run(self) -> int:
        """Read to the end and return it."""
        first = self._position
        segment = self._log.find(first)
        while segment is not None:
            if not self._read(segment):
                break
            self._position = segment.end
            segment = self._log.find(segment.end)
        if self._position > first:
            logger.info("recovery read %d bytes, %d messages", self._position - first, self._count)
        return self._position

    def _read(self, segment: Segment) -> bool:
        """Put the file's records into the queues; whether its end was reached.

        A record is put when what follows it has been looked at: the last one of all may be torn.
        """
        waiting: RecordInfo | None = None
        for info in records(segment, self._position):
            if waiting is not None:
                self._put(waiting)
            waiting = info
            self._position += info.size
        rest = segment.read(self._position, END_BLANK)
        ended = not rest or is_blank(rest, 0, len(rest))
        if waiting is not None:
            if not ended and self._is_torn(waiting):
                self.torn_end = self._position
                self._position = waiting.physical_offset
            else:
                self._put(waiting)
        return ended

    def _is_torn(self, last: RecordInfo) -> bool:
        return last.physical_offset >= self.own_from and last.properties.endswith(b"\0")

    def _put(self, info: RecordInfo) -> None:
        self.last_record = info.physical_offset
        self.timestamp = info.store_timestamp
        self._count += 1
        if self._count % _FLUSH_EVERY == 0:
            self._empty_tails()
        if info.sys_flag & TRANSACTION_PREPARED:
            return
        try:
            queue = self._table.get_or_create(info.topic, info.queue_id)
        except IllegalNameError as error:
            logger.warning("record at %d gets no consume queue: %s", info.physical_offset, error)
            return
        tags_code = info.tags_code
        if info.topic == SCHEDULE_TOPIC:
            tags_code = self._levels.queue_tags_code(
                info.properties, tags_code, info.store_timestamp
            )
        unit = UNIT.pack(info.physical_offset, info.size, tags_code)
        if info.queue_offset == queue.max_offset:
            queue.add(unit)
        else:
            queue.put_out_of_order(info.queue_offset, unit, self._log.min_offset)

    def _empty_tails(self) -> None:
        """Give memory back. On a full disk the entries stay in it, and messages can be read."""
        try:
            self._table.flush()
        except OSError as error:
            logger.warning("consume queues stay in memory, they cannot be flushed: %s", error)


def _check_damage(log: CommitLog, end: int, torn_end: int, *, may_cut: bool) -> None:
    """Raise CorruptStoreError when cutting the log at ``end`` loses messages no crash explains.

    A hole behind the mark is what a power cut leaves after a crash, and the log ends at it as in
    CommitLog.recoverAbnormally. Otherwise a sound record behind the first unsound one means damage,
    and nothing is touched, unless the user wants it so (``may_cut``).
    """
    survivor = _next_record(log, max(end, torn_end))
    if survivor is None:
        return
    segment = log.find(end)
    path = str(segment.path if segment is not None else log.directory)
    if may_cut:
        logger.error(
            "%s is damaged at physical offset %d: all that follows is given up, sound messages "
            "from %d on among it (cut_damaged_log)",
            path, end, survivor,
        )  # fmt: skip
        return
    raise CorruptStoreError(
        f"{path} is damaged: there is no sound message at physical offset {end}, but there is one "
        f"at {survivor}. Restore the file from a copy, or open the store once with "
        "cut_damaged_log=True (orbitmq broker --cut-damaged-log) to give up all messages behind "
        "the damage",
        path,
    )


def _next_record(log: CommitLog, start: int) -> int | None:
    """Where the first sound record at or after ``start`` begins."""
    for segment in log.segments:
        if segment.end <= start:
            continue
        for magic in (MAGIC_V1, MAGIC_V2):
            pattern = magic.to_bytes(4, "big")
            for found in segment.find_bytes(pattern, max(start, segment.base)):
                offset = found - RECORD_HEADER.magic
                if offset >= start and next(records(segment, offset), None) is not None:
                    return offset
    return None
