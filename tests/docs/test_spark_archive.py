"""The commands and programs of docs/spark-archive.md."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.cli import archive, main
from tests.docs.snippets import ADDRESS, ROOT, run, snippet, snippets

PAGE = "docs/spark-archive.md"


def test_commands_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with EmbeddedBroker() as broker:
        with Producer("orders", name_server=broker.name_server) as producer:
            producer.send(Message("flights", b"-", tags="UA"))
        (commands,) = snippets(PAGE, "sh")
        for line in commands.replace(ADDRESS, broker.name_server).splitlines():
            command, *arguments = shlex.split(line)
            assert command == "orbitmq"
            assert main(arguments) == 0
        run(snippet(PAGE, "import archive"), broker.name_server)
    assert "archived 1 messages" in capsys.readouterr().out


def test_the_table_of_options_is_complete() -> None:
    parser = argparse.ArgumentParser()
    archive.add_parser(commands := parser.add_subparsers())
    wanted = {
        option
        for command in commands.choices.values()
        for action in command._actions
        for option in action.option_strings
        if option.startswith("--") and option != "--help"
    }
    assert set(re.findall(r"`(--[a-z-]+)`", (ROOT / PAGE).read_text())) == wanted
