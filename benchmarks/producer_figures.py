"""What producers do: messages a second, and what one takes of a processor.

Ours beside Apache's Java producer, on our broker, over the same topic, in turn.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.brokers import RunningBroker
from benchmarks.load import create_topic
from benchmarks.results import Result, compare, figures_in
from tests.apache.jars import OPEN_MODULES, ApacheRelease

TOPIC = "bench-producers"
MODES = (
    ("send_async, callbacks, 64 in flight", "callback", 64),
    ("send_async, callbacks, 1,024 in flight", "callback", 1024),
    ("send, 1 thread", "blocking", 1),
    ("send, 8 threads", "blocking", 8),
)
OUR_MODES = (
    ("send_async, futures, 64 in flight", "future", 64),
    ("asyncio, 64 in flight", "asyncio", 64),
)


def producer_figures(
    apache: ApacheRelease | None, broker: RunningBroker, seconds: float, rounds: int
) -> Iterator[Result]:
    """All of them."""
    create_topic(broker.address, TOPIC)
    ours = [sys.executable, "-m", "benchmarks.produce"]
    programs = [ours]
    if apache:
        source = Path(__file__).with_name("java") / "Produce.java"
        programs.append([apache.java, *OPEN_MODULES, "-cp", apache.classpath(), str(source)])
    for name, mode, width in MODES:
        arguments = [mode, broker.name_server, TOPIC, str(width), str(seconds)]
        yield _compared(name, programs, arguments, rounds)
    for name, mode, width in OUR_MODES:
        arguments = [mode, broker.name_server, TOPIC, str(width), str(seconds)]
        yield _compared(name, [ours], arguments, rounds)


def _compared(name: str, programs: list[list[str]], arguments: list[str], rounds: int) -> Result:
    """Messages a second, and beside them the processor time of the producers' own processes."""
    rows = [[_measured([*program, *arguments]) for program in programs] for _ in range(rounds)]
    result = compare(name, "messages/s", [[rate for rate, _ in row] for row in rows], 1.0)
    costs = [median(cost for _, cost in side) for side in zip(*rows, strict=True)]
    result.cpu, result.apache_cpu = [*costs, None][:2]
    return result


def _measured(command: list[str]) -> tuple[float, float]:
    """What a producer prints at its end: messages a second, microseconds of CPU time for each."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=120)
    rate, cost = figures_in(done.stdout)
    return rate, cost
