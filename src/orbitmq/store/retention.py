"""Which files of the commit log may go, and when messages are refused for want of room.

Decided from times, the disk's use and the files alone; cleaner.py looks at them and deletes. As in
DefaultMessageStore.CleanCommitLogService and MappedFileQueue.deleteExpiredFileByTime.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from orbitmq.store.config import StoreConfig, parse_hours
from orbitmq.store.file_ops import DiskSpace

_HOUR_MS: Final = 3_600_000


class LogFile(NamedTuple):
    """A file of the commit log: where it ends, and when it was last written, ms."""

    end: int
    modified_ms: int


class DiskUse(NamedTuple):
    """How much of a disk is used, 0 to 1: of that with the commit log, and that with the queues.

    -1 where it is not known.
    """

    log: float
    queues: float


class Verdict(NamedTuple):
    """What to do now.

    ``refuses``: messages are not taken. ``deletes``: files older than they are kept may go.
    ``at_once``: so may younger ones.
    """

    refuses: bool
    deletes: bool
    at_once: bool


def used_ratio(space: DiskSpace) -> float:
    """How much of what this user may have is used, in whole per cent, rounded up; -1: not known.

    UtilAll.getDiskPartitionSpaceUsedPercent.
    """
    used = space.total - space.free
    entire = used + space.available
    return -(-used * 100 // entire) / 100 if entire > 0 else -1.0


def judge(
    config: StoreConfig, use: DiskUse, hour: int, *, refused: bool = False, manual: bool = False
) -> Verdict:
    """What is to be done at ``hour`` of the day with the disk used like that.

    ``refused`` says that messages are refused now: they are until the use has fallen to
    ``disk_clean_forcibly_ratio``. ``manual`` says that an operator wants old files deleted.
    """
    highest = max(use)
    at_once = highest > _lower(config.disk_clean_forcibly_ratio, config.disk_warning_ratio)
    refuses = highest > config.disk_warning_ratio / 100 or (refused and at_once)
    fills_up = at_once or highest > config.disk_max_used_ratio / 100 or min(use) < 0
    return Verdict(
        refuses,
        deletes=fills_up or manual or hour in parse_hours(config.delete_when),
        at_once=at_once and config.clean_files_forcibly,
    )


def _lower(*ratios: int) -> float:
    return min(ratios) / 100


def count_to_delete(
    config: StoreConfig, verdict: Verdict, files: Sequence[LogFile], now_ms: int
) -> int:
    """How many of ``files``, the oldest first, may go now; never the last, which is in use.

    No file goes before an older one, and at most ``delete_file_batch_max`` at a time.
    """
    if not verdict.deletes:
        return 0
    kept_ms = config.file_reserved_hours * _HOUR_MS
    count = 0
    for file in files[:-1][: config.delete_file_batch_max]:
        if not verdict.at_once and now_ms < file.modified_ms + kept_ms:
            break
        count += 1
    return count


def refusal(use: DiskUse) -> str:
    """Why messages are refused, in Apache's words (SendMessageProcessor.handlePutMessageResult)."""
    return (
        "service not available now. It may be caused by one of the following reasons: the broker's "
        f"disk is full [CL: {use.log:5.2f} CQ: {use.queues:5.2f} INDEX: {use.queues:5.2f}], "
        "messages are put to the slave, message store has been shut down, etc. Free space on that "
        "disk, or keep messages for fewer hours (fileReservedTime); messages are taken again by "
        "themselves once there is room"
    )
