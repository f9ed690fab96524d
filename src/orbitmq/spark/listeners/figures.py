"""The figures of listeners on Spark: where they are kept while a stream runs.

In a session of this process the function of each micro-batch runs here too, and adds up what the
tasks did. With Spark Connect it runs beside the server: there it keeps the last hour, and has the
server show it as a global temporary view, which the client reads when it is asked.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.clock import SYSTEM_CLOCK, elapsed_ms
from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.spark.listeners.task_consumer import Consumed
from orbitmq.wire.running_info import ConsumeStatusInfo

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SLOT_MS: Final = 10_000
_KEPT_MS: Final = 3_600_000
_VIEW: Final = "topic string, ok long, failed long, calls long, took_ms long, at_ms long"


class LocalFigures:
    """Those of a stream whose micro-batches are seen to in this process."""

    def __init__(self) -> None:
        self._stats = ConsumeStats(elapsed_ms(SYSTEM_CLOCK))

    def record(self, frame: DataFrame, consumed: Sequence[Consumed]) -> None:
        """Take over what the tasks of a micro-batch did."""
        _add(self._stats, consumed, elapsed_ms(SYSTEM_CLOCK))

    def status(self, topic: str) -> ConsumeStatusInfo:
        """The figures of ``topic``, the name as brokers know it."""
        return self._stats.status(topic, elapsed_ms(SYSTEM_CLOCK))


class RemoteFigures:
    """Those of a stream on a server of Spark Connect, as its client sees them."""

    def __init__(self, session: SparkSession, checkpoint: str) -> None:
        self._session = session
        self._began_ms = elapsed_ms(SYSTEM_CLOCK)
        # Of the checkpoint, so that a query that is started again leaves no view behind.
        digest = hashlib.sha256(checkpoint.encode()).hexdigest()[:24]
        name = f"orbitmq_listeners_{digest}"
        database = session.conf.get("spark.sql.globalTempDatabase", "global_temp")
        self._table = f"{database}.{name}"
        self.keeper = Keeper(name)
        self.keeper.show(session)

    def status(self, topic: str) -> ConsumeStatusInfo:
        """The figures of ``topic``, the name as brokers know it; asks the server."""
        # The server's clock says how old they are: the client's may be another.
        age = "unix_millis(current_timestamp()) - at_ms"
        columns = ("topic", "ok", "failed", "calls", "took_ms", f"{age} AS age_ms")
        rows = self._session.table(self._table).selectExpr(*columns).collect()
        now_ms = elapsed_ms(SYSTEM_CLOCK)
        return stats_of(map(tuple, rows), self._began_ms, now_ms).status(topic, now_ms)


class Keeper:
    """Keeps the last hour beside the server, and has it shown; it is pickled on its way there."""

    def __init__(self, view: str) -> None:
        self._view = view
        self._slots: dict[tuple[str, int], _Slot] = {}

    def record(self, frame: DataFrame, consumed: Sequence[Consumed]) -> None:
        """Take over what the tasks of a micro-batch did."""
        if consumed:
            self.add(consumed, time.time_ns() // 1_000_000)
            self.show(frame.sparkSession)

    def add(self, consumed: Iterable[Consumed], now_ms: int) -> None:
        """Add to the sums of the present ten seconds, and drop those of more than an hour ago."""
        begin_ms = now_ms - now_ms % _SLOT_MS
        for one in consumed:
            slot = self._slots.get((one.topic, begin_ms), _Slot())
            self._slots[one.topic, begin_ms] = _Slot(
                slot.ok + one.ok,
                slot.failed + one.failed,
                slot.calls + one.calls,
                slot.took_ms + one.took_ms,
                now_ms,
            )
        old = [key for key in self._slots if key[1] < now_ms - _KEPT_MS - _SLOT_MS]
        for key in old:
            del self._slots[key]

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """What is shown: the sums by topic, the oldest first."""
        by_time = sorted(self._slots.items(), key=lambda item: item[1].at_ms)
        return [(topic, *slot) for (topic, _), slot in by_time]

    def show(self, session: SparkSession) -> None:
        """Have the server show it."""
        session.createDataFrame(self.rows, _VIEW).createOrReplaceGlobalTempView(self._view)


class _Slot(NamedTuple):
    ok: int = 0
    failed: int = 0
    calls: int = 0
    took_ms: int = 0
    at_ms: int = 0


def stats_of(rows: Iterable[Sequence[Any]], began_ms: int, now_ms: int) -> ConsumeStats:
    """Statistics of rows ``topic, ok, failed, calls, took_ms, age_ms``, at ``now_ms``."""
    stats = ConsumeStats(began_ms)
    for *consumed, age_ms in sorted(rows, key=lambda row: -row[-1]):
        _add(stats, [Consumed(*consumed)], now_ms - max(age_ms, 0))
    return stats


def _add(stats: ConsumeStats, consumed: Iterable[Consumed], now_ms: int) -> None:
    for one in consumed:
        took_ms = one.took_ms // max(one.calls, 1)
        stats.consumed(one.topic, one.ok, one.failed, took_ms, now_ms)
