"""What consumers do: messages a second, and how soon a message is with its listener.

Ours beside Apache's Java consumers, on our broker, over the same topics, in turn.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.brokers import RunningBroker, fill, generate
from benchmarks.plan import Plan
from benchmarks.results import Result, compare, figures_in
from tests.apache.jars import OPEN_MODULES, ApacheRelease

MODES = {"lite": "lite pull consumer", "push": "push consumer"}
FILLED = 400_000
RATE_AIM = 2.5
PACED = 8_000
PACE_SECONDS = 8.0


def consumer_figures(
    apache: ApacheRelease | None, broker: RunningBroker, rounds: int
) -> Iterator[Result]:
    """All of them."""
    programs = [[sys.executable, "-m", "benchmarks.consume"]]
    if apache:
        source = Path(__file__).with_name("java") / "Consume.java"
        programs.append([apache.java, *OPEN_MODULES, "-cp", apache.classpath(), str(source)])
    yield from rate_figures(programs, broker, rounds)
    yield from latency_figures(programs, broker, rounds)


def rate_figures(programs: list[list[str]], broker: RunningBroker, rounds: int) -> Iterator[Result]:
    """Messages a second of bodies of 100 bytes and of 1 KB, pulled by 32."""
    for size in (100, 1024):
        topic = f"bench-rate-{size}"
        fill(broker, topic, FILLED, size)
        for mode, name in MODES.items():
            figures = []
            for row in range(rounds):
                arguments = ["rate", mode, broker.name_server, topic]
                figures.append(
                    [
                        measured(program, [*arguments, f"rate-{size}-{mode}-{number}-{row}"])[0]
                        for number, program in enumerate(programs)
                    ]
                )
            yield compare(f"{name}, bodies of {size} B", "messages/s", figures, RATE_AIM)


def latency_figures(
    programs: list[list[str]], broker: RunningBroker, rounds: int
) -> Iterator[Result]:
    """From send to listener, or to the return of poll, at a thousand messages a second."""
    for mode, name in MODES.items():
        rows = [
            [
                latencies(program, broker, mode, f"{number}-{row}")
                for number, program in enumerate(programs)
            ]
            for row in range(rounds)
        ]
        for index, share in enumerate(("p50", "p99")):
            figures = [[both[index] for both in row] for row in rows]
            yield compare(f"{name}, send to listener, {share}", "us", figures, 1.0, less=True)


def latencies(
    program: list[str],
    broker: RunningBroker,
    mode: str,
    name: str,
    messages: int = PACED,
    seconds: float = PACE_SECONDS,
) -> list[float]:
    """The median and the 99th percentile, in microseconds."""
    topic = f"bench-latency-{mode}-{name}"
    fill(broker, topic, 0)
    plan = Plan("pace", broker.address, topic, messages, seconds=seconds)
    consumer = subprocess.Popen(
        [*program, "latency", mode, broker.name_server, topic, topic, str(messages)],
        stdout=subprocess.PIPE,
        text=True,
    )
    generate(plan)
    output, _ = consumer.communicate(timeout=60)
    return figures_in(output)


def measured(program: list[str], arguments: list[str]) -> list[float]:
    """What a consumer prints at its end."""
    done = subprocess.run(
        [*program, *arguments, str(FILLED)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=600,
    )
    return figures_in(done.stdout)
