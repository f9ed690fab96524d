"""Measures OrbitMQ beside Apache RocketMQ and prints the figures as ratios.

    python -m benchmarks [--seconds S] [--rounds N]

Both brokers run in the same session and take turns, round by round, so that a machine whose speed
drifts does not favour one; the ratio of each round is taken and the median shown. Absolute figures
are for orientation only. The results also go to ``build/bench.json``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.brokers import RunningBroker, apache_broker, find_apache, orbitmq_broker
from benchmarks.generator import Outcome, Plan
from benchmarks.spark_rows import rows_a_second
from tests.apache.jars import OPEN_MODULES, ApacheRelease

FILLED = 400_000
SPARK_ROWS = 1_000_000


@dataclass
class Case:
    """One load, its shape, and the least ratio to Apache's broker that we aim at."""

    name: str
    mode: str
    size: int
    connections: int
    window: int
    aim: float


SENDS = {
    flush: [
        Case(f"send, one at a time, {flush} flush", "send", 0, 1, 1, aims[0]),
        Case(f"send, 64 in flight, {flush} flush", "send", 0, 1, 64, aims[1]),
        Case(f"send, 8 connections x 8, {flush} flush", "send", 0, 8, 8, aims[2]),
        Case(f"send, batches of 32, 16 in flight, {flush} flush", "send", 32, 1, 16, aims[3]),
    ]
    for flush, aims in {"async": (1.3, 1.5, 1.5, 1.0), "sync": (2.0, 2.0, 2.0, 1.0)}.items()
}
PULLS = [
    Case("pull 32, one at a time", "pull", 32, 1, 1, 1.5),
    Case("pull 32, 8 in flight", "pull", 32, 1, 8, 1.5),
    Case("pull 1000, 2 in flight", "pull", 1000, 1, 2, 1.5),
]


@dataclass
class Result:
    """A figure of ours, Apache's beside it where it ran, and the ratio (above 1 is better)."""

    name: str
    unit: str
    ours: float
    apache: float | None = None
    ratio: float | None = None
    aim: float | None = None


def run_case(case: Case, broker: RunningBroker, seconds: float) -> float:
    """Messages a second of one case on one broker."""
    outcome = generate(
        Plan(
            mode=case.mode,
            address=broker.address,
            topic=f"bench-{case.mode}",
            size=case.size,
            connections=case.connections,
            window=case.window,
            seconds=seconds,
            filled=FILLED,
        )
    )
    return outcome.messages / outcome.seconds


def fill(broker: RunningBroker, topic: str, messages: int) -> None:
    """A topic with so many messages."""
    generate(Plan("fill", broker.address, topic, messages))


def generate(plan: Plan) -> Outcome:
    """Run the load generator in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.generator", msgspec.json.encode(plan).decode()]
    output = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return msgspec.json.decode(output, type=Outcome)


@contextmanager
def pair(apache: ApacheRelease | None, flush: str) -> Iterator[list[RunningBroker]]:
    """Our broker, and Apache's beside it where it can run; topics made."""
    with ExitStack() as stack:
        brokers = [stack.enter_context(orbitmq_broker(flush))]
        if apache:
            brokers.append(stack.enter_context(apache_broker(apache, flush)))
        for broker in brokers:
            fill(broker, "bench-send", 0)
        yield brokers


def compare(
    name: str, unit: str, rounds: list[list[float]], aim: float | None, *, less: bool = False
) -> Result:
    """The medians of several rounds, ours first, and the median of the rounds' ratios."""
    ours = median(row[0] for row in rounds)
    if len(rounds[0]) == 1:
        return Result(name, unit, ours, aim=aim)
    ratio = median(row[1] / row[0] if less else row[0] / row[1] for row in rounds)
    return Result(name, unit, ours, median(row[1] for row in rounds), ratio, aim)


def broker_figures(
    apache: ApacheRelease | None, flush: str, seconds: float, rounds: int
) -> Iterator[Result]:
    """What is measured in one flush mode: sends in both, everything else in ``async``."""
    with pair(apache, flush) as brokers:
        if flush == "async":
            yield start_figure(brokers)
            yield memory_figure("memory, just started", brokers)
        yield from load_figures(SENDS[flush], brokers, seconds, rounds)
        if flush == "async":
            for broker in brokers:
                fill(broker, "bench-pull", FILLED)
            yield from load_figures(PULLS, brokers, seconds, rounds)
            yield memory_figure("memory, after the load", brokers)
            yield from consumer_figures(apache, brokers[0], rounds)
            yield from spark_figures(brokers[0])


def load_figures(
    cases: list[Case], brokers: list[RunningBroker], seconds: float, rounds: int
) -> Iterator[Result]:
    """The generator's figures for each case, after a round that does not count: Java warms up."""
    for case in cases:
        figures = [
            [run_case(case, broker, seconds) for broker in brokers] for _ in range(rounds + 1)
        ]
        yield compare(case.name, "messages/s", figures[1:], case.aim)


def start_figure(brokers: list[RunningBroker]) -> Result:
    """From the start of the processes to the first message sent and answered."""
    times = [broker.first_message_seconds for broker in brokers]
    return compare("start to first message (times sooner)", "s", [times], 10, less=True)


def memory_figure(name: str, brokers: list[RunningBroker]) -> Result:
    """Anonymous memory of all processes; the ratio says how many times less ours takes."""
    sizes = [broker.anonymous_memory() / 1e6 for broker in brokers]
    return compare(f"{name} (times less)", "MB", [sizes], 5, less=True)


def consumer_figures(
    apache: ApacheRelease | None, broker: RunningBroker, rounds: int
) -> Iterator[Result]:
    """Our consumers beside Apache's Java ones, on our broker, over the same filled topic."""
    programs = [[sys.executable, "-m", "benchmarks.consume_rate"]]
    if apache:
        source = Path(__file__).with_name("java") / "ConsumeRate.java"
        programs.append([apache.java, *OPEN_MODULES, "-cp", apache.classpath(), str(source)])
    for mode, name in (("lite", "lite pull consumer"), ("push", "push consumer, batches of 32")):
        figures = [
            [
                consume_rate(program, [mode, broker.name_server, "bench-pull", f"{mode}{n}-{row}"])
                for n, program in enumerate(programs)
            ]
            for row in range(rounds)
        ]
        yield compare(f"{name}, pulls of 32", "messages/s", figures, 1.0)


def consume_rate(program: list[str], arguments: list[str]) -> float:
    """Messages a second of a consumer; the last word it prints is the seconds it took."""
    done = subprocess.run(
        [*program, *arguments, str(FILLED)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return FILLED / float(done.stdout.split()[-1])


def spark_figures(broker: RunningBroker) -> Iterator[Result]:
    """Rows a second that a warm Spark reads, all columns."""
    fill(broker, "bench-spark", SPARK_ROWS)
    yield Result("Spark batch read, all columns", "rows/s", rows_a_second(broker.name_server))


def show(result: Result) -> None:
    """One line of the table."""
    apache = "" if result.apache is None else figure(result.apache)
    ratio = "" if result.ratio is None else f"{result.ratio:.2f}"
    aim = "" if result.aim is None else f"{result.aim:.1f}"
    print(
        f"{result.name:<50}{result.unit:<11}{figure(result.ours):>12}{apache:>12}{ratio:>8}{aim:>6}"
    )


def figure(value: float) -> str:
    """A figure, with decimals only where they tell something."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def main() -> None:
    """Measure everything and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3, help="of each comparison")
    arguments = parser.parse_args()
    apache = find_apache()
    print(f"{'':<50}{'':<11}{'OrbitMQ':>12}{'Apache':>12}{'ratio':>8}{'aim':>6}")
    results = []
    for flush in ("async", "sync"):
        for result in broker_figures(apache, flush, arguments.seconds, arguments.rounds):
            show(result)
            results.append(result)
    path = Path("build/bench.json")
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps([vars(result) for result in results], indent=1))


if __name__ == "__main__":
    main()
