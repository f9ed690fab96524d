"""The demo and the benchmarks' load generator run, on a little of their input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.brokers import RunningBroker, fill
from benchmarks.consumer_figures import latencies
from benchmarks.generator import Plan, carry_out
from orbitmq import EmbeddedBroker
from tests.docs.snippets import ROOT


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


@pytest.mark.parametrize(("mode", "size"), [("send", 0), ("send", 32), ("pull", 32)])
def test_the_load_generator(mode: str, size: int) -> None:
    with EmbeddedBroker() as broker:
        carry_out(Plan("fill", broker.address, "bench", 2048))
        plan = Plan(mode, broker.address, "bench", size, 2, 4, 0.2, filled=2048)
        assert carry_out(plan).messages > 0


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
