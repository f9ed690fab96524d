"""The commands of docs/spark-pipelines.md."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.cli import main
from orbitmq.spark.sink.ledger import LEDGER_TOPIC
from tests.docs.shells import Shell
from tests.docs.snippets import ADDRESS, snippet
from tests.spark.topics import stored

PIPELINES = "docs/spark-pipelines.md"
# What keeps a project's Spark small.
SETTINGS = "spark.ui.enabled false\nspark.driver.memory 700m\nspark.sql.shuffle.partitions 1\n"


def test_a_pipeline_is_written_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    install, init, run = snippet(PIPELINES, "pipeline init", "sh").splitlines()
    assert install == "pip install '.[pipelines]'"
    assert run == "orbitmq pipeline run shop"
    assert main(shlex.split(init)[1:]) == 0
    assert (tmp_path / "shop" / "spark-pipeline.yml").is_file()


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_each_run_of_a_pipeline_takes_what_is_new(tmp_path: Path) -> None:
    """A run costs 40 s of a processor: the second one is run by ``make places`` alone.

    The sinks have a guarantee each, and the second run repeats what was sent last.
    """
    pytest.importorskip("grpc_status")
    pytest.importorskip("yaml")
    with EmbeddedBroker() as broker:
        run_it(broker, Shell(tmp_path), again="ORBITMQ_PLACES" in os.environ)


def run_it(broker: EmbeddedBroker, shell: Shell, *, again: bool) -> None:
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
    bad = order(3, "b", -1, "10:00:30")
    send(order(1, "a", 5, "10:00:00"), order(2, "a", 7, "10:00:30"), bad, "nonsense")
    send(order(4, "b", 3, "12:00:30"))
    shell.run(init.replace(ADDRESS, broker.name_server))
    guarantee(shell, "cleaned.py", "idempotent")
    guarantee(shell, "results.py", "exactly_once")
    with (shell.directory / "shop" / "conf" / "spark-defaults.conf").open("a") as file:
        file.write(SETTINGS)
    shell.run(run)
    a = '{"customer":"a","minute":"2026-01-01T10:00:00.000Z","amount":12.0}'
    assert results() == [a]
    rejected = [view for views in stored(broker, "orders-rejected").values() for view in views]
    why = {view.body.decode(): view.properties["broken"] for view in rejected}
    everything = "is JSON with an id; has a time; amount is positive"
    assert why == {bad: "amount is positive", "nonsense": everything}
    # The notes of either guarantee.
    notes = [view.keys or "" for views in stored(broker, LEDGER_TOPIC).values() for view in views]
    assert {note.rpartition(":")[2] for note in notes} >= {"orders-rejected", "decision", "done"}
    if not again:
        return
    send(order(5, "c", 2, "15:00:30"))
    forget_commits(shell)
    shell.run(run)
    b = '{"customer":"b","minute":"2026-01-01T12:00:00.000Z","amount":3.0}'
    assert results() == [a, b]
    rejected = [view for views in stored(broker, "orders-rejected").values() for view in views]
    assert len(rejected) == 2


def guarantee(shell: Shell, file: str, value: str) -> None:
    """Have the sink in a file of the project's give a guarantee."""
    path = shell.directory / "shop" / "transformations" / file
    head, found, rest = path.read_text().partition("    {\n")
    assert found
    path.write_text(f'{head}{found}        "deliveryGuarantee": "{value}",\n{rest}')


def forget_commits(shell: Shell) -> None:
    """Take back that the last batches of the flows to topics are done, as a kill does."""
    for flow in ("dead_letters/reject", "results/tell"):
        place = shell.directory / "shop" / "pipeline-storage" / "_checkpoints" / flow / "0"
        last = max(path.name for path in (place / "commits").iterdir() if path.name.isdecimal())
        (place / "commits" / last).unlink()
        (place / "commits" / f".{last}.crc").unlink()
