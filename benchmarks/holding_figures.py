"""What a rebalance costs, and what many queues and idle consumers take of the machine.

Ours beside Apache's Java consumer, on our broker, in turn.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.brokers import RunningBroker
from benchmarks.load import create_topic
from benchmarks.results import Result, compare, figures_in
from tests.apache.jars import OPEN_MODULES, ApacheRelease

COUNTS = (10, 1_000, 10_000)
IDLE = 50
MEASURES = (
    ("first rebalance", "s"),
    ("rebalance without a change", "ms"),
    ("a second consumer takes half", "s"),
    ("share of a processor", "%"),
    ("memory each", "KB"),
)


def holding_figures(
    apache: ApacheRelease | None, broker: RunningBroker, seconds: float, rounds: int
) -> Iterator[Result]:
    """All of them."""
    programs = [[sys.executable, "-m", "benchmarks.holding"]]
    if apache:
        source = Path(__file__).with_name("java") / "Holding.java"
        programs.append([apache.java, *OPEN_MODULES, "-cp", apache.classpath(), str(source)])
    for count in COUNTS:
        create_topic(broker.address, f"bench-holding-{count}", count)
        # What few queues take when nothing happens tells nothing of the queues.
        most = count == COUNTS[-1]
        held = seconds if most else 0
        measured = _measure(programs, broker, "queues", count, count, held, rounds)
        for index, (name, unit) in enumerate(MEASURES if most else MEASURES[:3]):
            rows = [[side[index] for side in row] for row in measured]
            yield compare(f"{count:,} queues, {name}", unit, rows, None, less=True)
    measured = _measure(programs, broker, "idle", COUNTS[0], IDLE, seconds, rounds)
    for index, (name, unit) in enumerate(
        [("an idle consumer and its process", "MB"), ("each further idle consumer", "KB")]
    ):
        yield compare(
            name, unit, [[side[index] for side in row] for row in measured], None, less=True
        )


def _measure(
    programs: list[list[str]],
    broker: RunningBroker,
    measure: str,
    queues: int,
    count: int,
    seconds: float,
    rounds: int,
) -> list[list[list[float]]]:
    """What each program prints, in each round."""
    topic = f"bench-holding-{queues}"
    return [
        [
            _figures(
                [
                    *(*program, measure, broker.name_server, topic),
                    *(f"{measure}-{count}-{number}-{row}", str(count), str(seconds)),
                ]
            )
            for number, program in enumerate(programs)
        ]
        for row in range(rounds)
    ]


def _figures(command: list[str]) -> list[float]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return figures_in(done.stdout)
