"""Reading and writing topics as a batch: our source and sink beside Spark's for Kafka.

Both run in one Spark session of two cores, each against its own broker, and take turns. The
processor time is that of the driver's JVM and its Python workers, without the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.plan import Outcome
from benchmarks.results import Result, compare, compare_outcomes
from benchmarks.spark_sides import (
    ALL,
    DEFAULT,
    OFFSET_AND_BODY,
    Bench,
    Side,
    bench,
    bodies,
    drain,
)

WARM_UP = 3
"""Passes that do not count: the JVM compiles."""
ROWS = {100: 1_000_000, 1024: 250_000}
READ_AIMS = {DEFAULT: 1.3, OFFSET_AND_BODY: 1.5}
WRITE_AIM = 1.0
SPLIT_AIM = 1.5
QUEUES = 4

Work = Callable[[], object]


@dataclass(frozen=True)
class Reading:
    """What is read: bodies of ``size`` bytes in so many queues, so many columns of them."""

    size: int
    columns: str
    queues: int = QUEUES

    @property
    def topic(self) -> str:
        """Where they are."""
        return f"bench-{self.size}-{self.queues}"

    def __str__(self) -> str:
        return f"read {self.size} B, {self.columns}"


READINGS = [
    *(Reading(size, columns) for size in ROWS for columns in (DEFAULT, ALL, OFFSET_AND_BODY)),
]


def read_figures(
    rounds: int, readings: Sequence[Reading] = READINGS, rows: dict[int, int] = ROWS
) -> Iterator[Result]:
    """Rows a second of four queues, beside Kafka's defaults and Kafka's with longer polls."""
    with bench() as spark:
        fill_all(spark, {(reading.size, reading.queues) for reading in readings}, rows)
        for reading in readings:
            sides: list[Side] = [*spark.pair, spark.tuned]
            works = [partial(drain, side.read(reading.topic, reading.columns)) for side in sides]
            found = measure(spark, rows[reading.size], works, rounds)
            yield compare_outcomes(
                str(reading), [row[:2] for row in found], READ_AIMS.get(reading.columns)
            )
            beside_tuned = [[row[0], row[2]] for row in found]
            yield compare_outcomes(
                f"{reading}, Kafka with max.poll.records=8000", beside_tuned, None
            )


def split_figures(rounds: int, rows: dict[int, int] = ROWS, size: int = 100) -> Iterator[Result]:
    """A topic of one queue, read by one task and by two."""
    reading = Reading(size, DEFAULT, queues=1)
    with bench() as spark:
        fill_all(spark, {(size, 1)}, rows)
        works = [
            partial(drain, side.read(reading.topic, tasks=tasks))
            for tasks in (1, 2)
            for side in spark.pair
        ]
        found = measure(spark, rows[size], works, rounds)
        yield compare_outcomes(f"{reading}, one queue, one task", [row[:2] for row in found], None)
        yield compare_outcomes(f"{reading}, one queue, two tasks", [row[2:] for row in found], None)
        both = [[row[2].rate, row[0].rate] for row in found]
        result = compare(f"{reading}, one queue, two tasks beside one", "rows/s", both, SPLIT_AIM)
        yield result


def write_figures(rounds: int, rows: dict[int, int] = ROWS) -> Iterator[Result]:
    """Rows a second that two tasks write to four queues."""
    with bench() as spark:
        for size, count in rows.items():
            topic = f"bench-write-{size}"
            works = []
            for side in spark.pair:
                side.make_topic(topic, QUEUES)
                works.append(partial(side.write, bodies(spark.spark, count, size), topic))
            yield compare_outcomes(
                f"write {size} B", measure(spark, count, works, rounds), WRITE_AIM
            )


def measure(spark: Bench, rows: int, works: Sequence[Work], rounds: int) -> list[list[Outcome]]:
    """What each work takes in each round; who goes first in one goes last in the next."""
    found = []
    for number in range(WARM_UP + rounds):
        order = list(range(len(works)))[:: -1 if number % 2 else 1]
        row = {index: spark.outcome(rows, works[index]) for index in order}
        found.append([row[index] for index in range(len(works))])
    return found[WARM_UP:]


def fill_all(spark: Bench, topics: set[tuple[int, int]], rows: dict[int, int]) -> None:
    """Topics for bodies of a size in so many queues, full, on both brokers."""
    for size, queues in sorted(topics):
        reading = Reading(size, DEFAULT, queues)
        for side in spark.pair:
            side.make_topic(reading.topic, queues)
            side.write(bodies(spark.spark, rows[size], size), reading.topic)
