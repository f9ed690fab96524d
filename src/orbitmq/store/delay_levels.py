"""Delay levels: how long a message of level n waits, and what its consume-queue entry says.

A delayed message is stored in topic SCHEDULE_TOPIC_XXXX, queue level - 1, and its entry's tags
code is the time it is due, so that the scheduler need not read the record. Writing and rebuilding
a queue must agree on that time; hence this pure function of the record for both.
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import ConfigError
from orbitmq.wire.properties import DELAY, find_property

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
"""Java's MessageStoreConfig.messageDelayLevel."""

_UNIT_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS: Final = 3_650 * 86_400_000
_MOST_LEVELS: Final = 1_000
_MOST_DIGITS: Final = 12
_ALLOWED: Final = "1 to 1000 delays, each a number with a unit of s, m, h or d: '1s 5m 2h'"
_UNKNOWN_LEVEL_DELAY_MS: Final = 1_000


class DelayLevels:
    """The parsed table of a setting such as ``"1s 5s 10s"``; level 1 is the first entry.

    ``delays_ms`` holds the delays, level 1 at index 0. Raises ConfigError for an entry that is
    not a number and one of ``s m h d``, or over ten years, and unless there are 1 to 1000.
    """

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        self.delays_ms: Final = tuple(_parse(entry, text) for entry in text.split())
        if not 1 <= len(self.delays_ms) <= _MOST_LEVELS:
            raise ConfigError("delay_levels", text, _ALLOWED)

    @property
    def max_level(self) -> int:
        """The highest level; 0 when there is none."""
        return len(self.delays_ms)

    def delivery_time(self, level: int, store_timestamp: int) -> int:
        """When a message stored at ``store_timestamp`` (ms) with ``level`` is due, in ms.

        A level that is not in the table means one second, as in
        DefaultMessageStore.computeDeliverTimestamp.
        """
        if 1 <= level <= len(self.delays_ms):
            return store_timestamp + self.delays_ms[level - 1]
        return store_timestamp + _UNKNOWN_LEVEL_DELAY_MS

    def queue_tags_code(self, properties: bytes, tags_code: int, store_timestamp: int) -> int:
        """The tags code of a consume-queue entry in SCHEDULE_TOPIC: the time the message is due.

        ``properties`` are the record's, ``tags_code`` that of its tags, used when the record has
        no delay level (CommitLog.checkMessageAndReturnSize).
        """
        text = find_property(properties, DELAY)
        try:
            level = min(int(text or 0), self.max_level)
        except ValueError:
            return tags_code
        return self.delivery_time(level, store_timestamp) if level > 0 else tags_code


def _parse(entry: str, text: str) -> int:
    number, unit = entry[:-1], entry[-1]
    if unit not in _UNIT_MS or not (number.isascii() and number.isdigit()):
        raise ConfigError("delay_levels", text, _ALLOWED)
    if len(number) > _MOST_DIGITS or int(number) * _UNIT_MS[unit] > _LONGEST_MS:
        raise ConfigError("delay_levels", text, f"{_ALLOWED}, none over ten years")
    return int(number) * _UNIT_MS[unit]
