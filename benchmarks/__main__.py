"""Measures OrbitMQ beside Apache RocketMQ and prints the figures as ratios.

    python -m benchmarks [brokers|producers|consumers|holding|growth|transactions|timers|queries|
        spark|topics] [...] [--seconds S] [--rounds N]

Both sides run in the same session and take turns, round by round, so that a machine whose speed
drifts does not favour one; the ratio of each round is taken and the median shown. Absolute figures
are for orientation only. The results also go to ``build/bench.json``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.broker_figures import broker_figures
from benchmarks.brokers import RunningBroker, fill, find_apache, orbitmq_broker
from benchmarks.consumer_figures import consumer_figures
from benchmarks.growth import SIZES, growth_figures
from benchmarks.holding_figures import holding_figures
from benchmarks.producer_figures import producer_figures
from benchmarks.queries import query_figures
from benchmarks.results import Result, show
from benchmarks.spark_rows import rows_a_second
from benchmarks.timer_figures import timer_figures
from benchmarks.topics import topic_figures
from benchmarks.transaction_figures import transaction_figures
from tests.apache.jars import ApacheRelease

SUBJECTS = (
    "brokers",
    "producers",
    "consumers",
    "holding",
    "growth",
    "transactions",
    "timers",
    "queries",
    "spark",
    "topics",
)
SPARK_ROWS = 1_000_000


def spark_figures(broker: RunningBroker) -> Iterator[Result]:
    """Rows a second that a warm Spark reads, all columns."""
    fill(broker, "bench-spark", SPARK_ROWS)
    yield Result("Spark batch read, all columns", "rows/s", rows_a_second(broker.name_server))


def figures(
    subjects: list[str], apache: ApacheRelease | None, seconds: float, rounds: int, largest: int
) -> Iterator[Result]:
    """The figures of these subjects, as they come."""
    if "brokers" in subjects:
        for flush in ("async", "sync"):
            yield from broker_figures(apache, flush, seconds, rounds)
    if "producers" in subjects:
        with orbitmq_broker("async") as broker:
            yield from producer_figures(apache, broker, seconds, rounds)
    if "consumers" in subjects:
        with orbitmq_broker("async") as broker:
            yield from consumer_figures(apache, broker, rounds)
    if "holding" in subjects:
        with orbitmq_broker("async") as broker:
            yield from holding_figures(apache, broker, seconds, rounds)
    if "growth" in subjects:
        yield from growth_figures(largest)
    if "transactions" in subjects:
        yield from transaction_figures(apache, seconds, rounds)
    if "timers" in subjects:
        yield from timer_figures(apache)
    if "queries" in subjects:
        yield from query_figures(apache, largest)
    if "spark" in subjects:
        with orbitmq_broker("async") as broker:
            yield from spark_figures(broker)
    if "topics" in subjects:
        yield from topic_figures(apache, rounds)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", choices=SUBJECTS, metavar="subject")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of each comparison")
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="store to fill")
    arguments = parser.parse_args()
    apache = find_apache()
    print(f"{'':<50}{'':<11}{'OrbitMQ':>12}{'Apache':>12}{'ratio':>8}{'aim':>6}")
    results = []
    subjects = arguments.subjects or list(SUBJECTS)
    for result in figures(subjects, apache, arguments.seconds, arguments.rounds, arguments.largest):
        show(result)
        results.append(result)
    path = Path("build/bench.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([vars(result) for result in results], indent=1))


if __name__ == "__main__":
    main()
