"""Sends at a steady rate: for consumers whose latency is measured, or to measure their own."""

from __future__ import annotations

import re
import select
import time
from statistics import quantiles

from benchmarks.frames import numbered_sends, send_frame
from benchmarks.load import OK, Client, Stopwatch
from benchmarks.plan import Outcome, Plan

_OPAQUE = re.compile(rb'"opaque":(\d+)')
_FIRST = 1_000_000_000
"""Opaques have ten digits each."""


def pace(plan: Plan) -> Outcome:
    """Send one message after the other, evenly in time; each body begins with the time in ns."""
    client = Client(plan.address)
    began = time.perf_counter()
    for number in range(plan.size):
        wait = began + number * plan.seconds / plan.size - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        body = time.time_ns().to_bytes(8).ljust(plan.body)
        client.sock.sendall(send_frame(plan.topic, number % plan.queues, body=body))
        client.pending += 1
        while client.pending:
            client.receive()
    client.sock.close()
    return Outcome(plan.size, plan.seconds)


def latency(plan: Plan) -> Outcome:
    """Send ``size`` messages a second, whether those before are answered or not.

    The figures are the median and the 99th percentile, in microseconds, of the time from a send's
    way into the socket to its answer, and the 99th percentile of how much later than it was due
    the generator sent. The first third, in which all warms up, does not count.
    """
    count = int(plan.size * plan.seconds * 1.5)
    templates = numbered_sends(plan.topic, plan.queues, b"x" * plan.body)
    frames = [templates[n % plan.queues].fill(_FIRST + n) for n in range(count)]
    return _Paced(plan, frames).run(count // 3)


class _Paced:
    """One connection on which each request is sent when it is due."""

    def __init__(self, plan: Plan, frames: list[bytes]) -> None:
        self._plan = plan
        self._frames = frames
        self._client = Client(plan.address)
        self._sent: list[float] = []
        self._late: list[float] = []
        self._took = [0.0] * len(frames)
        self._missing = len(frames)

    def run(self, warm_up: int) -> Outcome:
        """Send all, and wait for all answers."""
        rate, count, sent = self._plan.size, len(self._frames), self._sent
        watch = Stopwatch(self._plan.pids)
        began = time.perf_counter()
        while self._missing:
            now = time.perf_counter()
            due = min(count, int((now - began) * rate) + 1)
            if due > len(sent):
                self._send(now, began, due)
            wait = began + len(sent) / rate - time.perf_counter() if len(sent) < count else 60.0
            # Unlike epoll, select waits for less than a millisecond, too.
            if select.select([self._client.sock], [], [], max(0.0, wait))[0]:
                self._receive()
        self._client.sock.close()
        took, late = self._took[warm_up:], self._late[warm_up:]
        shares = quantiles(took, n=100)
        figures = [shares[49], shares[98], quantiles(late, n=100)[98]]
        return watch.outcome(count, [figure * 1e6 for figure in figures])

    def _send(self, now: float, began: float, due: int) -> None:
        """Send all up to number ``due``."""
        numbers = range(len(self._sent), due)
        self._late += [now - began - number / self._plan.size for number in numbers]
        self._sent += [now] * len(numbers)
        self._client.sock.sendall(b"".join(self._frames[numbers.start : due]))

    def _receive(self) -> None:
        answers = self._client.answers()
        now = time.perf_counter()
        for answer in answers:
            found = _OPAQUE.search(answer)
            if found is None or OK not in answer:
                raise RuntimeError(f"{self._plan.address} refuses a message: {answer!r}")
            number = int(found[1]) - _FIRST
            self._took[number] = now - self._sent[number]
        self._missing -= len(answers)
