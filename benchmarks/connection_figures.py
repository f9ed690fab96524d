"""What holding many costs a broker: connections that are open, and pulls that wait."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from benchmarks.brokers import Rival, RunningBroker, generate, side_by_side
from benchmarks.crowd import check_descriptors
from benchmarks.plan import Plan
from benchmarks.results import Result, compare

CONNECTIONS = 5_000
HELD = 10_000
HOLDERS = 100


def connection_figures(
    rivals: Sequence[Rival],
    seconds: float,
    rounds: int,
    connections: int = CONNECTIONS,
    held: int = HELD,
) -> Iterator[Result]:
    """Both; each broker is started anew for each round, so that all of its growth is seen."""
    try:
        check_descriptors(connections)
    except OSError as error:
        print(f"without the figures of connections: {error}", file=sys.stderr)
        return
    opened, woken = [], []
    for _ in range(rounds):
        with side_by_side(rivals, "async") as brokers:
            opened.append([_connected(broker, connections) for broker in brokers])
        with side_by_side(rivals, "async") as brokers:
            woken.append([_woken(broker, held, seconds) for broker in brokers])
    names = [("time to connect", "s"), ("memory each", "KB")]
    yield from _compare(f"{connections:,} connections", names, opened)
    names = [("wake-up p50", "us"), ("wake-up p99", "us"), ("memory each", "KB")]
    yield from _compare(f"{held:,} held pulls", names, woken)


def _connected(broker: RunningBroker, connections: int) -> list[float]:
    outcome = generate(
        Plan("connect", broker.address, "bench-crowd", connections=connections, pids=broker.pids)
    )
    return [outcome.seconds, outcome.figures[0] / 1000]


def _woken(broker: RunningBroker, held: int, seconds: float) -> list[float]:
    holders = min(HOLDERS, held)
    plan = Plan("hold", broker.address, "bench-held", held, holders, pids=broker.pids)
    plan.seconds = seconds
    half, most, memory = generate(plan).figures
    return [half, most, memory / 1000]


def _compare(
    of: str, names: list[tuple[str, str]], rounds: list[list[list[float]]]
) -> Iterator[Result]:
    for index, (name, unit) in enumerate(names):
        rows = [[side[index] for side in row] for row in rounds]
        yield compare(f"{of}, {name}", unit, rows, None, less=True)
