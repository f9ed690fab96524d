"""The snippet of timers in docs/producers.md."""

from __future__ import annotations

import pytest

from orbitmq import EmbeddedBroker
from tests.docs.snippets import run, snippet

PRODUCERS = "docs/producers.md"


def test_delays_timers_and_a_recall(capsys: pytest.CaptureFixture[str]) -> None:
    with EmbeddedBroker() as broker:
        run(snippet(PRODUCERS, "delay_seconds=90"), broker.name_server)
    assert capsys.readouterr().out == "True\n"
