"""The background thread that brings the commit log to the disk, and what a failing disk means.

A flush that fails is told to all who wait, and flushing goes on. But the kernel takes the pages it
could not write for clean: fdatasync reports a failure once, and its next success proves nothing
about those bytes. So after a failure everything since the last good flush is in doubt. It is read
back from the log's pages, record by record, written again and flushed, in pieces of a megabyte,
and counts as flushed only then. That works where failed pages stay in memory, as on ext4 and XFS.
Where they do not (Btrfs takes the former content back, any kernel may drop them for want of memory)
the checksums tell, and nothing more is stored until the store is opened anew.

The file ``unflushed`` in the store directory says that bytes are in doubt, to a process that opens
the store while the pages are still those that only look clean. A machine that started anew has
read its pages from the disk, so the file need not reach it.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Final, TypeAlias

from orbitmq.errors import StoreError
from orbitmq.store.commit_log import END_BLANK, CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.log_records import records
from orbitmq.wire.record import is_blank

logger = logging.getLogger("orbitmq.store")

FlushCallback: TypeAlias = Callable[[StoreError | None], object]
"""Called with None when the disk has it, else with what went wrong; its result is ignored."""

_PIECE: Final = 1 << 20


class LogFlusher:
    """Flushes the commit log: at once when someone waits, else every ``flush_interval_ms``.

    One fdatasync answers all who wait (CommitLog.GroupCommitService). ``flushed`` is up to where
    the log is on the disk already: after a crash not to its end. ``failure`` says why the disk
    does not have the rest, ``refusal`` why the store takes no more messages; both may be read
    from any thread. ``doubt`` is the path of the file ``unflushed``.
    """

    def __init__(self, log: CommitLog, flushed: int, config: StoreConfig, doubt: Path) -> None:
        self.failure: StoreError | None = None
        self.refusal = ""
        self._log = log
        self._config = config
        self._doubt = doubt
        self._flushed = flushed
        self._settled = -1 if doubt.exists() else log.failed_syncs  # failures that are made good
        self._is_lost = False
        self._sync_lock = Lock()
        self._wake = Condition()
        self._waiting: list[FlushCallback] = []
        self._stopping = False
        self._thread = Thread(target=self._run, name="orbitmq-log-flusher", daemon=True)

    @property
    def flushed(self) -> int:
        """Up to which physical offset the log is on the disk."""
        return self._flushed

    def renew(self, config: StoreConfig) -> None:
        """Go by these settings from now on."""
        self._config = config

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
            if not self._is_lost:
                try:
                    self._bring_to_disk(self._log.end, self._log.failed_syncs)
                except OSError as error:
                    self._failed(error)
                except StoreError as error:
                    self._lost(error)
                else:
                    self._worked()
            return self.failure

    def stop(self) -> None:
        """Answer who waits, and end the thread."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        self._thread.join()

    def _bring_to_disk(self, target: int, failures: int) -> None:
        if failures != self._settled:
            for start, stop in self._sound_pieces(target):
                self._log.write_again(start, stop)
                self._sync(stop, failures)
            self._doubt.unlink(missing_ok=True)
            self._settled = failures
        elif target > self._flushed:
            self._sync(target, failures)

    def _sync(self, stop: int, failures: int) -> None:
        """Flush up to ``stop``. Raises OSError when that fails, on this thread or another."""
        self._log.sync(self._flushed, stop)
        if self._log.failed_syncs != failures:
            raise OSError(errno.EIO, "another flush of the same file failed")
        self._flushed = stop

    def _sound_pieces(self, target: int) -> Iterator[tuple[int, int]]:
        """The log from ``flushed`` to ``target``, in pieces of one file; each holds sound records.

        Raises StoreError at the first record that is not.
        """
        position = self._flushed
        while position < target:
            segment = self._log.find(position)
            if segment is None:
                raise _lost_error(position, self._log.directory)
            start = position
            for info in records(segment, start):
                position += info.size
                if position - start >= _PIECE or position >= target:
                    yield start, position
                    start = position
                if position >= target:
                    return
            blank = segment.read(position, END_BLANK)
            if blank and not is_blank(blank, 0, len(blank)):
                raise _lost_error(position, self._log.directory)
            position = segment.end
            yield start, position

    def _failed(self, error: OSError) -> None:
        begins = self.failure is None
        path = self._log.directory
        self.failure = StoreError(
            f"cannot flush the commit log: {path}: {error.strerror or error}. Messages since "
            f"physical offset {self._flushed} are stored, but may not survive a power cut",
            str(path),
        )
        if begins:
            logger.error(
                "%s. Sends are answered FLUSH_DISK_TIMEOUT until it works, which is tried every "
                "%d ms: look after the disk",
                self.failure, self._config.flush_interval_ms,
            )  # fmt: skip
            try:
                self._doubt.touch()
            except OSError as second:
                logger.warning("%s cannot be made: %s", self._doubt, second)
        waiting = self._log.end - self._flushed
        if waiting > self._config.max_unflushed_bytes:
            refused = bool(self.refusal)
            self.refusal = (
                f"{self.failure}; no more are taken, since {waiting} bytes wait already "
                "(max_unflushed_bytes)"
            )
            if not refused:
                logger.error("%s", self.refusal)

    def _lost(self, error: StoreError) -> None:
        self._is_lost = True
        self.failure, self.refusal = error, str(error)
        logger.error("%s", error)

    def _worked(self) -> None:
        if self.failure is not None:
            self.failure, self.refusal = None, ""
            logger.warning(
                "the commit log is flushed again: all messages up to physical offset %d are on the "
                "disk",
                self._flushed,
            )

    def _run(self) -> None:
        stopping = False
        while not stopping:
            with self._wake:
                if not self._waiting and not self._stopping:
                    self._wake.wait(self._config.flush_interval_ms / 1000)
                waiting, self._waiting = self._waiting, []
                stopping = self._stopping
            failure = self.flush()
            for callback in waiting:
                try:
                    callback(failure)
                except Exception:
                    logger.exception("a callback of request_flush failed")


def _lost_error(position: int, directory: Path) -> StoreError:
    return StoreError(
        f"the disk lost the message at physical offset {position} of {directory}: it could not be "
        "written, and is no longer in memory. Messages are refused: mend the disk, and start the "
        "broker anew",
        str(directory),
    )
