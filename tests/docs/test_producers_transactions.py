"""The transactions of docs/producers.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq import EmbeddedBroker
from orbitmq.names import HALF_TOPIC
from tests.docs.snippets import run, snippet

PRODUCERS = "docs/producers.md"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def halves(broker: EmbeddedBroker) -> int:
    """How many half messages there were."""
    return broker.call(lambda node: node.broker.store.max_offset(HALF_TOPIC, 0))


def test_the_short_form(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PRODUCERS, "producer.transaction("), broker.name_server)
    assert capsys.readouterr().out == "COMMIT\n"
    assert halves(broker) == 1


def test_javas_form(broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str]) -> None:
    run(snippet(PRODUCERS, "def execute("), broker.name_server)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("pays 17 in transaction ")
    assert second == "COMMIT"
    assert halves(broker) == 1
