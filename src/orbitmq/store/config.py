"""The store's settings, made once and checked once."""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from orbitmq.errors import ConfigError
from orbitmq.store.delay_levels import DEFAULT_DELAY_LEVELS, DelayLevels

_MIN_MAPPED_FILE_SIZE: Final = 1024
_MAX_FILE_SIZE: Final = 2**31 - 1
_UNIT_SIZE: Final = 20
_MAX_INDEX_PART: Final = 80_000_000
_MAX_QUERY: Final = 4096
_MAX_TIMER_SLOTS: Final = 7 * 24 * 3600 - 60
_TIMER_PRECISIONS: Final = (100, 200, 500, 1000)


class FlushMode(Enum):
    """Which crash an acknowledged message survives; values as in ``flushDiskType``."""

    ASYNC = "ASYNC_FLUSH"
    """The end of the process."""
    SYNC = "SYNC_FLUSH"
    """The end of the process and a power cut."""


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a store directory; defaults are those of Java's MessageStoreConfig.

    The two sizes belong to the directory: Apache RocketMQ, too, refuses files of another size.
    """

    mapped_file_size: int = 1 << 30
    """Size of a commit-log file, bytes (mappedFileSizeCommitLog)."""
    consume_queue_units: int = 300_000
    """Entries of a consume-queue file; each takes 20 bytes (mappedFileSizeConsumeQueue)."""
    max_message_size: int = 4 << 20
    """The longest body, bytes (maxMessageSize)."""
    flush_mode: FlushMode = FlushMode.ASYNC
    """What an acknowledgement waits for (flushDiskType)."""
    flush_interval_ms: int = 500
    """How often the commit log is flushed in the background (flushIntervalCommitLog)."""
    queue_flush_interval_ms: int = 1_000
    """How often consume-queue entries go from memory to files (flushIntervalConsumeQueue)."""
    mark_interval_ms: int = 10_000
    """How old the mark that recovery starts from may grow while messages arrive."""
    mark_bytes: int = 16 << 20
    """How much commit log may lie behind that mark before it is renewed early, bytes."""
    max_unflushed_bytes: int = 64 << 20
    """How much commit log may wait for a disk that fails to flush, bytes; with more, messages are
    refused until it works again."""
    delay_levels: str = DEFAULT_DELAY_LEVELS
    """The delays of levels 1, 2, ... (messageDelayLevel)."""
    timer_wheel: bool = True
    """Whether messages with a timer are taken (timerWheelEnable)."""
    timer_precision_ms: int = 1_000
    """The steps in which timers are due: 100, 200, 500 or 1000; one is delivered at the end of the
    step its time is in (timerPrecisionMs)."""
    timer_max_delay_seconds: int = 3 * 24 * 3600
    """The longest that a timer may wait, seconds (timerMaxDelaySec)."""
    timer_roll_window_slots: int = 2 * 24 * 3600
    """How many steps ahead a timer is put into the wheel; one that waits longer goes round once
    more (timerRollWindowSlot)."""
    timer_congestion_per_slot: int = _MAX_FILE_SIZE
    """How many timers may be due in one step: more are refused now and then, twice as many always
    (timerCongestNumEachSlot)."""
    timer_flush_interval_ms: int = 1_000
    """How often the timer log, the wheel and how far both are delivered go to the disk
    (timerFlushIntervalMs)."""
    timer_log_file_size: int = 100 << 20
    """Size of a timer log file, bytes; belongs to the directory (mappedFileSizeTimerLog)."""
    append_topic_for_timer_delete_key: bool = False
    """Whether a recall names its message by topic and key, as brokers of Apache do that have the
    setting on, and not by the key alone; both are understood (appendTopicForTimerDeleteKey)."""
    cut_damaged_log: bool = False
    """Give up the messages behind a damage in the commit log, which no crash explains, instead of
    passing over it. Apache RocketMQ always does."""

    file_reserved_hours: int = 72
    """How long messages are kept, hours: a commit-log file goes this long after its last write
    (fileReservedTime)."""
    delete_when: str = "04"
    """The hours of the day, local time, in which such files are deleted, separated by ``;``
    (deleteWhen)."""
    disk_max_used_ratio: int = 75
    """Above this use of the disk, per cent, such files are deleted at any hour
    (diskMaxUsedSpaceRatio)."""
    disk_clean_forcibly_ratio: int = 85
    """Above this use of the disk, per cent, the oldest files are deleted whatever their age, and
    messages that were refused are not taken yet. Java takes more than 85 for 85
    (diskSpaceCleanForciblyRatio)."""
    disk_warning_ratio: int = 90
    """Above this use of the disk, per cent, messages are refused until there is room. Java takes
    more than 90 for 90; 100 here: never (diskSpaceWarningLevelRatio)."""
    clean_files_forcibly: bool = True
    """Whether ``disk_clean_forcibly_ratio`` and ``disk_warning_ratio`` delete files before their
    time (cleanFileForciblyEnable)."""
    clean_interval_ms: int = 10_000
    """How often the disk's use and the files' age are looked at; first after six of these
    (cleanResourceInterval)."""
    delete_log_files_interval_ms: int = 100
    """How long to wait between deleting two commit-log files (deleteCommitLogFilesInterval)."""
    delete_queue_files_interval_ms: int = 100
    """How long to wait between deleting files of two consume queues
    (deleteConsumeQueueFilesInterval)."""
    delete_file_batch_max: int = 10
    """The most commit-log files deleted at a time (deleteFileBatchMax)."""

    message_index_enable: bool = True
    """Whether messages can be found by their keys: an index is kept (messageIndexEnable)."""
    max_hash_slot_num: int = 5_000_000
    """Hash slots of an index file, each of 4 bytes (maxHashSlotNum)."""
    max_index_num: int = 20_000_000
    """Entries of an index file, each of 20 bytes; an index of files of another size is made anew
    (maxIndexNum)."""
    default_query_max_num: int = 32
    """How many messages a query by unique key gives (defaultQueryMaxNum)."""
    max_msgs_num_batch: int = 64
    """The most messages a query by key gives, whatever it asks for (maxMsgsNumBatch)."""

    def __post_init__(self) -> None:
        _check("mapped_file_size", self.mapped_file_size, _MIN_MAPPED_FILE_SIZE, _MAX_FILE_SIZE)
        _check("consume_queue_units", self.consume_queue_units, 1, _MAX_FILE_SIZE // _UNIT_SIZE)
        _check("max_message_size", self.max_message_size, 1, _MAX_FILE_SIZE)
        _check("flush_interval_ms", self.flush_interval_ms, 1, _MAX_FILE_SIZE)
        _check("queue_flush_interval_ms", self.queue_flush_interval_ms, 1, _MAX_FILE_SIZE)
        _check("mark_interval_ms", self.mark_interval_ms, 0, _MAX_FILE_SIZE)
        _check("mark_bytes", self.mark_bytes, 1, _MAX_FILE_SIZE)
        _check("max_unflushed_bytes", self.max_unflushed_bytes, 0, _MAX_FILE_SIZE)
        _check("timer_max_delay_seconds", self.timer_max_delay_seconds, 1, _MAX_FILE_SIZE)
        _check("timer_roll_window_slots", self.timer_roll_window_slots, 2, _MAX_TIMER_SLOTS)
        _check("timer_congestion_per_slot", self.timer_congestion_per_slot, 1, _MAX_FILE_SIZE)
        _check("timer_flush_interval_ms", self.timer_flush_interval_ms, 1, _MAX_FILE_SIZE)
        _check("timer_log_file_size", self.timer_log_file_size, 128, _MAX_FILE_SIZE)
        if self.timer_precision_ms not in _TIMER_PRECISIONS:
            raise ConfigError("timer_precision_ms", self.timer_precision_ms, "100, 200, 500, 1000")
        _check("file_reserved_hours", self.file_reserved_hours, 0, _MAX_FILE_SIZE)
        _check("disk_max_used_ratio", self.disk_max_used_ratio, 10, 100)
        _check("disk_clean_forcibly_ratio", self.disk_clean_forcibly_ratio, 30, 100)
        _check("disk_warning_ratio", self.disk_warning_ratio, 35, 100)
        _check("clean_interval_ms", self.clean_interval_ms, 1, _MAX_FILE_SIZE)
        for name in ("delete_log_files_interval_ms", "delete_queue_files_interval_ms"):
            _check(name, getattr(self, name), 0, _MAX_FILE_SIZE)
        _check("delete_file_batch_max", self.delete_file_batch_max, 1, _MAX_FILE_SIZE)
        _check("max_hash_slot_num", self.max_hash_slot_num, 1, _MAX_INDEX_PART)
        _check("max_index_num", self.max_index_num, 2, _MAX_INDEX_PART)
        _check("default_query_max_num", self.default_query_max_num, 1, _MAX_QUERY)
        _check("max_msgs_num_batch", self.max_msgs_num_batch, 1, _MAX_QUERY)
        DelayLevels(self.delay_levels)
        parse_hours(self.delete_when)


def parse_hours(text: str) -> frozenset[int]:
    """The hours of the day in ``text``, as ``delete_when`` has them. Raises ConfigError."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not all(part.isascii() and part.isdigit() and int(part) < 24 for part in parts):
        raise ConfigError("delete_when", text, "hours from 00 to 23, separated by ';'")
    return frozenset(map(int, parts))


def _check(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(name, value, f"{lowest} to {highest}")
