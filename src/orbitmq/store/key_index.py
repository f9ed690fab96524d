"""The key index: from a key to the messages that have it, as Apache's IndexService keeps it.

A thread of the index's own follows the log: it is woken by written(), reads what is new, and puts
hundreds of messages in at a time, so that neither a send nor the loop waits for it, and nothing is
kept for it in memory. The same reading makes anew, after the start, what a crash, a damage or
another broker left out.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from threading import Condition, Event, Lock, Thread
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.compiled import CORE
from orbitmq.store.appended import Written
from orbitmq.store.checkpoint import Checkpoint, IndexMark
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.config import StoreConfig
from orbitmq.store.file_ops import FileOps
from orbitmq.store.index_file import IndexHeader, IndexShape, IndexWriter, Walk
from orbitmq.store.index_keys import KEY, KINDS, key_hash, record_keys
from orbitmq.store.index_recovery import load_index
from orbitmq.store.log_walk import walk_piece

logger = logging.getLogger("orbitmq.store")

_PIECE: Final = 256 << 10 if CORE == "compiled" else 16 << 10
"""How much of the log makes a piece of work, bytes: of a few tenths of a millisecond."""
_LINGER_SECONDS: Final = 0.05
"""How long it waits for more to do: to wake and to write once costs as much as many keys."""
_BREATH_SECONDS: Final = 0.0001
"""The least pause between two pieces of work."""
_REST: Final = 3
"""How many times as long as its work took the thread pauses while messages are being stored."""
_BUSY_REST: Final = 5 if CORE == "compiled" else 19
"""The same, while the process is busy for _BUSY of the time, or the index far behind: it catches up
when there is time. The compiled core leaves the interpreter to others, and need not wait."""
_BUSY: Final = 0.85
_RETRY_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 2.0
_NEAR_BYTES: Final = 32 << 20
_FINISH_BYTES: Final = 256 << 20
_MAX_STEPS: Final = 500_000


class KeyMatches(NamedTuple):
    """Physical offsets of messages that may have a key, ascending.

    May: another key can have the same hash. ``last_timestamp`` (ms) and ``last_offset`` are those
    of the newest message in the index (QueryOffsetResult).
    """

    offsets: list[int]
    last_timestamp: int
    last_offset: int

    def with_newest(self, newest: KeyMatches, most: int) -> KeyMatches:
        """These and ``newest`` together, the newest ``most`` of them."""
        offsets = sorted({*self.offsets, *newest.offsets})[-most:] if most else []
        last = newest if newest.last_offset >= self.last_offset else self
        return KeyMatches(offsets, last.last_timestamp, last.last_offset)


class KeyIndex:
    """The index of a store. written() belongs to the thread that writes, the rest to any.

    ``clean`` says that whoever used the directory last closed it properly. Raises OSError when the
    files cannot be read.
    """

    def __init__(
        self,
        ops: FileOps,
        directory: Path,
        log: CommitLog,
        checkpoint: Checkpoint,
        config: StoreConfig,
        clock: Clock,
        *,
        clean: bool,
    ) -> None:
        self._ops = ops
        self._directory = directory
        self._log = log
        self._checkpoint = checkpoint
        self._clock = clock
        self._shape = IndexShape(config.max_hash_slot_num, config.max_index_num)
        self._save_seconds = config.mark_interval_ms / 1000
        self._save_bytes = config.mark_bytes
        loaded = load_index(ops, directory, self._shape, checkpoint, log, clean=clean)
        self._files = loaded.files
        self._position, self._known = loaded.position, loaded.known
        self._reached = self._position  # as the position, with what waits for the disk
        self._timestamp = self._files[-1].header.end_timestamp if self._files else 0
        self._opened_at = log.end
        if self._position < log.end:
            checkpoint.indexed_timestamp = self._timestamp
            logger.info(
                "the key index is built from physical offset %d to %d", self._position, log.end
            )
        self._waiting = b""  # KEYs that are in no file yet
        self._saved = self._position if checkpoint.index_mark is not None else -1
        self._saved_at = time.monotonic()
        self._lock = Lock()
        self._progress = Condition()
        self._idle = self._stopping = False
        self._seekers = 0  # how many wait for what is written to be found
        self._seen_end, self._rested_at = log.end, 0.0
        self._looked_at, self._used = 0.0, 0.0
        self._wake, self._hurry, self._halt = Event(), Event(), Event()
        self._failure: OSError | None = None
        self._thread = Thread(target=self._run, name="orbitmq-key-index", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def written(self, _written: Written) -> None:
        """Take note that something was written, as a write listener of the store."""
        if self._idle:
            self._idle = False
            self._wake.set()

    @property
    def position(self) -> int:
        """Up to which physical offset the log is in the index."""
        return self._position

    @property
    def has_what_was_there(self) -> bool:
        """Whether all that the log had when it was opened is in the index."""
        return self._position >= self._opened_at

    def find(
        self,
        topic: str,
        key: str,
        max_count: int,
        begin: int = 0,
        end: int = 2**63 - 1,
        index_type: str = "",
        *,
        settle: bool = True,
    ) -> KeyMatches:
        """The newest messages with a key, stored from ``begin`` to ``end`` (ms, both inclusive).

        Times are as exact as the index keeps them: seconds. What was written before the call is
        found, unless the index is being built anew; without ``settle`` what is in the index. It may
        read from the disk, and take a moment: not for the loop. See IndexService.queryOffset.
        """
        if settle:
            self._settle()
        walk = Walk(key_hash(topic, key, index_type), max_count, begin, end, _MAX_STEPS)
        with self._lock:
            files = self._files.copy()
            last = files[-1].header if files else IndexHeader()
        for file in reversed(files):
            with self._lock:
                if not file.is_closed and file.may_have(begin, end):
                    file.select(walk)
                begins = file.header.begin_timestamp
            if begins < begin or walk.is_done:
                break
        if walk.steps <= 0:
            logger.warning(
                "the key %r of topic %s has more than %d index entries to look at: the newest %d "
                "messages found are given",
                key, topic, _MAX_STEPS, len(walk.found),
            )  # fmt: skip
        return KeyMatches(sorted(set(walk.found)), last.end_timestamp, last.end_offset)

    def delete_before(self, physical_offset: int) -> int:
        """Delete the files whose messages all lie before an offset; how many.

        The newest stays (IndexService.deleteExpiredFile). Raises OSError.
        """
        with self._lock:
            old = [f for f in self._files[:-1] if f.header.end_offset < physical_offset]
            self._files = self._files[len(old) :]
            for file in old:
                file.close()
        for file in old:
            self._ops.unlink(file.path)
        return len(old)

    def stop(self) -> None:
        """Put in what is left, save, and end the thread.

        Raises OSError when that fails: the directory is not to be called clean then. A log that is
        far from being read is left for the next start.
        """
        self._stopping = True
        for event in (self._halt, self._hurry, self._wake):
            event.set()
        self._thread.join()
        for file in self._files:
            file.close()
        if self._failure is not None:
            raise self._failure

    def _settle(self) -> None:
        """Wait until what is written now is in the index, if that is soon."""
        target = self._log.end

        def is_settled() -> bool:
            excused = self._stopping or self._failure is not None
            far = target - self._position > _NEAR_BYTES
            return excused or far or self._position >= target

        if is_settled():
            return
        with self._progress:
            self._seekers += 1
            self._hurry.set()
            self._wake.set()
            self._progress.wait_for(is_settled, _SETTLE_SECONDS)
            self._seekers -= 1
            if not self._seekers and not self._stopping:
                self._hurry.clear()

    # The thread

    def _run(self) -> None:
        while True:
            stopping = self._stopping
            try:
                self._work(save=stopping)
                self._failure = None
            except OSError as error:
                self._fail(error)
            except Exception as error:
                logger.exception("the key index stops until the store is opened anew")
                stopping = True
                self._failure = OSError(f"the key index stopped: {error}")
            with self._progress:
                self._progress.notify_all()
            if stopping:
                return
            self._pause()

    def _fail(self, error: OSError) -> None:
        if str(error) != str(self._failure):  # once, not every second while it lasts
            logger.error(
                "the key index cannot be written, next try in a second; keys of later messages are "
                "not found until it works: %s",
                error,
            )
        self._failure = error.with_traceback(None)

    def _pause(self) -> None:
        """Wait for something to do, and then a little for more of it."""
        if self._failure is not None:
            self._halt.wait(_RETRY_SECONDS)
            return
        due = self._saved_at + self._save_seconds - time.monotonic()
        self._idle = True
        if self._reached >= self._log.end:
            self._wake.wait(max(due, 0.0) if self._is_unsaved else None)
        self._idle = False
        self._wake.clear()
        self._hurry.wait(_LINGER_SECONDS)

    def _work(self, *, save: bool) -> None:
        """Put in what the log has by now."""
        self._drain()
        begin, end = self._reached, self._log.end
        while self._reached < end:
            self._reached = walk_piece(self._log, self._reached, _PIECE, self._take)
            self._drain()
            self._save_if_due()
            behind = end - self._reached
            if self._stopping and behind > _FINISH_BYTES:
                logger.warning("the key index lacks %d bytes of the commit log", behind)
                break
            if behind > 0:  # else there is a longer pause soon
                self._breathe()
        if begin < self._opened_at <= self._reached:
            logger.info("the key index is built up to physical offset %d", self._reached)
        if save and self._is_unsaved:
            self._save()

    def _take(self, piece: bytes, position: int) -> int:
        """Note the keys in a piece of the log, for _drain(); how much of it are sound records."""
        verify_crc = position < self._opened_at  # what came since is as this process wrote it
        keys, size, timestamp = record_keys(piece, position, self._known, verify_crc, KINDS)
        if size:
            self._waiting += keys
            self._timestamp = timestamp
        return size

    def _breathe(self) -> None:
        """Leave the interpreter to the thread that stores messages, while it does.

        That would wait for this one whenever it has written or read, longer than its work takes.
        Whoever looks for a key is not kept waiting.
        """
        end, worked = self._log.end, time.thread_time() - self._rested_at
        now, used = time.monotonic(), time.process_time()
        is_busy = used - self._used > _BUSY * (now - self._looked_at)
        is_left_alone = end == self._seen_end or self._hurry.is_set()
        rest = _BUSY_REST if is_busy or end - self._reached > _NEAR_BYTES else _REST
        self._seen_end, self._looked_at, self._used = end, now, used
        time.sleep(_BREATH_SECONDS if is_left_alone else max(worked * rest, _BREATH_SECONDS))
        self._rested_at = time.thread_time()

    def _drain(self) -> None:
        writer = self._writer()
        if writer is not None and writer.unwritten:
            with self._lock:
                writer.flush()
        while self._waiting:
            if writer is None:
                writer = self._create()
            with self._lock:
                taken = writer.put(self._waiting)
                self._waiting = self._waiting[taken:]
                writer.flush()
            if writer.is_full:
                self._save()
                with self._lock:
                    writer.freeze()
                writer = None
        self._position = self._reached

    def _writer(self) -> IndexWriter | None:
        last = self._files[-1] if self._files else None
        return last if isinstance(last, IndexWriter) and not last.is_full else None

    def _create(self) -> IndexWriter:
        """A new file behind the others."""
        self._directory.mkdir(parents=True, exist_ok=True)
        now = self._clock.now_ms()
        local = time.localtime(now // 1000)
        name = int(time.strftime("%Y%m%d%H%M%S", local)) * 1000 + now % 1000
        if self._files:
            name = max(name, int(self._files[-1].path.name) + 1)
        writer = IndexWriter(self._ops, self._directory / f"{name:017d}", self._shape, create=True)
        if self._files:
            writer.begin_behind(self._files[-1].header)
        self._ops.fsync_directory(self._directory)
        with self._lock:
            self._files.append(writer)
        return writer

    # Saving

    @property
    def _is_unsaved(self) -> bool:
        return self._saved != self._position

    def _save_if_due(self) -> None:
        age = time.monotonic() - self._saved_at
        if self._is_unsaved and (
            age >= self._save_seconds or self._position - self._saved >= self._save_bytes
        ):
            self._save()

    def _save(self) -> None:
        """Bring the newest file to the disk, and then the mark that recovery starts from.

        Apache deletes, after a crash, a file with later messages than indexMsgTimestamp says: so
        that is written before the file's header.
        """
        checkpoint = self._checkpoint
        last = self._files[-1] if self._files else None
        if isinstance(last, IndexWriter):
            last.sync()
            checkpoint.index_timestamp = max(checkpoint.index_timestamp, last.header.end_timestamp)
            checkpoint.write()
            last.save()
            last.sync()
        position = KEY.unpack_from(self._waiting)[0] if self._waiting else self._reached
        header = last.header if last is not None else IndexHeader()
        checkpoint.index_mark = IndexMark(
            position,
            self._log.min_offset,
            len(self._files),
            int(last.path.name) if last is not None else 0,
            header.index_count,
            header.slot_count,
            header.end_offset,
            header.end_timestamp,
        )
        checkpoint.indexed_timestamp = self._timestamp
        if last is not None:  # else the mark goes to the disk with that of the queues
            checkpoint.write()
        self._saved, self._saved_at = position, time.monotonic()
