"""Executors of a cluster that are killed while they write; the query goes on without them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.spark.crashes.campaign import EXECUTOR, Campaign, Crash
from tests.spark.crashes.copying import PARQUET
from tests.spark.crashes.counting import bodies, bodies_of_files
from tests.spark.topics import Topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]


def test_executors_are_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    campaign = Campaign(monkeypatch, tmp_path)
    campaign.master = "local-cluster[2,1,512]"
    with campaign.running():
        source = Topic(campaign.broker)
        rows = [f"{number % 500}" for number in range(600)]
        source.send(*rows[::2])
        source.send(*rows[1::2], key="1")
        sink, files = Topic(campaign.broker, 3).name, tmp_path / "files"
        limit = {"maxOffsetsPerTrigger": "300"}
        campaign.add("idempotent", source.name, sink, "idempotent", **limit)
        campaign.add("files", source.name, str(files), PARQUET, **limit)
        assert campaign.crash(Crash(EXECUTOR, sink, 150)) == 1
        campaign.finish()
        found = bodies(campaign.broker.name_server, sink)
    assert campaign.started == 1 + campaign.gave_up
    assert found == Counter(rows)
    assert bodies_of_files(files) == Counter(rows)
