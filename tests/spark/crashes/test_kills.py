"""Long histories of messages through kills (SIGKILL), for every guarantee."""

from __future__ import annotations

import logging
import random
from pathlib import Path

import pytest

from tests.spark.crashes.campaign import (
    DONE,
    DRIVER,
    JVM,
    PLANNER,
    STAGED,
    WRITER,
    Campaign,
    Crash,
)
from tests.spark.crashes.counting import bodies
from tests.spark.crashes.histories import LONG, SEED, History
from tests.spark.topics import Topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

log = logging.getLogger("orbitmq.tests")

PART = 100_000 // 2
A_BATCH = 4
"""A batch of Spark's makes more staged ones than so many."""


def test_every_guarantee_through_kills(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    log.warning("seed %d", SEED)
    campaign = Campaign(monkeypatch, tmp_path)
    with campaign.running():
        history = History(Topic(campaign.broker), chance)
        once, ideally, whole = (Topic(campaign.broker, 3).name for _ in range(3))
        limit = {"maxOffsetsPerTrigger": str(PART // 2)}
        campaign.add("at least once", history.topic.name, once, "at_least_once", **limit)
        campaign.add("idempotent", history.topic.name, ideally, "idempotent", **limit)
        campaign.add("exactly once", history.topic.name, whole, "exactly_once", **limit)

        # The driver's Python, in the middle of the very first batch.
        history.grow(PART)
        assert campaign.crash(Crash(DRIVER, STAGED, chance.randrange(1, A_BATCH))) == 1
        assert campaign.progress["exactly once"] == (0, -1)

        # Queues that come while nobody looks. Then who sends and who plans die alone, and at last
        # the JVM, when all of a batch is delivered and Spark does not know it.
        history.topic.resize(4)
        history.grow(PART)
        crashes = [
            Crash(WRITER, STAGED, chance.randrange(1, A_BATCH)),
            Crash(PLANNER, STAGED, chance.randrange(1, A_BATCH)),
            Crash(JVM, DONE, 1),
        ]
        assert campaign.crash(*crashes) == 3
        planned, committed = campaign.progress["exactly once"]
        assert planned == committed + 1

        campaign.finish()
        assert campaign.started == 3 + campaign.gave_up
        name_server = campaign.broker.name_server
        assert bodies(name_server, ideally) == history.sent
        assert bodies(name_server, whole) == history.sent
        assert not history.sent - bodies(name_server, once)


@pytest.mark.skipif(not LONG, reason="takes minutes: runs where ORBITMQ_LONG is set")
@pytest.mark.parametrize("guarantee", ["at_least_once", "idempotent", "exactly_once"])
def test_a_history_of_random_crashes(
    guarantee: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    chance = random.Random(f"{SEED} {guarantee}")
    count, wanted = 100_000, 8
    campaign = Campaign(monkeypatch, tmp_path)
    with campaign.running():
        history, sink = History(Topic(campaign.broker, 3), chance), Topic(campaign.broker, 4).name
        history.grow(count)
        limit = str(count // chance.randrange(4, 8))
        campaign.add("copy", history.topic.name, sink, guarantee, maxOffsetsPerTrigger=limit)
        places = [STAGED, sink] if guarantee == "exactly_once" else [sink]
        happened: list[Crash] = []
        while len(happened) < wanted:
            place, more = chance.choice(places), chance.randrange(1, count // wanted)
            more = more // 2000 + 1 if place == STAGED else more
            crash = Crash(chance.choice([JVM, JVM, DRIVER, WRITER, PLANNER]), place, more)
            if not campaign.crash(crash):
                break
            happened.append(crash)
        else:
            campaign.finish()
        found = bodies(campaign.broker.name_server, sink)
        again = (found - history.sent).total()
        log.warning("seed %d: %s; %d of %d again", SEED, happened, again, count)
        assert len(happened) > wanted // 3
        assert not history.sent - found
        if guarantee != "at_least_once":
            assert found == history.sent
