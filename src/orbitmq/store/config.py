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
    cut_damaged_log: bool = False
    """Give up the messages behind a damage in the commit log, which no crash explains, instead of
    refusing to open. Apache RocketMQ always does."""

    def __post_init__(self) -> None:
        _check("mapped_file_size", self.mapped_file_size, _MIN_MAPPED_FILE_SIZE, _MAX_FILE_SIZE)
        _check("consume_queue_units", self.consume_queue_units, 1, _MAX_FILE_SIZE // _UNIT_SIZE)
        _check("max_message_size", self.max_message_size, 1, _MAX_FILE_SIZE)
        _check("flush_interval_ms", self.flush_interval_ms, 1, _MAX_FILE_SIZE)
        _check("queue_flush_interval_ms", self.queue_flush_interval_ms, 1, _MAX_FILE_SIZE)
        _check("mark_interval_ms", self.mark_interval_ms, 0, _MAX_FILE_SIZE)
        _check("mark_bytes", self.mark_bytes, 1, _MAX_FILE_SIZE)
        _check("max_unflushed_bytes", self.max_unflushed_bytes, 0, _MAX_FILE_SIZE)
        DelayLevels(self.delay_levels)


def _check(name: str, value: int, lowest: int, highest: int) -> None:
    if not lowest <= value <= highest:
        raise ConfigError(name, value, f"{lowest} to {highest}")
