"""How much the store takes in and gives out: totals, rates, and how long writes take.

A state machine: times are arguments. Follows Java's StoreStatsService and BrokerStats.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from itertools import islice
from typing import Final, NamedTuple

_SECONDS: Final = 600
_RATES: Final = (10, 60, _SECONDS)
_WRITE_TIMES: Final = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_WRITE_TIME_NAMES: Final = (
    "[<=0ms] [0~10ms] [10~50ms] [50~100ms] [100~200ms] [200~500ms] [500ms~1s] [1~2s] [2~3s] "
    "[3~4s] [4~5s] [5~10s] [10s~]"
).split()


class _Sample(NamedTuple):
    at_ms: int
    put: int
    found: int
    missed: int
    transferred: int


class StoreStats:
    """Running totals of one store, from its opening at ``boot_ms`` on (wall clock).

    ``put`` messages of ``put_size`` bytes were written, of them ``put_by_users`` to topics that
    are not the system's; ``put_failed`` were not. Pulls ``found`` messages or ``missed`` them,
    and ``transferred`` messages left, ``got_by_users`` from topics of users. ``write_seconds`` is
    how long writes took, for each message of them.
    """

    def __init__(self, boot_ms: int, now_ms: int) -> None:
        self.boot_ms: Final = boot_ms
        self.put = self.put_size = self.put_failed = self.put_by_users = 0
        self.found = self.missed = self.transferred = self.got_by_users = 0
        self.write_seconds = 0.0
        self.longest_write_ms = 0
        self.longest_read_ms = 0
        self._write_times = [0] * (len(_WRITE_TIMES) + 1)
        self._samples: deque[_Sample] = deque([_Sample(now_ms, 0, 0, 0, 0)], _SECONDS + 1)
        self._put_at_morning = _Mornings()
        self._got_at_morning = _Mornings()

    def wrote(self, messages: int, seconds: float) -> None:
        """A write of that many messages took that long."""
        self.write_seconds += messages * seconds
        if seconds < 0.001:  # as nearly all do
            self._write_times[0] += messages
            return
        ms = int(seconds * 1000)
        self.longest_write_ms = max(self.longest_write_ms, ms)
        self._write_times[bisect_left(_WRITE_TIMES, ms)] += messages

    def sample(self, now_ms: int) -> None:
        """Note the totals; to be called every second."""
        self._samples.append(_Sample(now_ms, self.put, self.found, self.missed, self.transferred))

    def begin_day(self, day: int) -> None:
        """Note the totals with which a day begins, counted in days; may be called often."""
        self._put_at_morning.begin(day, self.put_by_users)
        self._got_at_morning.begin(day, self.got_by_users)

    def table(self, wall_ms: int) -> dict[str, str]:
        """The figures under the names of Java's runtime info; it is ``wall_ms`` now."""
        rates = [self._rate(seconds) for seconds in _RATES]
        put, found, missed, transferred = zip(*rates, strict=True)
        times = max(1, self.put)
        return {
            "bootTimestamp": str(self.boot_ms),
            "runtime": _runtime(wall_ms - self.boot_ms),
            "putMessageEntireTimeMax": str(self.longest_write_ms),
            "putMessageTimesTotal": str(times),
            "putMessageFailedTimes": str(self.put_failed),
            "putMessageSizeTotal": str(self.put_size),
            "putMessageDistributeTime": "".join(
                f"{name}:{count} "
                for name, count in zip(_WRITE_TIME_NAMES, self._write_times, strict=True)
            ),
            "putMessageAverageSize": str(self.put_size / times),
            "dispatchMaxBuffer": "0",
            "getMessageEntireTimeMax": str(self.longest_read_ms),
            "putTps": _joined(put),
            "getFoundTps": _joined(found),
            "getMissTps": _joined(missed),
            "getTotalTps": _joined(a + b for a, b in zip(found, missed, strict=True)),
            "getTransferredTps": _joined(transferred),
            "getTransferedTps": _joined(transferred),  # 4.9's tools read it so
            "putLatency99": f"{self._write_time(0.99):.2f}",
            "putLatency999": f"{self._write_time(0.999):.2f}",
            "msgPutTotalYesterdayMorning": str(self._put_at_morning.yesterday),
            "msgPutTotalTodayMorning": str(self._put_at_morning.today),
            "msgPutTotalTodayNow": str(self.put_by_users),
            "msgGetTotalYesterdayMorning": str(self._got_at_morning.yesterday),
            "msgGetTotalTodayMorning": str(self._got_at_morning.today),
            "msgGetTotalTodayNow": str(self.got_by_users),
        }

    def _rate(self, seconds: int) -> tuple[float, float, float, float]:
        """Put, found, missed and transferred a second, of that many last seconds."""
        last = self._samples[-1]
        first = next(islice(reversed(self._samples), min(seconds, len(self._samples) - 1), None))
        span_ms = max(1, last.at_ms - first.at_ms)
        put, found, missed, transferred = (
            (last[i] - first[i]) * 1000 / span_ms for i in range(1, len(last))
        )
        return put, found, missed, transferred

    def _write_time(self, share: float) -> float:
        """The ms in which that share of messages was written, at the most."""
        wanted, seen = share * sum(self._write_times), 0
        for limit, count in zip(_WRITE_TIMES, self._write_times, strict=False):
            seen += count
            if seen >= wanted:
                return float(limit)
        return float(self.longest_write_ms)


class _Mornings:
    """A running total as it was when yesterday and today began."""

    def __init__(self) -> None:
        self.yesterday = self.today = 0
        self._day: int | None = None

    def begin(self, day: int, total: int) -> None:
        if self._day is None:
            self._day = day
        elif day > self._day:
            self.yesterday = self.today if day == self._day + 1 else total
            self.today = total
            self._day = day


def _joined(rates: object) -> str:
    return " ".join(str(round(rate, 3)) for rate in rates)  # type: ignore[attr-defined]


def _runtime(ms: int) -> str:
    minutes, seconds = divmod(max(0, ms) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"
