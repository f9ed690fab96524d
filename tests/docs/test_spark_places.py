"""The commands of docs/spark-clusters.md and docs/spark-pipelines.md, in shells of their own.

They take minutes, so they run only when asked for: ``make places``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import orbitmq
from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.cli import main
from tests.docs.snippets import ADDRESS, snippet
from tests.spark.topics import stored

CLUSTERS = "docs/spark-clusters.md"
PIPELINES = "docs/spark-pipelines.md"

asked_for = pytest.mark.skipif("ORBITMQ_PLACES" not in os.environ, reason="runs by make places")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def in_shell(commands: str, directory: Path) -> str:
    """What ``commands`` print; what they leave running is ended."""
    home = Path(sys.executable).parent
    packages = [
        str(Path(orbitmq.__file__).parents[1]),
        *os.environ.get("PYTHONPATH", "").split(":"),
    ]
    environment = {
        **os.environ,
        "PATH": f"{home}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, packages)),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    output = directory / "output"
    with output.open("w") as file:
        shell = subprocess.Popen(
            ["bash", "-ec", commands],
            cwd=directory,
            env=environment,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(300)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGTERM)
    assert code == 0, output.read_text()[-3000:]
    return output.read_text()


@asked_for
@pytest.mark.parametrize(
    ("containing", "port"),
    [("spark-submit --master 'local", ""), ("deploy.worker.Worker", "7077"), ("sc://", "15002")],
    ids=["submit", "standalone", "connect"],
)
def test_a_place(containing: str, port: str, broker: EmbeddedBroker, tmp_path: Path) -> None:
    commands = snippet(CLUSTERS, containing, "sh")
    if port:
        own = str(free_port())
        commands = commands.replace(port, own).replace(
            "--master 'local[2]' spark", f"--conf spark.connect.grpc.binding.port={own} spark"
        )
    if "sc://" in commands:
        pytest.importorskip("grpc")
    with Producer("places", name_server=broker.name_server) as producer:
        for number in range(6):
            producer.send(Message("flights", b"-", tags="UA" if number % 2 else "AA"))
    program = snippet(CLUSTERS, "groupBy").replace(ADDRESS, broker.name_server)
    (tmp_path / "flights.py").write_text(program)
    printed = in_shell(commands, tmp_path)
    assert "|  UA|    3|" in printed
    assert "|  AA|    3|" in printed


def test_a_pipeline_is_written_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    install, init, run = snippet(PIPELINES, "pipeline init", "sh").splitlines()
    assert install.startswith("pip install")
    assert run == "orbitmq pipeline run shop"
    assert main(shlex.split(init)[1:]) == 0
    assert (tmp_path / "shop" / "spark-pipeline.yml").is_file()


@asked_for
def test_each_run_of_a_pipeline_takes_what_is_new(broker: EmbeddedBroker, tmp_path: Path) -> None:
    pytest.importorskip("grpc")

    def send(*bodies: str) -> None:
        with Producer("places", name_server=broker.name_server) as producer:
            for body in bodies:
                producer.send(Message("orders", body.encode()))

    def order(number: int, customer: str, amount: float, time: str) -> str:
        at = f"2026-01-01T{time}Z"
        return json.dumps({"id": f"{number}", "customer": customer, "amount": amount, "at": at})

    def results() -> list[str]:
        found = stored(broker, "orders-totals").values()
        return sorted(view.body.decode() for views in found for view in views)

    _, init, run = snippet(PIPELINES, "pipeline init", "sh").splitlines()
    commands = f"python -m orbitmq.cli {run.removeprefix('orbitmq ')}"
    first = f"python -m orbitmq.cli {init.removeprefix('orbitmq ')}\n{commands}"
    bad = order(3, "b", -1, "10:00:30")
    send(order(1, "a", 5, "10:00:00"), order(2, "a", 7, "10:00:30"), bad, "nonsense")
    send(order(4, "b", 3, "12:00:30"))
    in_shell(first.replace(ADDRESS, broker.name_server), tmp_path)
    a = '{"customer":"a","minute":"2026-01-01T10:00:00.000Z","amount":12.0}'
    assert results() == [a]
    rejected = [view for views in stored(broker, "orders-rejected").values() for view in views]
    why = {view.body.decode(): view.properties["broken"] for view in rejected}
    everything = "is JSON with an id; has a time; amount is positive"
    assert why == {bad: "amount is positive", "nonsense": everything}
    send(order(5, "c", 2, "15:00:30"))
    in_shell(commands, tmp_path)
    b = '{"customer":"b","minute":"2026-01-01T12:00:00.000Z","amount":3.0}'
    assert results() == [a, b]
