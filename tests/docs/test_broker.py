"""The snippets and the tables of docs/broker.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
    run(snippet(BROKER, "EmbeddedBroker"), "")
    assert capsys.readouterr().out == "0\n"
    assert len(snippets(BROKER)) == 1


def test_the_table_of_options_is_the_commands() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orbitmq.cli", "broker", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    options = table("| option | default |")
    assert {word for word in done.stdout.split() if word.startswith("--")} - {"--help"} >= set(
        options
    )
    defaults = BrokerConfig()
    assert options["--host"] == defaults.host
    assert options["--broker-name"] == defaults.broker_name
    assert options["--cluster"] == defaults.cluster_name
