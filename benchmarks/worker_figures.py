"""``orbitmq broker --workers``: what several brokers in processes of their own take and give."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.brokers import generate
from benchmarks.plan import Outcome, Plan
from benchmarks.results import Result

WORKERS = (1, 2, 4)
CONNECTIONS = 8
WINDOW = 8
PULL = 32
FILLED = 400_000


class Cluster(NamedTuple):
    """Workers that serve: the addresses of their brokers, and their processes."""

    addresses: list[str]
    pids: list[int]


@contextmanager
def running_workers(count: int) -> Iterator[Cluster]:
    """So many workers on free ports, in a temporary store."""
    command = [sys.executable, "-m", "orbitmq.cli", "broker", "--workers", str(count)]
    process = subprocess.Popen(
        [*command, "--port", "0", "--name-server-port", "0"], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        words = dict(word.partition("=")[::2] for word in process.stdout.readline().split()[1:])
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        yield Cluster(words["broker"].split(";"), [int(pid) for pid in children.split()])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        process.stdout.close()


def load(mode: str, cluster: Cluster, seconds: float = 0.0) -> tuple[float, float]:
    """Messages a second of all brokers together, and their processors' microseconds a message.

    A load generator for each broker, all at once, which share the connections and what was filled.
    """
    brokers = len(cluster.addresses)

    def share(address: str) -> Outcome:
        plan = Plan(
            mode=mode,
            address=address,
            topic="bench-send" if mode == "send" else "bench-pull",
            size={"fill": FILLED // brokers, "pull": PULL, "send": 0}[mode],
            connections=CONNECTIONS // brokers,
            window=WINDOW if mode == "send" else 1,
            seconds=seconds,
            filled=FILLED // brokers,
            pids=cluster.pids,
        )
        return generate(plan)

    with ThreadPoolExecutor(brokers) as generators:
        shares = list(generators.map(share, cluster.addresses))
    messages = sum(outcome.messages for outcome in shares)
    cpu = median(outcome.cpu_seconds for outcome in shares) * 1e6 / max(messages, 1)
    return sum(outcome.rate for outcome in shares if outcome.seconds), cpu


def worker_figures(seconds: float, rounds: int) -> Iterator[Result]:
    """Sends and pulls of eight connections with 1, 2 and 4 workers, in turn, round by round.

    The load generators need cores, too: with few of them the figures say what is left for workers,
    and the processor time a message says what more cores would bring.
    """
    with ExitStack() as stack:
        clusters = [stack.enter_context(running_workers(count)) for count in WORKERS]
        for cluster in clusters:
            load("fill", cluster)
        cores = len(os.sched_getaffinity(0))
        for mode, name in (("send", f"send, 8 x {WINDOW}"), ("pull", f"pull {PULL}, 8 x 1")):
            figures = [
                [load(mode, cluster, seconds) for cluster in clusters] for _ in range(rounds)
            ]
            for number, count in enumerate(WORKERS):
                rate, cpu = (median(row[number][i] for row in figures) for i in range(2))
                yield Result(f"{name}, {count} workers, {cores} cores", "messages/s", rate, cpu=cpu)
