"""The background thread that looks at the disk, deletes old files, and has messages refused.

Files of the commit log go whole, the oldest first, and never the one in use. Before the first goes,
the mark that recovery starts from stands behind it, and each queue's minimum has moved, so that no
reader is sent where nothing is. What follows the log, files of the consume queues and of those who
listen, is deleted after it. A crash between any two deletions leaves a directory whose log and
queues merely begin at different messages, which the next opening puts right.

A file that someone still reads stays readable for him, though its name is gone: there is nothing
to wait for, and so nothing of Java's destroyMapedFileIntervalForcibly and redeleteHangedFile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Event, Lock, Thread
from typing import Final, TypeAlias

from orbitmq.clock import Clock
from orbitmq.errors import StoreError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FileOps
from orbitmq.store.flusher import QueueFlusher
from orbitmq.store.queue_table import QueueTable
from orbitmq.store.retention import (
    DiskUse,
    LogFile,
    Verdict,
    count_to_delete,
    judge,
    refusal,
    used_ratio,
)

logger = logging.getLogger("orbitmq.store")

DeletionListener: TypeAlias = Callable[[int], object]
"""Called with the physical offset at which the commit log begins now; its result is ignored."""

_FIRST_LOOK: Final = 6  # intervals; DefaultMessageStore.addScheduleTask: 60 s, then every 10 s
_MANUAL_TIMES: Final = 20  # CleanCommitLogService.MAX_MANUAL_DELETE_FILE_TIMES


class Cleaner:
    """Looks every ``clean_interval_ms``, and at once when an operator says so.

    ``refusal`` says why the store takes no messages, "" while it does; ``disk_use`` is what was
    seen last. Both may be read from any thread.
    """

    def __init__(
        self,
        log: CommitLog,
        table: QueueTable,
        flusher: QueueFlusher,
        config: StoreConfig,
        clock: Clock,
        ops: FileOps,
    ) -> None:
        self.refusal = ""
        self.disk_use = DiskUse(-1.0, -1.0)
        self._log = log
        self._table = table
        self._flusher = flusher
        self._config = config
        self._clock = clock
        self._ops = ops
        self._listeners: list[DeletionListener] = []
        self._manual_times = 0
        self._followed = -1  # up to which beginning of the log the others have come
        self._complaint = ""
        self._one_at_a_time = Lock()
        self._wake = Event()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="orbitmq-cleaner", daemon=True)

    def renew(self, config: StoreConfig) -> None:
        """Go by these settings from the next look on."""
        self._config = config

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what it is deleting it may leave for the next time."""
        self._stopping.set()
        self._wake.set()
        self._thread.join()

    def add_listener(self, listener: DeletionListener) -> None:
        """Have ``listener`` called, on the thread, when files of the commit log are gone.

        It deletes what refers to messages before that offset only. What it raises is logged, and
        it is called again the next time. Also called once soon after the start.
        """
        self._listeners.append(listener)

    def delete_expired_files(self) -> None:
        """Delete what is older than it is kept, whatever the hour, soon and on the thread.

        Repeated twenty times, every ``clean_interval_ms``: each deletes a few files only.
        DefaultMessageStore.executeDeleteFilesManually.
        """
        self._manual_times = _MANUAL_TIMES
        self._wake.set()

    def remove_expired_queues(self, is_kept: Callable[[str], bool]) -> int:
        """Remove the queues whose messages are all gone, but for topics that are kept; how many.

        On the thread that the store belongs to. Such a queue begins at offset 0 again, as in
        DefaultMessageStore.cleanExpiredConsumerQueue.
        """
        removed = self._table.remove_expired(self._log.min_offset, is_kept)
        if removed:
            self._flusher.request_mark()
        return removed

    def clean(self) -> int:
        """Look at the disk once, and delete what may go; how many files of the commit log did.

        For the thread, and for tests. Raises OSError or StoreError; what was not deleted is tried
        again the next time.
        """
        with self._one_at_a_time:
            self._look()
            manual = self._manual_times > 0
            self._manual_times -= manual
            now_ms = self._clock.now_ms()
            hour = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone().hour
            verdict = judge(
                self._config, self.disk_use, hour, refused=bool(self.refusal), manual=manual
            )
            self._refuse(verdict)
            deleted = self._delete_log_files(verdict, now_ms)
            self._follow()
            return deleted

    def _look(self) -> None:
        log_space = self._ops.disk_space(self._log.directory)
        queue_space = self._ops.disk_space(self._table.directory)
        self.disk_use = DiskUse(used_ratio(log_space), used_ratio(queue_space))

    def _refuse(self, verdict: Verdict) -> None:
        if verdict.refuses:
            if not self.refusal:
                logger.error(
                    "the disk of %s is used to %d %%: messages are refused until it is used to no "
                    "more than %d %%. Free space on it, or keep messages for fewer hours "
                    "(file_reserved_hours)",
                    self._log.directory,
                    round(max(self.disk_use) * 100),
                    self._config.disk_clean_forcibly_ratio,
                )
            self.refusal = refusal(self.disk_use)
        elif self.refusal:
            self.refusal = ""
            logger.warning("the disk of %s has room: messages are taken", self._log.directory)

    def _delete_log_files(self, verdict: Verdict, now_ms: int) -> int:
        segments = self._log.segments
        files = [LogFile(segment.end, segment.modified_ms()) for segment in segments]
        count = count_to_delete(self._config, verdict, files, now_ms)
        if not count:
            if verdict.at_once:
                logger.warning(
                    "the disk of %s is nearly full, and no file of the commit log can be deleted: "
                    "free space on it",
                    self._log.directory,
                )
            return 0
        new_min = self._mark_before(files[count - 1].end, files[0].end)
        for queue in self._table.all():
            queue.correct_min_offset(new_min)
        return self._delete_before(new_min)

    def _mark_before(self, new_min: int, first_end: int) -> int:
        """Have the mark stand behind what goes; up to where files may go.

        Only ``first_end``, when the disk is too full for that: the room this makes serves the
        next. A crash before then costs a reading of the whole log.
        """
        try:
            self._flusher.mark_from(new_min)
        except OSError as error:
            logger.warning("the checkpoint cannot be renewed before old files go: %s", error)
            return first_end
        return new_min

    def _delete_before(self, new_min: int) -> int:
        deleted = 0
        while self._log.min_offset < new_min:
            if deleted and self._stopping.wait(self._config.delete_log_files_interval_ms / 1000):
                break
            path = self._log.delete_oldest()
            deleted += 1
            logger.info("deleted %s", path)
        return deleted

    def _follow(self) -> None:
        """Delete what refers only to messages that are gone; nothing when it was done already."""
        log_min = self._log.min_offset
        if log_min == self._followed:
            return
        for queue in self._table.all():
            queue.correct_min_offset(log_min)
            if self._flusher.delete_expired(queue) and self._stopping.wait(
                self._config.delete_queue_files_interval_ms / 1000
            ):
                return
        for listener in self._listeners:
            listener(log_min)
        self._followed = log_min

    def _run(self) -> None:
        self._wake.wait(self._config.clean_interval_ms * _FIRST_LOOK / 1000)
        while not self._stopping.is_set():
            self._wake.clear()
            try:
                self.clean()
                self._complaint = ""
            except (OSError, StoreError) as error:
                self._complain(str(error))
            except Exception:
                logger.exception("old files are not deleted, next try soon")
            self._wake.wait(self._config.clean_interval_ms / 1000)

    def _complain(self, reason: str) -> None:
        """Log a failure once, not every ten seconds while it lasts."""
        if reason != self._complaint:
            self._complaint = reason
            logger.error("old files cannot be deleted, next try soon: %s", reason)
