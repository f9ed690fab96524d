"""Where a broker's time goes: a flame graph of each load, and a table by module.

Our broker runs with a sampler in it (:mod:`benchmarks.sampled_broker`), under the load of a
generator. The pictures are SVG, the figures microseconds of processor time a message.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.brokers import RunningBroker, fill, generate, orbitmq_broker
from benchmarks.flame_svg import Stack, flame_graph
from benchmarks.machine import describe
from benchmarks.plan import Outcome, Plan
from benchmarks.plots import write
from benchmarks.results import Result
from benchmarks.sampled_broker import OUTSIDE

LOADS: Mapping[str, tuple[str, str, int, int, int]] = {
    "sends": ("send, 64 in flight", "send", 0, 1, 64),
    "batches": ("send, batches of 32, 16 in flight", "send", 32, 1, 16),
    "connections": ("send, 8 connections x 8", "send", 0, 8, 8),
    "pulls": ("pull 32, 8 in flight", "pull", 32, 1, 8),
    "mixed": ("send 64 in flight, 100 consumers that wait", "mixed", 0, 100, 64),
}
"""The name of the picture: what is done, a Plan's mode, size, connections and window."""
FILLED = 400_000
LONGER = 10
"""A sampler sees little in a second."""
THREAD, ALL_THREADS = "the broker's thread", "all threads"
_BEGIN, _END = "<!-- begin: flames -->\n", "<!-- end: flames -->\n"
_LEAST_SHARE = 0.01
_PATIENCE_SECONDS = 300.0


def flame_figures(
    seconds: float,
    pictures: Path,
    filled: int = FILLED,
    loads: Mapping[str, tuple[str, str, int, int, int]] = LOADS,
    page: Path = Path("docs/performance.md"),
) -> Iterator[Result]:
    """A picture of each load, and what each module's own code takes of a message's time.

    The same goes into ``page`` as a table, if that is beside the pictures.
    """
    costs: dict[str, dict[str, float]] = {}
    with sampled_broker() as (broker, take_stacks):
        for name, (title, mode, size, connections, window) in loads.items():
            topic = f"bench-{name}"
            fill(broker, topic, filled if mode == "pull" else 0)
            plan = Plan(mode, broker.address, topic, size, connections, window, filled=filled)
            plan.pids = broker.pids
            plan.seconds = seconds
            generate(plan)  # warms up
            plan.seconds = seconds * LONGER
            take_stacks()
            outcome = generate(plan)
            stacks = take_stacks()
            picture = flame_graph(f"{title}: the broker's thread", stacks)
            write(pictures / f"flame-{name}.svg", picture)
            costs[title] = by_module(stacks, outcome)
            for module, cost in costs[title].items():
                yield Result(f"{title}: {module}", "us CPU", cost)
    if page.is_file() and pictures.resolve().is_relative_to(page.resolve().parent):
        page.write_text(with_table(page.read_text(), table(costs)))


def by_module(stacks: Mapping[Stack, float], outcome: Outcome) -> dict[str, float]:
    """What the modules take, in microseconds a message, most first; all threads at the end."""
    own: Counter[str] = Counter()
    for stack, nanoseconds in stacks.items():
        own[_file(stack[-1])] += int(nanoseconds)
    messages = max(1.0, outcome.messages + outcome.figures[0])
    whole = own.total()
    costs = {
        module: nanoseconds / 1000 / messages
        for module, nanoseconds in own.most_common()
        if nanoseconds > whole * _LEAST_SHARE
    }
    return costs | {THREAD: whole / 1000 / messages, ALL_THREADS: outcome.cpu}


def table(costs: Mapping[str, Mapping[str, float]]) -> str:
    """The modules of all loads, in Markdown: those first that take most in one of them."""
    most: dict[str, float] = {}
    for load in costs.values():
        for module, cost in load.items():
            most[module] = max(most.get(module, 0.0), cost / load[THREAD])
    sums = [THREAD, ALL_THREADS]
    modules = sorted(most.keys() - sums, key=lambda module: -most[module]) + sums
    rows = [["us a message", *costs], ["---"] * (len(costs) + 1)]
    for module in modules:
        shown = (load.get(module) for load in costs.values())
        cells = ["" if cost is None else f"{cost:.2f}" for cost in shown]
        rows.append([f"`{module}`" if module.endswith(".py") else module, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def with_table(text: str, new: str) -> str:
    """A page with another table between its two marks."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    if not after:
        raise ValueError(f"the page has no place for a table: put {_BEGIN}{_END}into it")
    measured_on = ", ".join(f"{name}: {value}" for name, value in describe().items())
    return f"{before}{_BEGIN}\n{new}\n{measured_on}.\n{_END}{after}"


def _file(name: str) -> str:
    """The file that a function is in, below the package; the loop as it is."""
    module, _, function = name.partition(":")
    return function if name == OUTSIDE else f"{module.replace('.', '/')}.py"


class _Stacks:
    """What the sampler in a broker has seen since it was last asked."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.pid = 0

    def __call__(self) -> dict[Stack, float]:
        """Take them; the sampler begins anew."""
        os.kill(self.pid, signal.SIGUSR2)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not self.file.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the sampler in process {self.pid} does not answer")
            time.sleep(0.01)
        text = self.file.read_text()
        self.file.unlink()
        return dict(map(_stack, text.splitlines()))


def _stack(line: str) -> tuple[Stack, float]:
    names, _, weight = line.rpartition(" ")
    return tuple(names.split(";")), float(weight)


@contextmanager
def sampled_broker() -> Iterator[tuple[RunningBroker, _Stacks]]:
    """A broker with a sampler in it, and what takes the stacks it has seen."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-flames-") as directory:
        stacks = _Stacks(Path(directory, "stacks"))
        program = ("benchmarks.sampled_broker", str(stacks.file))
        with orbitmq_broker("async", program=program) as broker:
            (stacks.pid,) = broker.pids
            yield broker, stacks
