"""What the brokers do: sends and pulls a second, time to start, memory, latency of a send."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from benchmarks.brokers import Rival, RunningBroker, fill, generate, in_turn, side_by_side
from benchmarks.plan import Outcome, Plan
from benchmarks.results import Result, compare, compare_outcomes

KIB = 1 << 10
FILLED = {100: 400_000, KIB: 100_000, 64 * KIB: 8_192}
"""How many messages of which size there are to be pulled."""
LATENCY_RATE = 10_000
WARM_UP_TOPIC = "bench-warm-up"
_WARM_UP = 5
"""How many times as long as a measurement."""


class Case(msgspec.Struct):
    """One load, its shape as a Plan says, and the least ratio to Apache's that we aim at."""

    name: str
    mode: str
    aim: float | None = None
    size: int = 0
    connections: int = 1
    window: int = 1
    body: int = 100
    most: int = 0


SENDS = [
    Case("send, one at a time", "send", 2),
    Case("send, 64 in flight", "send", 2, window=64),
    Case("send, 8 connections x 8", "send", 2, connections=8, window=8),
    Case("send, 500 connections x 1", "send", connections=500),
    Case("send, batches of 32, 16 in flight", "send", 1, size=32, window=16),
    Case("send, 1 KB, 64 in flight", "send", window=64, body=KIB),
    Case("send, 64 KB, 16 in flight", "send", window=16, body=64 * KIB, most=4_000),
]
PULLS = [
    Case("pull 32, one at a time", "pull", 1.5, size=32),
    Case("pull 32, 8 in flight", "pull", 1.5, size=32, window=8),
    Case("pull 1000, 2 in flight", "pull", 1.5, size=1000, window=2),
    Case("pull 32 of 1 KB, 8 in flight", "pull", size=32, window=8, body=KIB),
    Case("pull 32 of 64 KB, 2 in flight", "pull", size=32, window=2, body=64 * KIB),
]
MIXED = Case("send 64 in flight and pull, 100 consumers", "mixed", connections=100, window=64)
SYNC_AIM = 2.0


def run_case(case: Case, seconds: float, broker: RunningBroker) -> Outcome:
    """One case on one broker."""
    return generate(
        Plan(
            mode=case.mode,
            address=broker.address,
            topic=_topic(case.mode, case.body),
            size=case.size,
            connections=case.connections,
            window=case.window,
            seconds=seconds,
            filled=FILLED[case.body],
            body=case.body,
            most=case.most,
            pids=broker.pids,
        )
    )


def send_figures(
    rivals: Sequence[Rival], flush: str, seconds: float, rounds: int
) -> Iterator[Result]:
    """Sends in one flush mode; with ``async`` also the start and the memory."""
    with side_by_side(rivals, flush) as brokers:
        if flush == "async":
            yield start_figure(brokers)
            yield memory_figure("memory, just started", brokers)
        for broker in brokers:
            for body in FILLED:
                fill(broker, _topic("send", body), 0)
        warm_up(brokers, _WARM_UP * seconds)
        yield from load_figures(SENDS, brokers, seconds, rounds, sync=flush == "sync")
        if flush == "async":
            yield memory_figure("memory, after the sends", brokers)


def pull_figures(rivals: Sequence[Rival], seconds: float, rounds: int) -> Iterator[Result]:
    """Pulls of what is there."""
    with side_by_side(rivals, "async") as brokers:
        for broker in brokers:
            for body, count in FILLED.items():
                fill(broker, _topic("pull", body), count, body)
        yield from load_figures(PULLS, brokers, seconds, rounds)
        yield memory_figure("memory, after the pulls", brokers)


def warm_up(brokers: list[RunningBroker], seconds: float) -> None:
    """Load each broker for a while, so that Java has compiled what it runs."""
    for broker in brokers:
        fill(broker, WARM_UP_TOPIC, 0)
        generate(Plan("send", broker.address, WARM_UP_TOPIC, window=64, seconds=seconds))


def mixed_figures(rivals: Sequence[Rival], seconds: float, rounds: int) -> Iterator[Result]:
    """Sends, and consumers that wait for them."""
    with side_by_side(rivals, "async") as brokers:
        warm_up(brokers, _WARM_UP * seconds)
        yield from load_figures([MIXED], brokers, seconds, rounds)


def load_figures(
    cases: list[Case],
    brokers: list[RunningBroker],
    seconds: float,
    rounds: int,
    *,
    sync: bool = False,
) -> Iterator[Result]:
    """The generator's figures for each case."""
    for case in cases:
        outcomes = in_turn(rounds, brokers, partial(run_case, case, seconds))
        name, aim = (f"{case.name}, sync flush", SYNC_AIM) if sync else (case.name, case.aim)
        yield compare_outcomes(name, outcomes, aim)


def latency_figures(rivals: Sequence[Rival], seconds: float, rounds: int) -> Iterator[Result]:
    """How soon a send is answered, at a steady rate."""
    with side_by_side(rivals, "async") as brokers:
        warm_up(brokers, seconds)
        for broker in brokers:
            fill(broker, "bench-latency", 0)

        def measure(broker: RunningBroker) -> Outcome:
            return generate(
                Plan(
                    "latency",
                    broker.address,
                    "bench-latency",
                    LATENCY_RATE,
                    seconds=seconds,
                    pids=broker.pids,
                )
            )

        outcomes = in_turn(rounds, brokers, measure)
        names = ("p50", "p99", "the generator's own lateness, p99")
        for index, (name, aim) in enumerate(zip(names, (None, 2.0, None), strict=True)):
            rows = [[outcome.figures[index] for outcome in row] for row in outcomes]
            title = f"send at {LATENCY_RATE:,}/s, {name}"
            yield compare(title, "us", rows, aim, less=True)


def start_figure(brokers: list[RunningBroker]) -> Result:
    """From the start of the processes to the first message sent and answered."""
    times = [broker.first_message_seconds for broker in brokers]
    return compare("start to first message (times sooner)", "s", [times], 10, less=True)


def memory_figure(name: str, brokers: list[RunningBroker]) -> Result:
    """Anonymous memory of all processes; the ratio says how many times less ours takes."""
    sizes = [broker.anonymous_memory() / 1e6 for broker in brokers]
    return compare(f"{name} (times less)", "MB", [sizes], 5, less=True)


def _topic(mode: str, body: int) -> str:
    return f"bench-{mode}-{body}"
