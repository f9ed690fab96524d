"""Reports of Spark's become figures, log lines, metrics and bars."""

from __future__ import annotations

import io
import json
import logging
import sys
import types
import urllib.error
import urllib.request
from typing import Any

import pytest

from orbitmq.spark import ProgressListener, serve_metrics, show_progress
from orbitmq.spark.progress.bar import Standing, html_bar, text_bar
from orbitmq.spark.progress.lag import Lag
from orbitmq.spark.progress.listener import query_progress
from orbitmq.spark.progress.metrics import prometheus_text
from orbitmq.spark.source.offsets import Queue


class Report:
    """A StreamingQueryProgress of a query that has read ``end`` of ``latest`` messages."""

    def __init__(
        self, batch: int, end: int, latest: int, *, rows: int = 10, ours: bool = True
    ) -> None:
        self.batchId = batch
        self.runId = "run-1"
        lag = {"messages": latest - end, "seconds": 2.5}
        offsets: dict[str, Any] = {
            "startOffset": topics(end - rows) if batch else {"initial": "earliest"},
            "endOffset": topics(end) | ({} if batch else {"since": topics(end - rows)["topics"]}),
            "latestOffset": topics(latest) | {"lag": lag},
        }
        source = offsets if ours else dict.fromkeys(offsets, 7)
        rates = {"numInputRows": rows, "inputRowsPerSecond": 5.0, "processedRowsPerSecond": 1234.5}
        document = {"id": "id-1", "name": "flights", "batchId": batch, "batchDuration": 1500}
        self.json = json.dumps(document | {"sources": [source | rates]})


def topics(offset: int) -> dict[str, Any]:
    return {"topics": {"flights": {"broker-a": {"0": offset, "1": 5}}}}


class Event:
    """What a listener is told."""

    def __init__(self, progress: Report | None = None, exception: str | None = None) -> None:
        self.progress = progress
        self.exception = exception
        self.id, self.runId, self.name = "id-1", "run-1", "flights"


class Query:
    """A query whose reports come one a look."""

    def __init__(self, *reports: Report, error: Exception | None = None) -> None:
        self._coming = iter(reports)
        self._error = error
        self.recentProgress: list[Report] = []

    @property
    def lastProgress(self) -> Report | None:  # noqa: N802 - Spark's name
        return self.recentProgress[-1] if self.recentProgress else None

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802 - Spark's name
        report = next(self._coming, None)
        if report is not None:
            self.recentProgress.append(report)
            return False
        if self._error is not None:
            raise self._error
        return True


def test_figures_of_a_report() -> None:
    progress = query_progress(Report(3, 60, 100))
    assert progress.lag == Lag(40, 2.5)
    assert progress.lag_by_topic == {"flights": 40}
    (source,) = progress.sources
    assert source.begin[Queue("flights", "broker-a", 0)] == 50
    assert str(progress) == (
        "flights: batch 3, 10 rows in 1.5 s, 1,234 rows/s, lag 40 messages, 2.5 s"
    )


def test_a_query_of_another_source_has_no_lag() -> None:
    progress = query_progress(Report(3, 60, 100, ours=False))
    assert (progress.lag, progress.sources, progress.rows) == (None, (), 10)
    assert str(progress) == "flights: batch 3, 10 rows in 1.5 s, 1,234 rows/s"


def test_a_client_of_spark_connect_gets_offsets_as_texts() -> None:
    report = Report(3, 60, 100)
    expected = query_progress(report)
    document = json.loads(report.json)
    (source,) = document["sources"]
    for name in ("startOffset", "endOffset", "latestOffset"):
        source[name] = json.dumps(source[name])
    report.json = json.dumps(document)
    assert query_progress(report) == expected
    source["latestOffset"] = "not JSON"
    report.json = json.dumps(document)
    assert query_progress(report).lag is None


def test_the_first_batch_begins_where_its_end_says() -> None:
    (source,) = query_progress(Report(0, 60, 100)).sources
    assert source.begin[Queue("flights", "broker-a", 0)] == 50


@pytest.fixture
def listener(caplog: pytest.LogCaptureFixture) -> ProgressListener:
    caplog.set_level(logging.INFO, "orbitmq.spark.progress")
    return ProgressListener()


def test_a_listener_logs_batches_and_ends(
    listener: ProgressListener, caplog: pytest.LogCaptureFixture
) -> None:
    listener.onQueryStarted(Event())
    listener.onQueryProgress(Event(Report(0, 60, 100)))
    listener.onQueryIdle(Event())
    listener.onQueryTerminated(Event(exception="no more disk"))
    listener.onQueryTerminated(Event())
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "flights: started"),
        ("INFO", "flights: batch 0, 10 rows in 1.5 s, 1,234 rows/s, lag 40 messages, 2.5 s"),
        ("ERROR", "flights: failed: no more disk"),
        ("INFO", "id-1: ended"),
    ]
    assert listener.latest() == {}
    assert listener.failed == 1


def test_a_report_that_is_not_understood_is_logged(
    listener: ProgressListener, caplog: pytest.LogCaptureFixture
) -> None:
    report = Report(0, 60, 100)
    report.json = "{"
    listener.onQueryProgress(Event(report))
    assert "a progress report was not understood" in caplog.text


def test_metrics_are_served_to_prometheus(listener: ProgressListener) -> None:
    for batch, end in enumerate((60, 70)):
        listener.onQueryProgress(Event(Report(batch, end, 100)))
    with serve_metrics(listener, port=0) as server:
        address = f"http://127.0.0.1:{server.port}"
        with urllib.request.urlopen(f"{address}/metrics") as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"{address}/")
    assert text == prometheus_text(listener)
    lines = text.splitlines()
    labels = 'query="flights",run="run-1"'
    assert f"orbitmq_spark_batches_total{{{labels}}} 2" in lines
    assert f"orbitmq_spark_input_rows_total{{{labels}}} 20" in lines
    assert f'orbitmq_spark_lag_messages{{{labels},topic="flights"}} 30' in lines
    assert f"orbitmq_spark_lag_seconds{{{labels}}} 2.5" in lines
    assert "# TYPE orbitmq_spark_lag_seconds gauge" in lines
    assert "orbitmq_spark_failed_queries_total 0" in lines


def test_names_are_escaped_in_metrics(listener: ProgressListener) -> None:
    report = Report(0, 60, 100)
    report.json = report.json.replace('"flights", "batchId"', '"a\\"b\\nc", "batchId"')
    listener.onQueryProgress(Event(report))
    assert 'query="a\\"b\\nc"' in prometheus_text(listener)


# The bar


def test_a_bar_counts_from_where_it_began_to_be_shown() -> None:
    out = io.StringIO()
    show_progress(Query(Report(0, 60, 150), Report(1, 100, 150, rows=40)), file=out)  # type: ignore[arg-type]
    assert out.getvalue().splitlines() == [
        "flights ██░░░░░░░░░░░░░░░░░░░░░░  10% 10 of 100 messages, 1,234/s, lag 90 messages, 2.5 s",
        "flights ████████████░░░░░░░░░░░░  50% 50 of 100 messages, 1,234/s, lag 50 messages, 2.5 s",
    ]


def test_batches_between_two_looks_count() -> None:
    query, out = Query(Report(4, 80, 100, rows=1, ours=False)), io.StringIO()
    query.recentProgress = [Report(n, 60, 100, rows=5, ours=False) for n in range(3)]
    show_progress(query, file=out)  # type: ignore[arg-type]
    assert out.getvalue() == "flights 16 rows, 1,234/s\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = Terminal()
    show_progress(Query(Report(0, 60, 150), Report(1, 150, 150, rows=90)), file=out)  # type: ignore[arg-type]
    first, *_, last = out.getvalue().split("\r\x1b[K")[1:]
    assert "10% " in first
    assert len(first) == 59
    assert "100% 100 of 100" in last
    assert last.endswith("\n")
    assert out.getvalue().count("\n") == 1


def test_the_error_of_the_query_is_raised_and_the_line_ended() -> None:
    out = Terminal()
    with pytest.raises(ValueError, match="lost"):
        show_progress(Query(Report(0, 60, 150), error=ValueError("lost")), file=out)  # type: ignore[arg-type]
    assert out.getvalue().endswith("\n")
    show_progress(Query(Report(0, 60, 150), error=KeyboardInterrupt()), file=out)  # type: ignore[arg-type]


def test_a_query_without_reports_shows_nothing() -> None:
    out = io.StringIO()
    show_progress(Query(), file=out)  # type: ignore[arg-type]
    assert out.getvalue() == ""


@pytest.mark.parametrize("total", [0, 5])
def test_nothing_to_do_is_all_done(total: int) -> None:
    standing = Standing("q", total, total, 0.0, Lag(0, None))
    assert "100%" in text_bar(standing)
    assert text_bar(standing).endswith("lag 0 messages")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a notebook's display is given."""
    found: list[Any] = []
    ipython, display = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    handle = types.SimpleNamespace(update=found.append)

    def show(thing: Any, display_id: bool) -> Any:
        found.append(thing)
        return handle

    display.HTML, display.display = str, show  # type: ignore[attr-defined]
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return found


def test_a_notebook_has_a_bar_that_changes(shown: list[Any]) -> None:
    show_progress(Query(Report(0, 60, 150), Report(1, 150, 150, rows=90)), background=False)  # type: ignore[arg-type]
    assert shown[0] == ""  # where the bar will be
    assert '<progress value="10" max="100"' in shown[1]
    assert '<progress value="100" max="100"' in shown[-1]
    assert "<b>flights</b>" in shown[1]


def test_a_bar_is_html_whatever_the_name() -> None:
    shown = html_bar(Standing("<q>", 1, None, 2.0, None))
    assert "<b>&lt;q&gt;</b> <progress style" in shown
    assert "1 rows, 2/s" in shown
