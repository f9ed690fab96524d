"""Totals and rates of a store, on a clock that is moved."""

from __future__ import annotations

from orbitmq.broker.store_stats import StoreStats


def test_rates_are_those_of_the_last_seconds() -> None:
    stats = StoreStats(boot_ms=1_000, now_ms=0)
    assert stats.table(1_000)["putTps"] == "0.0 0.0 0.0"
    for second in range(1, 701):
        stats.put += 10 if second > 690 else 2
        stats.found += 1
        stats.missed += 3
        stats.transferred += 4
        stats.sample(second * 1_000)
    table = stats.table(90_061_000 + 1_000)
    assert table["putTps"] == f"10.0 {round(200 / 60, 3)} {round(1_280 / 600, 3)}"
    assert table["getTotalTps"] == "4.0 4.0 4.0"
    assert table["getTransferredTps"] == table["getTransferedTps"] == "4.0 4.0 4.0"
    assert table["runtime"] == "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"


def test_long_writes_are_seen() -> None:
    stats = StoreStats(0, 0)
    stats.put, stats.put_size = 1_000, 100_000
    stats.wrote(985, 0.0005)
    stats.wrote(10, 0.03)
    stats.wrote(5, 12.0)
    table = stats.table(0)
    assert table["putMessageDistributeTime"].startswith("[<=0ms]:985 [0~10ms]:0 [10~50ms]:10 ")
    assert table["putMessageDistributeTime"].endswith("[10s~]:5 ")
    assert (table["putLatency99"], table["putLatency999"]) == ("50.00", "12000.00")
    assert table["putMessageEntireTimeMax"] == "12000"
    assert table["putMessageAverageSize"] == "100.0"


def test_mornings_are_noted_when_a_day_begins() -> None:
    stats = StoreStats(0, 0)

    def mornings() -> tuple[str, str, str]:
        table = stats.table(0)
        return (
            table["msgPutTotalYesterdayMorning"],
            table["msgPutTotalTodayMorning"],
            table["msgPutTotalTodayNow"],
        )

    stats.put_by_users = 5
    stats.begin_day(7)
    assert mornings() == ("0", "0", "5")
    stats.begin_day(8)
    stats.put_by_users = 9
    assert mornings() == ("0", "5", "9")
    stats.begin_day(8)
    stats.begin_day(9)
    assert mornings() == ("5", "9", "9")
    stats.begin_day(20)
    assert mornings() == ("9", "9", "9")
