"""The snippets and the tables of docs/broker.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, Producer
from orbitmq.broker.config import BrokerConfig
from tests.docs.snippets import ROOT, run, snippet, snippets

BROKER = "docs/broker.md"


def table(heading: str) -> dict[str, str]:
    """A table's first column and its second, without code marks."""
    text = (ROOT / BROKER).read_text()
    rows = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip(" `") for cell in row.strip("|").split("|")] for row in rows]
    return {row[0]: row[1] for row in cells}


def test_a_broker_in_a_python_process(capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(BROKER, "queue_offset"), "")
    assert capsys.readouterr().out == "0\n"
    assert len(snippets(BROKER)) == 2


def test_a_broker_with_a_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run(snippet(BROKER, "settings_file"), "")
    assert capsys.readouterr().out == "32\n"


def test_the_table_of_options_is_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli", "broker", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    options = table("| option | default |")
    assert {word for word in done.stdout.split() if word.startswith("--")} - {"--help"} >= {
        name.partition("`")[0] for name in options
    }
    defaults = BrokerConfig()
    assert options["--host"] == defaults.host
    assert options["--broker-name"] == defaults.broker_name
    assert options["--cluster"] == defaults.cluster_name


def test_a_second_broker_joins_the_first_ones_name_server() -> None:
    command = snippet(BROKER, "broker-b", "sh").split()[1:]
    with EmbeddedBroker() as first:
        command[command.index("--name-server") + 1] = first.name_server
        command[command.index("--port") + 1] = "0"
        second = subprocess.Popen(
            [sys.executable, "-m", "orbitmq.cli", *command], stdout=subprocess.PIPE, text=True
        )
        try:
            assert second.stdout is not None
            assert second.stdout.readline().startswith("ready")
            with Producer("demo", name_server=first.name_server) as producer:
                brokers = {queue.broker_name for queue in producer.publish_queues("TBW102")}
            assert brokers == {"broker-a", "broker-b"}
        finally:
            second.terminate()
            second.communicate(timeout=30)
