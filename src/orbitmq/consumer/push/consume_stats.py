"""How fast a consumer consumes each topic, and how much of it fails.

What operators look at first. A batch costs a few additions to the sums of the ten seconds it ended
in; everything else is worked out when somebody asks. The figures are those of Java's
ConsumerStatsManager: rates and mean times over the last minute, failures over the last hour.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from orbitmq.wire.running_info import ConsumeStatusInfo

_SLOT_MS: Final = 10_000
_HOUR_SLOT_MS: Final = 600_000
_SLOTS: Final = 6


class _Sums:
    """What happened in the slot of time that began at ``begin_ms``."""

    __slots__ = (
        "begin_ms",
        "calls",
        "calls_ms",
        "consumed",
        "failed",
        "pulled",
        "pulls",
        "pulls_ms",
    )

    def __init__(self, begin_ms: int) -> None:
        self.begin_ms = begin_ms
        self.pulls = 0
        self.pulls_ms = 0
        self.pulled = 0
        self.calls = 0
        self.calls_ms = 0
        self.consumed = 0
        self.failed = 0

    def add(self, other: _Sums) -> None:
        """Add another slot's."""
        self.pulls += other.pulls
        self.pulls_ms += other.pulls_ms
        self.pulled += other.pulled
        self.calls += other.calls
        self.calls_ms += other.calls_ms
        self.consumed += other.consumed
        self.failed += other.failed


class _Topic:
    """The slots of one topic: six of ten seconds, and before them six of ten minutes."""

    __slots__ = ("_hour", "_minute", "now")

    def __init__(self, now_ms: int) -> None:
        self._minute: deque[_Sums] = deque(maxlen=_SLOTS)
        self._hour: deque[_Sums] = deque(maxlen=_SLOTS)
        self.now = _Sums(now_ms - now_ms % _SLOT_MS)

    def at(self, now_ms: int) -> _Sums:
        """The sums of the present slot."""
        now = self.now
        if 0 <= now_ms - now.begin_ms < _SLOT_MS:
            return now
        self._minute.append(now)
        begin_ms = now.begin_ms - now.begin_ms % _HOUR_SLOT_MS
        if not self._hour or self._hour[-1].begin_ms != begin_ms:
            self._hour.append(_Sums(begin_ms))
        self._hour[-1].add(now)
        self.now = _Sums(now_ms - now_ms % _SLOT_MS)
        return self.now

    def last_minute(self, now_ms: int) -> _Sums:
        """The sums of the present slot and of the five before it."""
        return self._since(self._minute, now_ms, _SLOT_MS)

    def last_hour(self, now_ms: int) -> _Sums:
        """The same in slots of ten minutes."""
        return self._since(self._hour, now_ms, _HOUR_SLOT_MS)

    def _since(self, slots: deque[_Sums], now_ms: int, slot_ms: int) -> _Sums:
        present = self.at(now_ms)
        total = _Sums(now_ms - now_ms % slot_ms - (_SLOTS - 1) * slot_ms)
        total.add(present)
        for slot in slots:
            if slot.begin_ms >= total.begin_ms:
                total.add(slot)
        return total


class ConsumeStats:
    """The figures of one consumer, from any thread. Times are ms of a clock that is never set."""

    def __init__(self, now_ms: int) -> None:
        self._lock = threading.Lock()
        self._began_ms = now_ms
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, messages: int, took_ms: int, now_ms: int) -> None:
        """A pull brought ``messages``."""
        with self._lock:
            sums = self._sums(topic, now_ms)
            sums.pulls += 1
            sums.pulls_ms += took_ms
            sums.pulled += messages

    def consumed(self, topic: str, ok: int, failed: int, took_ms: int, now_ms: int) -> None:
        """A listener's call ended: so many messages succeeded, and so many failed."""
        with self._lock:
            slots = self._topics.get(topic)
            # Almost always the slot of the batch before; a call less for each batch.
            if slots is not None and 0 <= now_ms - slots.now.begin_ms < _SLOT_MS:
                sums = slots.now
            else:
                sums = self._sums(topic, now_ms)
            sums.calls += 1
            sums.calls_ms += took_ms
            sums.consumed += ok
            sums.failed += failed

    def status(self, topic: str, now_ms: int) -> ConsumeStatusInfo:
        """The figures of ``topic``. The mean time of calls is the hour's, if there was none since.

        A consumer younger than a minute is measured over its life, and ten seconds at least.
        """
        with self._lock:
            slots = self._topics.get(topic)
            if slots is None:
                return ConsumeStatusInfo()
            minute, hour = slots.last_minute(now_ms), slots.last_hour(now_ms)
        calls = minute if minute.calls else hour
        seconds = max(now_ms - max(minute.begin_ms, self._began_ms), _SLOT_MS) / 1000
        return ConsumeStatusInfo(
            pull_rt=minute.pulls_ms / max(minute.pulls, 1),
            pull_tps=minute.pulled / seconds,
            consume_rt=calls.calls_ms / max(calls.calls, 1),
            consume_ok_tps=minute.consumed / seconds,
            consume_failed_tps=minute.failed / seconds,
            consume_failed_msgs=hour.failed,
        )

    def _sums(self, topic: str, now_ms: int) -> _Sums:
        slots = self._topics.get(topic)
        if slots is None:
            slots = self._topics[topic] = _Topic(now_ms)
        return slots.at(now_ms)
