"""What can be measured, by the names that ``python -m benchmarks`` takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.broker_figures import latency_figures, mixed_figures, pull_figures, send_figures
from benchmarks.brokers import Rival, fill, orbitmq_broker
from benchmarks.connection_figures import connection_figures
from benchmarks.consumer_figures import consumer_figures
from benchmarks.flames import flame_figures
from benchmarks.growth import growth_figures
from benchmarks.holding_figures import holding_figures
from benchmarks.periodic_figures import periodic_figures
from benchmarks.producer_figures import producer_figures
from benchmarks.queries import query_figures
from benchmarks.results import Result
from benchmarks.scaling import scaling_figures
from benchmarks.timer_figures import timer_figures
from benchmarks.topics import topic_figures
from benchmarks.transaction_figures import transaction_figures
from benchmarks.worker_figures import worker_figures
from tests.apache.jars import ApacheMissingError, ApacheRelease

SPARK_ROWS = 1_000_000
_LONGER = 3
"""Percentiles take more seconds than rates."""
_PERIOD = 30
"""Clients do everything within so many seconds."""


@dataclass
class Options:
    """How to measure: beside whom, how long, how often, how much; where pictures go."""

    rivals: list[Rival]
    seconds: float
    rounds: int
    largest: int
    pictures: Path

    @property
    def apache(self) -> ApacheRelease | None:
        """Apache's release, if that is among the rivals."""
        return next((one for one in self.rivals if isinstance(one, ApacheRelease)), None)


def _sends(options: Options) -> Iterator[Result]:
    return send_figures(options.rivals, "async", options.seconds, options.rounds)


def _sync(options: Options) -> Iterator[Result]:
    return send_figures(options.rivals, "sync", options.seconds, options.rounds)


def _pulls(options: Options) -> Iterator[Result]:
    return pull_figures(options.rivals, options.seconds, options.rounds)


def _mixed(options: Options) -> Iterator[Result]:
    return mixed_figures(options.rivals, options.seconds, options.rounds)


def _latency(options: Options) -> Iterator[Result]:
    return latency_figures(options.rivals, _LONGER * options.seconds, options.rounds)


def _connections(options: Options) -> Iterator[Result]:
    return connection_figures(options.rivals, _LONGER * options.seconds, options.rounds)


def _consumers(options: Options) -> Iterator[Result]:
    with orbitmq_broker("async") as broker:
        yield from consumer_figures(options.apache, broker, options.rounds)


def _producers(options: Options) -> Iterator[Result]:
    with orbitmq_broker("async") as broker:
        seconds = _LONGER * options.seconds
        yield from producer_figures(options.apache, broker, seconds, options.rounds)


def _holding(options: Options) -> Iterator[Result]:
    with orbitmq_broker("async") as broker:
        seconds = _LONGER * options.seconds
        yield from holding_figures(options.apache, broker, seconds, options.rounds)


def _scaling(options: Options) -> Iterator[Result]:
    return scaling_figures(options.seconds, options.rounds, options.pictures)


def _flames(options: Options) -> Iterator[Result]:
    return flame_figures(options.seconds, options.pictures)


def _growth(options: Options) -> Iterator[Result]:
    return growth_figures(options.largest)


def _transactions(options: Options) -> Iterator[Result]:
    return transaction_figures(options.apache, _LONGER * options.seconds, options.rounds)


def _guarantees(options: Options) -> Iterator[Result]:
    """What the sink's guarantees cost; a round is short, so there are several for each asked."""
    from benchmarks.guarantee_figures import guarantee_figures

    return guarantee_figures(options.apache, _LONGER * options.rounds)


def _timers(options: Options) -> Iterator[Result]:
    return timer_figures(options.apache)


def _queries(options: Options) -> Iterator[Result]:
    return query_figures(options.apache, options.largest)


def _spark(_options: Options) -> Iterator[Result]:
    """Rows a second that a warm Spark reads, all columns."""
    from benchmarks.spark_rows import rows_a_second

    with orbitmq_broker("async") as broker:
        fill(broker, "bench-spark", SPARK_ROWS)
        yield Result("Spark batch read, all columns", "rows/s", rows_a_second(broker.name_server))


def _topics(options: Options) -> Iterator[Result]:
    return topic_figures(options.apache, options.rounds)


def _periodic(options: Options) -> Iterator[Result]:
    return periodic_figures(_PERIOD * options.seconds)


def _workers(options: Options) -> Iterator[Result]:
    return worker_figures(options.seconds, options.rounds)


def _kafka(part: str, options: Options) -> Iterator[Result]:
    """Our source and sink beside Spark's for Kafka; nothing where Kafka cannot be fetched."""
    from benchmarks import kafka_figures, kafka_streams

    figures: dict[str, Callable[[int], Iterator[Result]]] = {
        "kafka-read": kafka_figures.read_figures,
        "kafka-split": kafka_figures.split_figures,
        "kafka-write": kafka_figures.write_figures,
        "kafka-floor": kafka_streams.floor_figures,
        "kafka-idle": kafka_streams.idle_figures,
        "kafka-latency": kafka_streams.latency_figures,
    }
    try:
        yield from figures[part](options.rounds)
    except ApacheMissingError as error:
        print(f"Without {part}: {error}", file=sys.stderr)


KAFKA = (
    "kafka-read",
    "kafka-split",
    "kafka-write",
    "kafka-floor",
    "kafka-idle",
    "kafka-latency",
)
"""What is measured beside Spark's Kafka source and sink."""
SUBJECTS: Mapping[str, Callable[[Options], Iterator[Result]]] = {
    "sends": _sends,
    "sync": _sync,
    "pulls": _pulls,
    "mixed": _mixed,
    "latency": _latency,
    "connections": _connections,
    "producers": _producers,
    "consumers": _consumers,
    "holding": _holding,
    "scaling": _scaling,
    "flames": _flames,
    "growth": _growth,
    "transactions": _transactions,
    "timers": _timers,
    "queries": _queries,
    "spark": _spark,
    "guarantees": _guarantees,
    "topics": _topics,
    "periodic": _periodic,
    "workers": _workers,
    **{part: partial(_kafka, part) for part in KAFKA},
}
"""All of them, in the order of a run without a choice."""
BROKERS = ("sends", "sync", "pulls", "mixed")
"""What is measured of the brokers alone."""
RIVALS = frozenset({*BROKERS, "latency", "connections"})
"""What can be measured of another version of ours, too."""
GROUPS = {"brokers": BROKERS, "kafka": KAFKA}
"""Names for several of them."""
ALONE = frozenset({"scaling", "flames", "growth", "spark", "periodic", "workers", *KAFKA})
"""What is measured without Apache's broker."""
