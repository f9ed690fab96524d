"""The snippets of docs/producers.md, and what they promise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, PullConsumer
from tests.docs.snippets import ROOT, run, snippet, snippets

PRODUCERS = "docs/producers.md"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def test_sending(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PRODUCERS, "result.status.name"), broker.name_server)
    assert capsys.readouterr().out == "SEND_OK orders\n"


def test_choosing_a_queue(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PRODUCERS, "select_queue_by_hash"), broker.name_server)
    printed = capsys.readouterr().out.split()
    assert len(printed) == 3
    assert len(set(printed)) == 1


def test_splitting_a_batch(broker: EmbeddedBroker) -> None:
    run(snippet(PRODUCERS, "split_batch"), broker.name_server)
    with PullConsumer("readers", name_server=broker.name_server) as consumer:
        queues = consumer.fetch_subscribe_message_queues("readings")
        assert sum(map(consumer.max_offset, queues)) == 10_000


def test_asking(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    code = snippet(PRODUCERS, "producer.request").replace(
        'PushConsumer("clerks", ',
        'PushConsumer("clerks", consume_from_where="CONSUME_FROM_FIRST_OFFSET", ',
    )
    run(code.replace("timeout=20", "timeout=60"), broker.name_server)
    assert capsys.readouterr().out == "b'HOW MUCH?'\n"


def test_a_hook(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PRODUCERS, "class Stopwatch"), broker.name_server)
    assert capsys.readouterr().out == "orders SYNC True\n"


def test_every_python_snippet_is_run() -> None:
    """By a call of snippet() in one of the tests of this folder that are named for the page."""
    wanted = [
        mark
        for path in Path(__file__).parent.glob("test_producers*.py")
        for mark in re.findall(r'snippet\(PRODUCERS, "([^"]+)"\)', path.read_text())
    ]
    for code in snippets(PRODUCERS):
        assert any(mark in code for mark in wanted), code


def test_the_pages_it_names_exist() -> None:
    text = (ROOT / PRODUCERS).read_text()
    for name in re.findall(r"\]\((\w[\w.-]*\.md)\)", text):
        assert (ROOT / "docs" / name).is_file(), name
