"""Opening a store directory: its parts, brought into agreement before anybody uses them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import NamedTuple

from orbitmq.clock import Clock
from orbitmq.errors import CorruptStoreError
from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.damage import broken_files, mend
from orbitmq.store.directory import StoreDirectory
from orbitmq.store.file_ops import FileOps
from orbitmq.store.key_index import KeyIndex
from orbitmq.store.queue_table import QueueTable
from orbitmq.store.recovery import OnRecovery, Recovered, recover


class StoreParts(NamedTuple):
    """What a store is made of, once recovery has brought it into agreement."""

    config: StoreConfig
    log: CommitLog
    table: QueueTable
    checkpoint: Checkpoint
    recovered: Recovered
    key_index: KeyIndex | None


def open_parts(
    place: StoreDirectory,
    config: StoreConfig,
    clock: Clock,
    ops: FileOps,
    undo: ExitStack,
    on_recovery: OnRecovery | None = None,
) -> StoreParts:
    """The parts of the directory, recovered; what ``undo`` is given closes them again.

    ``on_recovery`` is called now and then meanwhile. Raises CorruptStoreError, another StoreError
    or OSError.
    """
    checkpoint = Checkpoint(ops, place.checkpoint)
    log_size = config.mapped_file_size
    broken = broken_files(place.commit_log, log_size, checkpoint.log_file_size)
    if broken:
        checkpoint.forget_mark()
        place.mark_in_use(ops)  # the next opening after a crash is to read the whole log too
        mend(ops, place.commit_log, broken, log_size)
    log = CommitLog(ops, place.commit_log, log_size)
    undo.callback(log.close)
    table = QueueTable(ops, place.consume_queue, config.consume_queue_units)
    undo.callback(table.close)
    place.mark_in_use(ops)
    try:
        recovered = recover(
            log,
            table,
            checkpoint,
            config,
            clean=place.was_clean,
            own_from=place.own_from,
            mended=bool(broken),
            on_progress=on_recovery,
        )
    except CorruptStoreError:
        if place.was_clean:  # it still is, and the next open must know
            place.mark_clean()
        raise
    place.mark_own(log.end)
    key_index = None
    if config.message_index_enable:
        key_index = KeyIndex(
            ops, place.index, log, checkpoint, config, clock, clean=place.was_clean
        )
    return StoreParts(config, log, table, checkpoint, recovered, key_index)
