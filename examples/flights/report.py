"""What the demo claims: the checks of its counts and order, the table and the chart."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from examples.flights.consume import Arrivals


class DemoError(Exception):
    """A count or an order that is not as it must be."""


def check_equal(what: str, got: int, expected: int) -> None:
    """Raise DemoError unless the counts agree."""
    if got != expected:
        raise DemoError(f"{what}: {got:,} where {expected:,} are due")


def check_complete(what: str, arrivals: Iterable[Arrivals], numbers: set[int]) -> None:
    """Every flight must have arrived, whoever took it."""
    got = {row[2] for one in arrivals for row in one.rows}
    if got != numbers:
        missing, strange = numbers - got, got - numbers
        raise DemoError(f"{what}: {len(missing):,} flights missing, {len(strange):,} unknown")


def check_order(arrivals: Iterable[Arrivals]) -> None:
    """An aeroplane's flights must lie in one queue in their order, and arrive in that order.

    Checked for each consumer as its messages came, and for each aeroplane along its queue.
    """
    along_queues: dict[str, set[tuple[int, int]]] = {}
    homes: dict[str, object] = {}
    for one in arrivals:
        latest: dict[str, int] = {}
        for queue, offset, number, aeroplane in one.rows:
            if aeroplane is None:
                continue
            if latest.get(aeroplane, -1) > number:
                raise DemoError(f"{one.name}: flight {number} of {aeroplane} came too late")
            latest[aeroplane] = number
            if homes.setdefault(aeroplane, queue) != queue:
                raise DemoError(f"the flights of {aeroplane} lie in several queues")
            along_queues.setdefault(aeroplane, set()).add((offset, number))
    for aeroplane, pairs in along_queues.items():
        numbers = [number for _, number in sorted(pairs)]
        if numbers != sorted(numbers):
            raise DemoError(f"the flights of {aeroplane} are out of order in their queue")


def check_delays(delays: pd.DataFrame, flights: pd.DataFrame) -> None:
    """Spark's sums must be those that pandas computes from the input itself."""
    hours = pd.to_datetime(flights["time_hour"], utc=True)
    expected = (
        flights.assign(hour=hours)
        .groupby(["hour", "carrier"])
        .agg(
            flights=("carrier", "size"),
            departures=("dep_delay", "count"),
            delay=("dep_delay", "sum"),
        )
    )
    got = (
        delays.assign(hour=pd.to_datetime(delays["hour"], utc=True), delay=delays.get("delay"))
        .fillna({"delay": 0.0})
        .set_index(["hour", "carrier"])[["flights", "departures", "delay"]]
        .sort_index()
    )
    check_equal("windows of carrier and hour", len(got), len(expected))
    check_equal("flights in the windows", int(got["flights"].sum()), len(flights))
    if not (got.astype(float) == expected.sort_index().astype(float)).all().all():
        raise DemoError("a window's sums differ from those of the input")


def by_carrier_and_hour(delays: pd.DataFrame) -> pd.DataFrame:
    """Average departure delay in minutes: a row a carrier, a column an hour in New York."""
    hours = pd.to_datetime(delays["hour"], utc=True).dt.tz_convert("America/New_York").dt.hour
    sums = delays.assign(hour=hours).groupby(["carrier", "hour"])[["delay", "departures"]].sum()
    return (sums["delay"] / sums["departures"]).unstack("hour")


def save_chart(table: pd.DataFrame, path: Path) -> None:
    """The table as a heat map."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 6), layout="constrained")
    image = axes.imshow(table, cmap="RdYlBu_r", vmin=-10, vmax=50, aspect="auto")
    axes.set_xticks(range(len(table.columns)), [f"{hour}h" for hour in table.columns])
    axes.set_yticks(range(len(table.index)), table.index)
    for y, carrier in enumerate(table.index):
        for x, hour in enumerate(table.columns):
            value = table.loc[carrier, hour]
            if pd.notna(value):
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=8)
    axes.set_title("Average departure delay from New York, 2013, by carrier and scheduled hour")
    figure.colorbar(image, label="minutes")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)
