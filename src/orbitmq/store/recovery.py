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
  when a file of the log or of a consume queue has a wrong length, or is missing in between: such a
  queue's files are deleted and made anew.

What no crash explains is damage: something unsound, with sound records behind it, in a directory
that was closed properly, or before the mark. It is told, and passed over; filler stands in the
queues for the messages that were there. Behind the mark, after a crash, it is what a power cut
leaves, and the log ends there as in CommitLog.recoverAbnormally.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from orbitmq.errors import CorruptStoreError, IllegalNameError
from orbitmq.names import SCHEDULE_TOPIC
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.damage import Damage, next_record
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.flusher import Dispatched
from orbitmq.store.log_records import records
from orbitmq.store.queue_table import QueueTable
from orbitmq.store.segment import Segment
from orbitmq.wire.record import (
    MIN_RECORD_SIZE,
    TRANSACTION_PREPARED,
    RecordInfo,
    is_blank,
)

logger = logging.getLogger("orbitmq.store")

_FLUSH_EVERY = 50_000
_BEYOND_ALL = 2**63 - 1

OnRecovery: TypeAlias = Callable[[int, int], object]
"""Called with how many bytes of the log were read, and how many there are to read."""


class Recovered(NamedTuple):
    """How far the log is in the queues now, and up to where it is sure to be on the disk.

    ``damages`` are the parts of the log that were passed over.
    """

    dispatched: Dispatched
    flushed: int
    damages: tuple[Damage, ...]


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
    mended: bool = False,
    on_progress: OnRecovery | None = None,
) -> Recovered:
    """Bring log and queues into agreement.

    ``clean`` says that whoever used the directory last closed it properly, ``own_from`` from where
    on the records are those of this store, whose process then ended; None: nowhere. ``mended``:
    files of the log were not as they should be. ``on_progress`` is called now and then. Raises
    CorruptStoreError when the queue files are of another setting, and OSError.
    """
    mark = checkpoint.mark
    sure = mark.position if mark is not None and _is_of_this_log(mark, log) else _BEYOND_ALL
    reached: dict[tuple[str, int], int] = {}
    if mended:
        reached |= table.max_offsets()
    if table.damaged:
        reached |= _give_up_damaged_queues(table, checkpoint, config, log.min_offset)
    if mended or reached:
        start = _Start(log.min_offset, -1, known=False)
    else:
        start = _choose_start(log, table, checkpoint, clean=clean)
    checkpoint.queue_units = config.consume_queue_units
    checkpoint.log_file_size = config.mapped_file_size
    if not start.known:
        table.cut(log.min_offset)
        checkpoint.forget_mark()
    scan = _Scan(log, table, DelayLevels(config.delay_levels), start)
    scan.own_from = _BEYOND_ALL if clean or own_from is None else own_from
    scan.sure = _BEYOND_ALL if clean else sure
    scan.on_progress = on_progress
    end = scan.run(cut_damaged=config.cut_damaged_log)
    if log.cut(end):
        logger.warning("what followed the last whole message, at physical offset %d, is cut", end)
    if mark is not None and end < mark.position and not config.cut_damaged_log:
        logger.error(
            "the commit log ends at physical offset %d, but %d bytes more were stored: their "
            "messages are lost. Files of %s were deleted or cut short",
            end, mark.position - end, log.directory,
        )  # fmt: skip
    table.fill_to(reached, end)
    table.finish_recovery(log.min_offset)
    timestamp = scan.timestamp or checkpoint.log_timestamp
    return Recovered(
        Dispatched(end, scan.last_record, timestamp), min(start.position, end), tuple(scan.damages)
    )


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
    table: QueueTable, checkpoint: Checkpoint, config: StoreConfig, log_min: int
) -> dict[tuple[str, int], int]:
    """Delete the files of damaged queues, to be made anew from the log.

    The offsets they had reached with messages that the log no longer has, before ``log_min``.
    Raises CorruptStoreError where they are not damaged but written with another setting.
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
    for directory, damage in table.damaged:
        logger.warning("%s. %s is made anew from the commit log", damage, directory)
    return table.delete_damaged(log_min)


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

    ``torn_end`` is where the torn record would end, if one was found that looks whole. Before
    ``sure`` no crash explains what is unsound; ``damages`` collects that.
    """

    def __init__(
        self, log: CommitLog, table: QueueTable, levels: DelayLevels, start: _Start
    ) -> None:
        self.last_record = start.last_record
        self.timestamp = 0
        self.own_from = _BEYOND_ALL
        self.torn_end = 0
        self.sure = _BEYOND_ALL
        self.damages: list[Damage] = []
        self.on_progress: OnRecovery | None = None
        self._log = log
        self._table = table
        self._levels = levels
        self._first = self._position = start.position
        self._count = 0
        self._most_lost = 0

    def run(self, *, cut_damaged: bool) -> int:
        """Read to the end and return it; it is before a damage with ``cut_damaged``."""
        self._read_on()
        while self._position < self.sure and self._pass_over(cut_damaged=cut_damaged):
            self._read_on()
        read = self._position - self._first
        if read:
            logger.info("recovery read %d bytes, %d messages", read, self._count)
        return self._position

    def _read_on(self) -> None:
        """Read up to the first place where there is no sound record."""
        segment = self._log.find(self._position)
        while segment is not None:
            if not self._read(segment):
                break
            self._position = segment.end
            segment = self._log.find(segment.end)

    def _pass_over(self, *, cut_damaged: bool) -> bool:
        """Go to the sound record behind a damage; whether there is one to be read."""
        start = self._position
        survivor = next_record(self._log, max(start, self.torn_end))
        if survivor is None:
            return False
        segment = self._log.find(start)
        path = segment.path if segment is not None else self._log.directory
        if cut_damaged:
            logger.error(
                "%s is damaged at physical offset %d: all that follows is given up, sound messages "
                "from %d on among it (cut_damaged_log)",
                path, start, survivor,
            )  # fmt: skip
            return False
        logger.error(
            "%s is damaged at physical offset %d: there is no sound message up to %d. What was "
            "between is lost, the messages behind it are read. Put a whole copy of the file in its "
            "place, if there is one, and delete consumequeue and checkpoint",
            path, start, survivor,
        )  # fmt: skip
        self.damages.append(Damage(start, survivor))
        self._most_lost += (survivor - start) // MIN_RECORD_SIZE
        self._position = survivor
        return True

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
            if self.on_progress is not None:
                self.on_progress(self._position - self._first, self._log.end - self._first)
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
            queue.put_out_of_order(info.queue_offset, unit, self._log.min_offset, self._most_lost)

    def _empty_tails(self) -> None:
        """Give memory back. On a full disk the entries stay in it, and messages can be read."""
        try:
            self._table.flush()
        except OSError as error:
            logger.warning("consume queues stay in memory, they cannot be flushed: %s", error)
