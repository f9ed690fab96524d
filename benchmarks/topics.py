"""What a hundred thousand topics cost: the start with them, their memory, and one change more.

Both brokers start with the same ``topics.json``; a broker without topics is taken off the memory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from benchmarks.brokers import RunningBroker, apache_broker, orbitmq_broker
from benchmarks.load import create_topic
from benchmarks.results import Result, compare
from orbitmq.wire.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from tests.apache.jars import ApacheRelease

COUNT = 100_000
CHANGES = 50
MEASURES = (
    ("start to the first message", "s"),
    ("memory of the topics", "MB"),
    ("making one more", "ms"),
)


def topic_figures(apache: ApacheRelease | None, rounds: int) -> Iterator[Result]:
    """All of them."""

    def ours(store: Path) -> AbstractContextManager[RunningBroker]:
        return orbitmq_broker("async", store)

    starts: list[Callable[[Path], AbstractContextManager[RunningBroker]]] = [ours]
    if apache:
        release = apache
        starts.append(lambda store: apache_broker(release, "async", store))
    measured = [[_measure(start) for start in starts] for _ in range(rounds)]
    for index, (name, unit) in enumerate(MEASURES):
        rows = [[side[index] for side in row] for row in measured]
        yield compare(f"{COUNT:,} topics, {name}", unit, rows, None, less=True)


def _measure(
    start: Callable[[Path], AbstractContextManager[RunningBroker]],
) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory(prefix="orbitmq-bench-") as directory:
        with start(Path(directory, "few")) as broker:
            without = broker.anonymous_memory()
        store = Path(directory, "many")
        write_topics(store, COUNT)
        with start(store) as broker:
            memory = broker.anonymous_memory() - without
            began = time.perf_counter()
            for number in range(CHANGES):
                create_topic(broker.address, f"one-more-{number}")
            change = (time.perf_counter() - began) / CHANGES
            return broker.first_message_seconds, memory / 1e6, change * 1e3


def write_topics(store: Path, count: int) -> None:
    """A store with so many topics of four queues."""
    topics = {f"topic-{number}": TopicConfig(f"topic-{number}", 4, 4) for number in range(count)}
    table = TopicConfigSerializeWrapper(topics, DataVersion(0, 1, count))
    (store / "config").mkdir(parents=True)
    (store / "config" / "topics.json").write_bytes(table.encode())
