"""What the brokers do: sends and pulls a second, time to start, memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from benchmarks.brokers import RunningBroker, apache_broker, fill, generate, orbitmq_broker
from benchmarks.generator import Plan
from benchmarks.results import Result, compare
from tests.apache.jars import ApacheRelease

FILLED = 400_000


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
