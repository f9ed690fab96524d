"""The two background threads: one brings the commit log to the disk, one the consume queues.

They are two because an acknowledgement may wait for the first and must not wait for a thousand
queue files. The second also renews the mark recovery starts from, once log and queues are on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Condition, Event, Lock, Thread
from typing import NamedTuple, TypeAlias

from orbitmq.errors import StoreError
from orbitmq.store.checkpoint import Checkpoint, Mark
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import store_error
from orbitmq.store.queue_table import QueueTable

logger = logging.getLogger("orbitmq.store")

FlushCallback: TypeAlias = Callable[[StoreError | None], object]
"""Called with None when the disk has it, else with what went wrong; its result is ignored."""


class LogFlusher:
    """Flushes the commit log: at once when someone waits, else every ``flush_interval_ms``.

    One fdatasync answers all who wait (CommitLog.GroupCommitService). A flush that fails is
    final: the kernel may have dropped the pages, and a later success would not mean that they
    are on the disk. From then on everyone who asks is told so, until the store is opened anew
    and recovery has looked at what the disk holds.

    ``flushed`` is up to where the log is on the disk already: after a crash not to its end.
    """

    def __init__(self, log: CommitLog, flushed: int, config: StoreConfig) -> None:
        self._log = log
        self._interval_seconds = config.flush_interval_ms / 1000
        self._flushed = flushed
        self._failure: StoreError | None = None
        self._sync_lock = Lock()
        self._wake = Condition()
        self._waiting: list[FlushCallback] = []
        self._stopping = False
        self._thread = Thread(target=self._run, name="orbitmq-log-flusher", daemon=True)

    @property
    def flushed(self) -> int:
        """Up to which physical offset the log is on the disk."""
        return self._flushed

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request(self, callback: FlushCallback) -> None:
        """Have ``callback`` called, from the thread, once all written so far is on the disk."""
        with self._wake:
            if not self._stopping:
                self._waiting.append(callback)
                self._wake.notify()
                return
        callback(StoreError("the store is closed", ""))

    def flush(self) -> StoreError | None:
        """Flush what is written, on the calling thread; what went wrong, if anything."""
        with self._sync_lock:
            target = self._log.end
            if self._failure is None and target > self._flushed:
                try:
                    self._log.sync(self._flushed, target)
                    self._flushed = target
                except OSError as error:
                    cause = store_error(error, self._log.directory, "flush the commit log")
                    self._failure = StoreError(
                        f"{cause}. Messages since physical offset {self._flushed} may not survive "
                        "a power cut; nothing more is flushed until the store is opened anew",
                        cause.path,
                    )
                    logger.exception("%s", self._failure)
            return self._failure

    def stop(self) -> None:
        """Answer who waits, and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            with self._wake:
                if not self._waiting and not self._stopping:
                    self._wake.wait(self._interval_seconds)
                waiting, self._waiting = self._waiting, []
                stopping = self._stopping
            failure = self.flush()
            for callback in waiting:
                try:
                    callback(failure)
                except Exception:
                    logger.exception("a callback of request_flush failed")


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
        interval_ms = self._config.queue_flush_interval_ms
        while True:
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
                self._complain(error)
                if due:
                    self._mark_now.set()

    def _complain(self, error: Exception) -> None:
        """Log a failure once, not every second while it lasts."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            logger.error("consume queues stay in memory, they cannot be flushed: %s", error)
