"""The background thread that brings the consume queues to the disk.

It also renews the mark recovery starts from, once log and queues are on disk. The commit log has a
thread of its own (log_flusher.py), because an acknowledgement may wait for that one and must not
wait for a thousand queue files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import NamedTuple

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.log_flusher import LogFlusher
from orbitmq.store.queue_table import QueueTable

logger = logging.getLogger("orbitmq.store")


class Dispatched(NamedTuple):
    """How far the log is in the queues: see Mark; ``timestamp`` is the last record's, ms."""

    position: int
    last_record: int
    timestamp: int


class QueueFlusher:
    """Moves the queues' tails to files every ``queue_flush_interval_ms`` and renews the mark.

    ``dispatched`` gives the present state; it is called with the table's lock held.
    """

    def __init__(
        self,
        log: CommitLog,
        log_flusher: LogFlusher,
        table: QueueTable,
        checkpoint: Checkpoint,
        config: StoreConfig,
        dispatched: Callable[[], Dispatched],
    ) -> None:
        self._log = log
        self._log_flusher = log_flusher
        self._table = table
        self._checkpoint = checkpoint
        self._config = config
        self._dispatched = dispatched
        self._one_at_a_time = Lock()
        self._mark_age_ms = 0
        self._mark_now = Event()
        self._wake = Event()
        self._stopping = False
        self._complaint = ""
        self._thread = Thread(target=self._run, name="orbitmq-queue-flusher", daemon=True)

    def renew(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._config = config

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_mark(self) -> None:
        """Have the mark renewed soon: there is none, or the queues are others than it says."""
        self._mark_now.set()
        self._wake.set()

    def stop(self) -> None:
        """End the thread, without a last flush."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def flush(self, *, renew_mark: bool) -> None:
        """Write the tails to files; with ``renew_mark`` to the disk, and the mark after them.

        Raises OSError or StoreError; what could not be written is kept for the next time.
        """
        with self._one_at_a_time:
            self._flush(renew_mark=renew_mark)

    def mark_from(self, position: int) -> None:
        """Make sure that the mark does not refer to the log before ``position``.

        That is about to be deleted. Raises OSError or StoreError.
        """
        mark = self._checkpoint.mark
        if mark is None or mark.last_record < position:
            self.flush(renew_mark=True)

    def delete_expired(self, queue: ConsumeQueue) -> int:
        """Delete the files of ``queue`` whose messages are all gone; how many. Raises OSError."""
        with self._one_at_a_time:
            return 0 if queue.removed else queue.delete_expired()

    def _flush(self, *, renew_mark: bool) -> None:
        if not renew_mark:
            self._table.flush()
            return
        with self._table.lock:
            state = self._dispatched()
            totals = self._table.totals()
        self._table.flush()
        self._table.sync()
        failure = self._log_flusher.flush()
        if failure is not None:
            raise failure.with_traceback(None)
        checksum = self._log.fingerprint(state.last_record)
        self._checkpoint.mark = Mark(state.position, state.last_record, checksum, *totals)
        self._checkpoint.log_timestamp = self._checkpoint.queue_timestamp = state.timestamp
        self._checkpoint.write()
        self._mark_age_ms = 0

    def _mark_is_due(self) -> bool:
        if self._mark_now.is_set():
            return True
        behind = self._log.end - (self._checkpoint.mark.position if self._checkpoint.mark else 0)
        return behind != 0 and (
            behind >= self._config.mark_bytes or self._mark_age_ms >= self._config.mark_interval_ms
        )

    def _run(self) -> None:
        while True:
            interval_ms = self._config.queue_flush_interval_ms
            self._wake.wait(interval_ms / 1000)
            self._wake.clear()
            if self._stopping:
                return
            self._mark_age_ms += interval_ms
            due = self._mark_is_due()
            if due:
                self._mark_now.clear()
            try:
                self.flush(renew_mark=due)
                self._complaint = ""
            except (OSError, StoreError) as error:
                if isinstance(error, OSError):  # a StoreError is the log's, and told by its flusher
                    self._complain(error)
                if due:
                    self._mark_now.set()

    def _complain(self, error: OSError) -> None:
        """Log a failure once, not every second while it lasts."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.error("consume queues stay in memory, they cannot be flushed: %s", error)
