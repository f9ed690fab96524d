"""The demo and the consumers of the benchmarks run, on a little of their input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.errors import StreamingQueryException

from benchmarks.brokers import RunningBroker, fill
from benchmarks.consumer_figures import latencies
from examples.flights.delays import follow
from orbitmq import EmbeddedBroker
from tests.docs.snippets import ROOT
from tests.spark.quick_java import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_demo_on_some_flights(tmp_path: Path) -> None:
    flights = 3000
    done = subprocess.run(
        [
            *(sys.executable, "-m", "examples.flights"),
            *("--flights", str(flights), "--output", str(tmp_path)),
        ],
        cwd=ROOT,
        env=QUICK_JAVA,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything arrived, in order" in done.stdout
    picture = tmp_path / "departure-delays.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in done.stdout


class BehindQuery:
    """A query that ended with so many messages to go."""

    def __init__(self, behind: int) -> None:
        self.recentProgress = [SimpleNamespace(numInputRows=1)]
        source = {"latestOffset": {"lag": {"messages": behind, "seconds": 1.0}}, "endOffset": {}}
        document = {"id": "1", "batchId": 0, "sources": [source]}
        self.lastProgress = SimpleNamespace(json=json.dumps(document))

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802 - Spark's name
        return True


def test_the_lag_is_told() -> None:
    lags: list[int] = []
    follow(lambda: cast("StreamingQuery", BehindQuery(7)), lambda _: None, lags.append)
    assert lags == [7]


class LateWorkerQuery:
    """A query with ``rows`` done whose end, if ``late``, is Spark's word of a worker too slow."""

    def __init__(self, rows: int, *, late: bool) -> None:
        self.recentProgress = [SimpleNamespace(numInputRows=rows)]
        self._late = late

    def awaitTermination(self, timeout: int) -> bool:  # noqa: N802 - Spark's name
        if self._late:
            raise StreamingQueryException("Python worker failed to connect back.")
        return True


def test_a_query_whose_worker_came_late_is_started_again() -> None:
    queries = [LateWorkerQuery(3, late=True), LateWorkerQuery(4, late=False)]
    rows: list[int] = []
    follow(lambda: cast("StreamingQuery", queries.pop(0)), rows.append)
    assert sum(rows) == 7
    assert not queries


def test_a_worker_that_never_comes_ends_the_demo() -> None:
    with pytest.raises(StreamingQueryException):
        follow(lambda: cast("StreamingQuery", LateWorkerQuery(0, late=True)), lambda _: None)


@pytest.mark.parametrize("mode", ["push", "lite"])
def test_the_consumers_that_are_measured(mode: str) -> None:
    program = [sys.executable, "-m", "benchmarks.consume"]
    with EmbeddedBroker() as broker:
        running = RunningBroker(broker.name_server, broker.address, [], 0)
        fill(running, "bench-rate", 2048)
        arguments = ["rate", mode, broker.name_server, "bench-rate", f"rate-{mode}", "2048"]
        done = subprocess.run(
            [*program, *arguments], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
        )
        assert float(done.stdout.removeprefix("@@")) > 0
        half, most = latencies(program, running, mode, "ours", messages=100, seconds=0.5)
        assert 0 < half <= most
