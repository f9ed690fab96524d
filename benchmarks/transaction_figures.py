"""Transactions a second, and what a million open ones take, beside Apache's broker."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.brokers import RunningBroker, apache_broker, orbitmq_broker
from benchmarks.load import create_topic
from benchmarks.results import Result, compare, figures_in
from tests.apache.jars import ApacheRelease

TOPIC = "bench-transactions"
OPEN = 1_000_000
CHECKING_SECONDS = 60.0
"""For how long open ones are watched: longer than the 30 s between two looks at them."""


def transaction_figures(
    apache: ApacheRelease | None, seconds: float, rounds: int
) -> Iterator[Result]:
    """Both."""
    with ExitStack() as running:
        brokers = [running.enter_context(orbitmq_broker("async"))]
        if apache:
            brokers.append(running.enter_context(apache_broker(apache, "async")))
        for broker in brokers:
            create_topic(broker.address, TOPIC)
            _generate(broker, seconds)  # warms up
        rates = [[_generate(broker, seconds) for broker in brokers] for _ in range(rounds)]
        yield compare("transactions committed, 64 in flight", "/s", rates, None)
        memory = [[_memory_of_open(broker) for broker in brokers]]
        name = f"anonymous memory, {OPEN:,} open transactions"
        yield compare(name, "MB", memory, None, less=True)


def _generate(broker: RunningBroker, seconds: float, leave_open: int = 0) -> float:
    """Transactions a second."""
    command = [sys.executable, "-m", "benchmarks.transactions", broker.address, TOPIC]
    command += [str(seconds), *([str(leave_open)] if leave_open else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    transactions, took = figures_in(done.stdout)
    return transactions / took


def _memory_of_open(broker: RunningBroker) -> float:
    """The most it takes, in MB, while the broker looks at them again and again."""
    _generate(broker, 0.0, OPEN)
    most, end = 0, time.monotonic() + CHECKING_SECONDS
    while time.monotonic() < end:
        most = max(most, broker.anonymous_memory())
        time.sleep(0.1)
    return most / 1e6
