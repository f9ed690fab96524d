"""Figures of listeners that are kept beside a server, and read by its client."""

from __future__ import annotations

import pickle
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.spark.listeners.figures import Keeper, stats_of
from orbitmq.spark.listeners.task_consumer import Consumed

HOUR = 3_600_000


def rows(keeper: Keeper, now_ms: int) -> list[tuple[Any, ...]]:
    """As the client gets them: with their age."""
    return [(*row[:-1], now_ms - row[-1]) for row in keeper.rows]


def test_figures_of_the_last_minute_and_hour() -> None:
    keeper: Keeper = pickle.loads(pickle.dumps(Keeper("view")))
    now = 1_700_000_000_000
    keeper.add([Consumed("t", 100, 7, 10, 500), Consumed("other", 1, 0, 1, 1)], now - 20 * 60_000)
    keeper.add([Consumed("t", 60, 0, 6, 60), Consumed("t", 60, 3, 6, 60)], now - 2_000)
    status = stats_of(rows(keeper, now), -HOUR, 0).status("t", 0)
    assert status.consume_failed_msgs == 10
    assert 120 / 60 <= status.consume_ok_tps <= 120 / 50
    assert status.consume_rt == 10.0
    assert stats_of(rows(keeper, now), -HOUR, 0).status("unknown", 0).consume_ok_tps == 0


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 9), st.integers(0, 90)),
        max_size=60,
    )
)
def test_nothing_of_the_last_hour_is_forgotten_and_no_more_is_kept(
    batches: list[tuple[str, int, int, int]],
) -> None:
    keeper = Keeper("view")
    now = 1_700_000_000_000
    told: list[tuple[int, str, int]] = []
    for topic, ok, failed, minutes in batches:
        now += minutes * 60_000
        keeper.add([Consumed(topic, ok, failed, 1, 1)], now)
        told.append((now, topic, failed))
    for topic in "ab":
        shown = sum(row[2] for row in keeper.rows if row[0] == topic)
        recent = [failed for at, name, failed in told if name == topic and at >= now - HOUR]
        late = [failed for at, name, failed in told if name == topic and at >= now - HOUR - 10_000]
        assert sum(recent) <= shown <= sum(late)
    assert len(keeper.rows) <= 2 * 362
