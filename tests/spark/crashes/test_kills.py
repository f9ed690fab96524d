"""Streams of a driver that is killed (SIGKILL) where it hurts, with all that it runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.crashes.campaign import (
    DONE,
    DRIVER,
    HALVES,
    JVM,
    PLANNER,
    WRITER,
    Campaign,
)
from tests.spark.crashes.copying import PARQUET
from tests.spark.crashes.counting import bodies, bodies_of_files
from tests.spark.topics import Topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

ROWS = 300
"""How many messages come before each driver."""


def test_every_guarantee_through_kills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    campaign = Campaign(monkeypatch, tmp_path)
    with campaign.running():
        source = Topic(campaign.broker, queues=2)
        once, ideally, whole = (Topic(campaign.broker, 3) for _ in range(3))
        files = tmp_path / "files"
        limit = {"maxOffsetsPerTrigger": str(ROWS // 2)}
        campaign.add("at least once", source.name, once.name, "at_least_once", **limit)
        campaign.add("idempotent", source.name, ideally.name, "idempotent", **limit)
        campaign.add("exactly once", source.name, whole.name, "exactly_once", **limit)
        campaign.add("files", source.name, str(files), PARQUET, **limit)
        expected: Counter[str] = Counter()

        def more(key: str | None) -> None:
            """Some of them alike, for rows are not told apart by what they hold."""
            new = [f"{number % 70}" for number in range(ROWS)]
            source.send(*new, key=key)
            expected.update(new)

        # In the middle of the very first batch.
        more("0")
        campaign.crash(JVM, HALVES, 50)
        assert campaign.progress["exactly once"] == (0, -1)
        # Queues that come while nobody looks; a task that dies alone; then the driver, when all of
        # a batch is delivered and Spark does not know it.
        source.resize(4)
        more(None)
        campaign.crash(WRITER, ideally.name, campaign.stored[ideally.name] + 50)
        campaign.crash(JVM, DONE, campaign.stored[DONE] + 1)
        planned, committed = campaign.progress["exactly once"]
        assert planned == committed + 1
        # In the middle of a commit.
        more("1")
        campaign.crash(DRIVER, whole.name, campaign.stored[whole.name] + ROWS // 2 + 50)
        planned, committed = campaign.progress["exactly once"]
        assert planned == committed + 1
        # Who plans dies alone; then the driver, when the last row is stored.
        more(None)
        campaign.crash(PLANNER, ideally.name, campaign.stored[ideally.name] + 1)
        campaign.crash(JVM, ideally.name, expected.total())
        planned, committed = campaign.progress["idempotent"]
        assert planned == committed + 1
        campaign.finish()

        name_server = campaign.broker.name_server
        assert bodies(name_server, ideally.name) == expected
        assert bodies(name_server, whole.name) == expected
        assert bodies_of_files(files) == expected
        found = bodies(name_server, once.name)
        assert not expected - found
        assert campaign.started == 5
