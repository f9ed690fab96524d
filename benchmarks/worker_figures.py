"""``orbitmq broker --workers``: what several brokers in processes of their own take and give."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from statistics import median

from benchmarks.brokers import generate
from benchmarks.plan import Plan
from benchmarks.results import Result

WORKERS = (1, 2, 4)
CONNECTIONS = 8
WINDOW = 8
PULL = 32
FILLED = 400_000


@contextmanager
def running_workers(count: int) -> Iterator[list[str]]:
    """So many workers on free ports, in a temporary store; the addresses of their brokers."""
    command = [sys.executable, "-m", "orbitmq.cli", "broker", "--workers", str(count)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--name-server-port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        yield words["broker"].split(";")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def load(mode: str, addresses: list[str], seconds: float = 0.0) -> float:
    """Messages a second that all brokers together take or give.

    A load generator for each broker, all at once, which share the connections and what was filled.
    """

    def share(address: str) -> float:
        brokers = len(addresses)
        outcome = generate(
            Plan(
                mode=mode,
                address=address,
                topic="bench-send" if mode == "send" else "bench-pull",
                size={"fill": FILLED // brokers, "pull": PULL, "send": 0}[mode],
                connections=CONNECTIONS // brokers,
                window=WINDOW if mode == "send" else 1,
                seconds=seconds,
                filled=FILLED // brokers,
            )
        )
        return outcome.messages / outcome.seconds if outcome.seconds else 0.0

    with ThreadPoolExecutor(len(addresses)) as generators:
        return sum(generators.map(share, addresses))


def worker_figures(seconds: float, rounds: int) -> Iterator[Result]:
    """Sends and pulls of eight connections with 1, 2 and 4 workers, in turn, round by round.

    The load generators need cores, too: with few of them the figures say what is left for workers.
    """
    with ExitStack() as stack:
        clusters = [stack.enter_context(running_workers(count)) for count in WORKERS]
        for addresses in clusters:
            load("fill", addresses)
        cores = len(os.sched_getaffinity(0))
        for mode, name in (("send", f"send, 8 x {WINDOW}"), ("pull", f"pull {PULL}, 8 x 1")):
            figures = [
                [load(mode, addresses, seconds) for addresses in clusters] for _ in range(rounds)
            ]
            for number, count in enumerate(WORKERS):
                rate = median(row[number] for row in figures)
                yield Result(f"{name}, {count} workers, {cores} cores", "messages/s", rate)
