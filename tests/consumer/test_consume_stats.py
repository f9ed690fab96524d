"""Consume statistics: rates of the last minute, failures of the last hour, by a moved clock."""

from __future__ import annotations

import threading

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.wire.running_info import ConsumeStatusInfo

NOW = 1_704_067_200_000
MINUTE, HOUR = 60_000, 3_600_000


def test_a_topic_nobody_heard_of_has_no_figures() -> None:
    assert ConsumeStats(NOW).status("orders", NOW) == ConsumeStatusInfo()


def test_rates_and_mean_times_of_the_last_minute() -> None:
    stats = ConsumeStats(NOW - HOUR)
    for second in range(60):
        now = NOW + second * 1000
        stats.pulled("orders", 32, 10, now)
        stats.consumed("orders", 30, 2, 5, now)
    status = stats.status("orders", NOW + MINUTE - 1)
    assert (status.pull_rt, status.consume_rt) == (10, 5)
    assert 32 <= status.pull_tps < 32.1
    assert 30 <= status.consume_ok_tps < 30.1
    assert 2 <= status.consume_failed_tps < 2.1
    assert status.consume_failed_msgs == 120


def test_a_young_consumer_is_measured_over_its_life_but_ten_seconds_at_least() -> None:
    stats = ConsumeStats(NOW)
    stats.consumed("orders", 100, 0, 1, NOW)
    assert stats.status("orders", NOW + 1).consume_ok_tps == 10
    assert stats.status("orders", NOW + 25_000).consume_ok_tps == 4


def test_what_is_older_does_not_count() -> None:
    stats = ConsumeStats(NOW)
    stats.pulled("orders", 7, 3, NOW)
    stats.consumed("orders", 7, 3, 20, NOW)
    later = stats.status("orders", NOW + MINUTE)
    assert later == ConsumeStatusInfo(consume_rt=20, consume_failed_msgs=3)  # of the hour
    assert stats.status("orders", NOW + HOUR - 1).consume_failed_msgs == 3
    assert stats.status("orders", NOW + HOUR) == ConsumeStatusInfo()


def test_topics_are_counted_apart() -> None:
    stats = ConsumeStats(NOW)
    stats.consumed("orders", 1, 0, 1, NOW)
    stats.consumed("%RETRY%readers", 0, 1, 1, NOW)
    assert stats.status("orders", NOW).consume_failed_msgs == 0
    assert stats.status("%RETRY%readers", NOW).consume_failed_msgs == 1


def test_a_clock_set_back_loses_no_count() -> None:
    stats = ConsumeStats(NOW)
    stats.consumed("orders", 0, 1, 1, NOW)
    stats.consumed("orders", 0, 1, 1, NOW - 30_000)
    assert stats.status("orders", NOW - 30_000).consume_failed_msgs == 2


def test_threads_may_count_at_once() -> None:
    stats = ConsumeStats(NOW)

    def count() -> None:
        for _ in range(2_000):
            stats.consumed("orders", 0, 1, 0, NOW)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stats.status("orders", NOW).consume_failed_msgs == 8_000


@given(st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 9)), max_size=40))
def test_the_figures_are_those_of_a_list_of_all_that_happened(
    happened: list[tuple[int, int]],
) -> None:
    stats = ConsumeStats(NOW - HOUR)
    now, events = NOW, []
    for pause, failed in happened:
        now += pause
        stats.consumed("orders", 0, failed, 0, now)
        events.append((now, failed))
    begin = now - now % 10_000 - 50_000
    minute = sum(failed for at, failed in events if at >= begin)
    hour_begin = now - now % 600_000 - 3_000_000
    hour = sum(failed for at, failed in events if at >= hour_begin)
    status = stats.status("orders", now)
    assert status.consume_failed_msgs == hour
    assert round(status.consume_failed_tps * max(now - begin, 10_000) / 1000) == minute
