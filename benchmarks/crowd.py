"""Many at once: connections that are open, and pulls that are held, while one is woken."""

from __future__ import annotations

import random
import selectors
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import cycle
from statistics import quantiles

from benchmarks.frames import max_offset_frame, send_frame
from benchmarks.load import Client, create_topic
from benchmarks.plan import Outcome, Plan
from benchmarks.processes import anonymous_memory
from benchmarks.pullers import Puller
from orbitmq import descriptors

SPARE_DESCRIPTORS = 256
"""What a process opens besides its connections."""
_AT_ONCE = 256
"""Connections that wait for their first answer: fewer than a listener's backlog."""
_SETTLED_SECONDS = 0.5
_WOKEN_QUEUES = 64


def check_descriptors(connections: int) -> None:
    """Raise OSError where a process may not open so many connections, even after asking."""
    if connections > descriptors.limit() - SPARE_DESCRIPTORS:
        descriptors.raise_limit()
    most = descriptors.limit() - SPARE_DESCRIPTORS
    if connections > most:
        raise OSError(
            f"{connections:,} connections are more than the {most:,} that this process may open: "
            "raise the limit by 'ulimit -n'"
        )


def connect(plan: Plan) -> Outcome:
    """Open ``connections``, each used once and left open.

    The figure is what the broker's memory grows by for each, in bytes.
    """
    check_descriptors(plan.connections)
    create_topic(plan.address, plan.topic)
    before = anonymous_memory(plan.pids)
    began = time.perf_counter()
    clients = _connected(plan)
    took = time.perf_counter() - began
    time.sleep(_SETTLED_SECONDS)
    grown = anonymous_memory(plan.pids) - before
    for client in clients:
        client.sock.close()
    return Outcome(plan.connections, took, figures=[grown / plan.connections])


def _connected(plan: Plan) -> list[Client]:
    """Connections to the broker, each of which had an answer."""
    frame = max_offset_frame(plan.topic)
    clients: list[Client] = []
    with selectors.DefaultSelector() as selector:
        for number in range(plan.connections):
            client = Client(plan.address)
            client.sock.sendall(frame)
            client.pending = 1
            clients.append(client)
            selector.register(client.sock, selectors.EVENT_READ, client)
            last = number + 1 == plan.connections
            while len(selector.get_map()) > (0 if last else _AT_ONCE):
                for key, _ in selector.select(60):
                    key.data.receive()
                    if not key.data.pending:
                        selector.unregister(key.fileobj)
    return clients


class HeldPulls:
    """``size`` pulls that are held, on ``connections`` with a topic each."""

    def __init__(self, plan: Plan) -> None:
        check_descriptors(plan.connections)
        each = max(1, plan.size // plan.connections)
        topics = [f"{plan.topic}-{number}" for number in range(plan.connections)]
        for topic in topics:
            create_topic(plan.address, topic, each)
        self.pullers = [Puller(plan.address, topic, range(each), 32) for topic in topics]
        before = anonymous_memory(plan.pids)
        for puller in self.pullers:
            puller.hold_all()
        time.sleep(_SETTLED_SECONDS)
        self.count = each * plan.connections
        self.grown = anonymous_memory(plan.pids) - before
        self._selector = selectors.DefaultSelector()
        for puller in self.pullers:
            self._selector.register(puller.sock, selectors.EVENT_READ, puller)
        self._each = each
        self._sender = Client(plan.address)

    def wake(self, puller: Puller, queue: int) -> float:
        """Seconds from a send to the answer of the pull that waits for it.

        Raises RuntimeError when another is answered.
        """
        frame = send_frame(puller.topic, queue)
        self._sender.pending = 1
        began = time.perf_counter()
        self._sender.sock.sendall(frame)
        while True:
            for key, _ in self._selector.select(60):
                came = {at: count for at, count in key.data.take().items() if count}
                if not came:
                    continue
                if key.data is not puller or came != {queue: 1}:
                    raise RuntimeError(f"{key.data.topic} got {came} of {puller.topic} {queue}")
                took = time.perf_counter() - began
                while self._sender.pending:
                    self._sender.receive()
                return took

    def some(self) -> list[tuple[Puller, int]]:
        """Held pulls in random places, always the same."""
        chosen = random.Random(1)
        return [
            (chosen.choice(self.pullers), chosen.randrange(self._each))
            for _ in range(_WOKEN_QUEUES)
        ]

    def close(self) -> None:
        """Hang up."""
        self._selector.close()
        for client in (self._sender, *self.pullers):
            client.sock.close()


def hold(plan: Plan) -> Outcome:
    """Hold pulls, and wake one after the other, while all others stay held.

    It warms up for twice as long as it measures. Figures: the median and the 99th percentile of the
    wake-up, in microseconds, and what the broker's memory grew by for each pull, in bytes.
    """
    with closing(HeldPulls(plan)) as held:
        some = cycle(held.some())
        _wake(held, some, 2 * plan.seconds)
        took = _wake(held, some, plan.seconds)
    shares = quantiles(took, n=100)
    figures = [shares[49] * 1e6, shares[98] * 1e6, held.grown / held.count]
    return Outcome(len(took), sum(took), figures=figures)


def _wake(held: HeldPulls, some: Iterator[tuple[Puller, int]], seconds: float) -> list[float]:
    """How long each took, two at least."""
    took: list[float] = []
    end = time.perf_counter() + seconds
    while len(took) < 2 or time.perf_counter() < end:
        took.append(held.wake(*next(some)))
    return took


def keep(plan: Plan) -> Outcome:
    """Hold pulls until standard input ends; one line says when they are held."""
    with closing(HeldPulls(plan)) as held:
        print("held", flush=True)
        sys.stdin.read()
    return Outcome(held.count, 0.0)
