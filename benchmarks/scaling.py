"""How the cost of a send and of a pull grows with what a broker has: our broker alone.

The cost is the broker's processor time a message, so that a busy machine counts little. What was
measured goes to ``build/scaling.json`` and into a plot for each subject.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.brokers import RunningBroker, fill, generate, orbitmq_broker, settle
from benchmarks.crowd import check_descriptors
from benchmarks.plan import Plan
from benchmarks.plots import line_plot, write
from benchmarks.results import Result

SUBJECTS: Mapping[str, Sequence[int]] = {
    "topics": (1, 10, 100, 1_000, 10_000),
    "queues": (1, 10, 100, 1_000, 10_000),
    "groups": (1, 10, 100, 1_000, 10_000),
    "held pulls": (1, 100, 1_000, 10_000, 100_000),
    "connections": (1, 8, 64, 500, 4_000),
    "stored messages": (10_000, 100_000, 1_000_000, 3_000_000),
}
"""What there is more and more of, and how many."""
PULL = 32
HOLDERS = 100
_MESSAGES = 40_000


def scaling_figures(
    seconds: float,
    rounds: int,
    pictures: Path,
    subjects: Mapping[str, Sequence[int]] = SUBJECTS,
    written: Path = Path("build/scaling.json"),
) -> Iterator[Result]:
    """Each subject on a broker of its own, in growing sizes."""
    found: dict[str, dict[int, tuple[float, float]]] = {}
    for name, sizes in subjects.items():
        costs = found[name] = {}
        with orbitmq_broker("async") as broker:
            for size in sizes:
                costs[size] = _costs(name, size, broker, seconds, rounds)
                for kind, cost in zip(("send", "pull 32"), costs[size], strict=True):
                    yield Result(f"{kind}, {size:,} {name}", "us CPU", cost)
        write(pictures / f"scaling-{name.replace(' ', '-')}.svg", _plot(name, costs))
    write(written, json.dumps(found, indent=1))


def _plot(name: str, costs: Mapping[int, tuple[float, float]]) -> str:
    lines = {
        kind: [(size, cost[index]) for size, cost in costs.items()]
        for index, kind in enumerate(("send", "pull of 32"))
    }
    return line_plot(f"Cost of a message by {name}", name, "us of CPU a message", lines)


def _costs(
    name: str, size: int, broker: RunningBroker, seconds: float, rounds: int
) -> tuple[float, float]:
    """Microseconds of the broker's processor time a message sent, and a message pulled."""
    shape = _shape(name, size)
    topic = f"bench-{name.rsplit(maxsplit=1)[-1]}-{size}"
    send = Plan("send", broker.address, topic, window=64, seconds=seconds, pids=broker.pids)
    send = msgspec.structs.replace(send, **shape)
    pull = msgspec.structs.replace(send, mode="pull", size=PULL, window=min(8, send.window))
    messages = size if name == "stored messages" else _MESSAGES
    pull.filled = max(messages, len(pull.targets()) * PULL)
    fill(broker, topic, pull.filled, topics=pull.topics, queues=pull.queues)
    with held_pulls(broker, size) if name == "held pulls" else nullcontext():
        sent, pulled = (median(_cost(plan, broker) for _ in range(rounds)) for plan in (send, pull))
    return sent, pulled


def _cost(plan: Plan, broker: RunningBroker) -> float:
    """Of one run, after the work that those before have put off."""
    settle([broker])
    return generate(plan).cpu


def _shape(name: str, size: int) -> dict[str, int]:
    """What of a Plan is another than usual."""
    if name == "topics":
        return {"topics": size, "queues": 1}
    if name == "queues":
        return {"queues": size}
    if name == "groups":  # they pull, and commit, in turn
        return {"groups": size}
    if name == "connections":
        check_descriptors(size)
        return {"connections": size, "window": 1}
    return {}


@contextmanager
def held_pulls(broker: RunningBroker, count: int) -> Iterator[None]:
    """So many pulls, of topics of their own, wait all the while."""
    plan = Plan("keep", broker.address, f"bench-waiting-{count}", count)
    plan.connections = min(HOLDERS, count)
    command = [sys.executable, "-m", "benchmarks.generator", msgspec.json.encode(plan).decode()]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert keeper.stdout is not None
        if keeper.stdout.readline() != b"held\n":
            raise RuntimeError(f"{count} pulls are not held: the generator ended")
        yield
    finally:
        keeper.communicate()  # the end of its input ends it
