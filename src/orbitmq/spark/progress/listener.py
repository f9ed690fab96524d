"""What a streaming query has done and how far it is behind, for logs, tools and people.

Spark tells progress as JSON, the same to listeners and in ``query.lastProgress``; here it becomes
figures. The lag in it is reported by the source (see :mod:`orbitmq.spark.progress.lag`), so that of
queries of other sources is not known.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryListener

from orbitmq.spark.progress.lag import Lag, lag_of
from orbitmq.spark.source.offsets import Offsets, flat

log = logging.getLogger("orbitmq.spark.progress")


class QueryProgress(NamedTuple):
    """One progress report of Spark's.

    ``rows`` are those of the batch, which took ``seconds``. Rates are in rows a second:
    ``arriving`` since the batch before, ``processed`` while the batch ran. ``lag`` is None without
    a source of ours.
    """

    name: str
    batch_id: int
    rows: int
    arriving: float
    processed: float
    seconds: float
    lag: Lag | None
    lag_by_topic: Mapping[str, int]
    sources: tuple[SourceOffsets, ...] = ()

    def __str__(self) -> str:
        text = f"{self.name}: batch {self.batch_id}, {self.rows:,} rows in {self.seconds:.1f} s"
        text += f", {self.processed:,.0f} rows/s"
        return text if self.lag is None else f"{text}, {shown_lag(self.lag)}"


class SourceOffsets(NamedTuple):
    """Where a batch of one source began and ended, and where the queues ended."""

    begin: Offsets
    end: Offsets
    latest: Offsets


def query_progress(report: Any) -> QueryProgress:
    """The figures of a StreamingQueryProgress, of a listener's event or ``query.lastProgress``."""
    document = json.loads(report.json)
    for source in document["sources"]:
        for name in ("startOffset", "endOffset", "latestOffset"):
            source[name] = _document(source.get(name))
    reports = [source for source in document["sources"] if lag_of(source.get("latestOffset"))]
    sources = tuple(map(_offsets, reports))
    lags = [lag for source in reports if (lag := lag_of(source["latestOffset"]))]
    by_topic: dict[str, int] = {}
    for source in sources:
        for queue, latest in source.latest.items():
            behind = max(latest - source.end.get(queue, latest), 0)
            by_topic[queue.topic] = by_topic.get(queue.topic, 0) + behind
    return QueryProgress(
        name=document.get("name") or document["id"],
        batch_id=document["batchId"],
        rows=sum(source.get("numInputRows", 0) for source in document["sources"]),
        arriving=_total(document, "inputRowsPerSecond"),
        processed=_total(document, "processedRowsPerSecond"),
        seconds=document.get("batchDuration", 0) / 1000,
        lag=_sum(lags) if lags else None,
        lag_by_topic=by_topic,
        sources=sources,
    )


def shown_lag(lag: Lag) -> str:
    """The lag in words."""
    text = f"lag {lag.messages:,} messages"
    return text if lag.seconds is None else f"{text}, {lag.seconds:,.1f} s"


class ProgressListener(StreamingQueryListener):
    """Logs the progress of every streaming query, and keeps it for tools.

    Add it with ``spark.streams.addListener(ProgressListener())``. Each batch is a line under
    ``orbitmq.spark.progress`` at level INFO, a query that failed one at level ERROR. The figures of
    running queries are in :meth:`latest`, and served to Prometheus by
    :func:`orbitmq.spark.serve_metrics`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, QueryProgress] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._failed = 0

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Log it."""
        log.info("%s: started", event.name or event.id)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Log the batch and keep its figures."""
        try:
            progress = query_progress(event.progress)
        except Exception:
            # A listener that raises is heard of by nobody.
            log.exception("a progress report was not understood")
            return
        with self._lock:
            run = str(event.progress.runId)
            batches, rows = self._totals.get(run, (0, 0))
            self._latest[run] = progress
            self._totals[run] = batches + 1, rows + progress.rows
        log.info("%s", progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Nothing happened."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Log it, and forget the query's figures."""
        run = str(event.runId)
        with self._lock:
            progress = self._latest.pop(run, None)
            self._totals.pop(run, None)
            self._failed += event.exception is not None
        name = progress.name if progress else event.id
        if event.exception is None:
            log.info("%s: ended", name)
        else:
            log.error("%s: failed: %s", name, event.exception)

    def latest(self) -> dict[str, QueryProgress]:
        """The last progress of each running query, by its run id."""
        with self._lock:
            return dict(self._latest)

    def totals(self) -> dict[str, tuple[int, int]]:
        """How many batches and rows each running query has had, by its run id."""
        with self._lock:
            return dict(self._totals)

    @property
    def failed(self) -> int:
        """How many queries ended with an error."""
        return self._failed


def _document(offset: Any) -> Any:
    """An offset as it was given to Spark: a client of Spark Connect gets it as a text."""
    try:
        return json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return offset  # of some other source


def _offsets(source: Mapping[str, Any]) -> SourceOffsets:
    end = source["endOffset"]
    begin = _queues(source.get("startOffset"), "topics") | _queues(end, "since")
    return SourceOffsets(begin, _queues(end, "topics"), _queues(source["latestOffset"], "topics"))


def _queues(offset: Any, part: str) -> Offsets:
    return flat(offset.get(part, {})) if isinstance(offset, dict) else {}


def _sum(lags: list[Lag]) -> Lag:
    waits = [lag.seconds for lag in lags if lag.seconds is not None]
    return Lag(sum(lag.messages for lag in lags), max(waits) if waits else None)


def _total(document: Mapping[str, Any], rate: str) -> float:
    """The rates of all sources together; Spark leaves out what it cannot tell."""
    return sum(float(source.get(rate) or 0.0) for source in document["sources"])
