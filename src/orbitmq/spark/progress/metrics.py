"""The figures of streaming queries for Prometheus: its text format, and a server for it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple, Self

from orbitmq.spark.progress.listener import ProgressListener, QueryProgress

log = logging.getLogger("orbitmq.spark.progress")

PORT: Final = 9464
"""Where Prometheus exporters of applications usually listen."""
_PREFIX: Final = "orbitmq_spark_"
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class _Metric(NamedTuple):
    name: str
    kind: str
    meaning: str
    samples: Iterable[tuple[Mapping[str, str], float]]


class MetricsServer:
    """A server of metrics; ``port`` is where it listens. Close it, or leave it to the end."""

    def __init__(self, listener: ProgressListener, port: int, host: str) -> None:
        self._server = ThreadingHTTPServer((host, port), _handler(listener))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="orbitmq-spark-metrics", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def serve_metrics(
    listener: ProgressListener, port: int = PORT, host: str = "127.0.0.1"
) -> MetricsServer:
    """Serve what ``listener`` knows to Prometheus at ``http://host:port/metrics``.

    Port 0 takes any that is free. Raises OSError when the port is taken.
    """
    return MetricsServer(listener, port, host)


def prometheus_text(listener: ProgressListener) -> str:
    """The figures of all running queries in Prometheus' text format."""
    return "".join(f"{line}\n" for metric in _metrics(listener) for line in _lines(metric))


def _metrics(listener: ProgressListener) -> Iterator[_Metric]:
    latest, totals = listener.latest(), listener.totals()
    queries = [(_labels(run, progress), run, progress) for run, progress in latest.items()]
    yield _Metric(
        "batches_total", "counter", "Micro-batches since the query started.",
        [(labels, totals[run][0]) for labels, run, _ in queries if run in totals],
    )  # fmt: skip
    yield _Metric(
        "input_rows_total", "counter", "Rows read since the query started.",
        [(labels, totals[run][1]) for labels, run, _ in queries if run in totals],
    )  # fmt: skip
    for name, meaning, field in (
        ("input_rows_per_second", "Rows that arrive a second.", "arriving"),
        ("processed_rows_per_second", "Rows processed a second of work.", "processed"),
        ("batch_duration_seconds", "How long the last micro-batch took.", "seconds"),
    ):
        samples = [(labels, float(getattr(progress, field))) for labels, _, progress in queries]
        yield _Metric(name, "gauge", meaning, samples)
    yield _Metric(
        "lag_messages", "gauge", "Messages that the last micro-batch left to be read.",
        [
            (labels | {"topic": topic}, behind)
            for labels, _, progress in queries
            for topic, behind in progress.lag_by_topic.items()
        ],
    )  # fmt: skip
    yield _Metric(
        "lag_seconds", "gauge", "How long the oldest of them had waited then.",
        [
            (labels, progress.lag.seconds)
            for labels, _, progress in queries
            if progress.lag is not None and progress.lag.seconds is not None
        ],
    )  # fmt: skip
    yield _Metric(
        "failed_queries_total", "counter", "Queries that ended with an error.",
        [({}, listener.failed)],
    )  # fmt: skip


def _labels(run: str, progress: QueryProgress) -> dict[str, str]:
    return {"query": progress.name, "run": run}


def _lines(metric: _Metric) -> Iterator[str]:
    name = _PREFIX + metric.name
    yield f"# HELP {name} {metric.meaning}"
    yield f"# TYPE {name} {metric.kind}"
    for labels, value in metric.samples:
        pairs = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        yield f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _handler(listener: ProgressListener) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "metrics are at /metrics")
                return
            body = prometheus_text(listener).encode()
            self.send_response(200)
            self.send_header("Content-Type", _CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            log.debug(format, *args)

    return Handler
