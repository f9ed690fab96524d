"""Consumes a number of messages with our client and prints how fast, or how soon, that was.

    python -m benchmarks.consume rate|latency push|lite NAME_SERVER TOPIC GROUP COUNT

``rate`` prints messages a second, from the first to the last. ``latency`` prints the median and the
99th percentile, in microseconds, of the time from a send to the listener, or to the return of the
poll: bodies begin with the time they were sent (ns since the epoch); the first half, in which
everything warms up, does not count. The same work, measured in the same way, as
``java/Consume.java``.
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from orbitmq import LitePullConsumer, MessageView, PushConsumer


class Meter(ABC):
    """Sees every message, until there were as many as there should be."""

    def __init__(self, count: int) -> None:
        self.done = threading.Event()
        self.count = count
        self._lock = threading.Lock()

    @abstractmethod
    def __call__(self, messages: Sequence[MessageView]) -> None:
        """Take note of these messages."""

    @abstractmethod
    def figures(self) -> list[float]:
        """What was measured."""


class Rate(Meter):
    """Messages a second; touches each body."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._first = self._last = 0.0
        self._seen = 0

    def __call__(self, messages: Sequence[MessageView]) -> None:
        """Count these messages, and note when the first and the last came."""
        if not sum(len(message.body) for message in messages):
            return
        with self._lock:
            self._seen += len(messages)
            if self._seen == len(messages):
                self._first = time.perf_counter()
            if self._seen >= self.count and not self.done.is_set():
                self._last = time.perf_counter()
                self.done.set()

    def figures(self) -> list[float]:
        """Messages a second."""
        return [self.count / (self._last - self._first)]


class Latency(Meter):
    """The time from a send to here."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self._waits: list[int] = []

    def __call__(self, messages: Sequence[MessageView]) -> None:
        """Note how long ago these messages were sent."""
        now = time.time_ns()
        with self._lock:
            self._waits += [now - int.from_bytes(message.body[:8]) for message in messages]
            if len(self._waits) >= self.count:
                self.done.set()

    def figures(self) -> list[float]:
        """The median and the 99th percentile of the second half, in microseconds."""
        waits = sorted(self._waits[len(self._waits) // 2 :])
        return [waits[len(waits) * share // 100] / 1000 for share in (50, 99)]


def push(name_server: str, topic: str, group: str, meter: Meter) -> None:
    """Consume with a push consumer, 32 messages a call for the rate."""
    consumer = PushConsumer(
        group,
        name_server=name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        consume_batch_size=32 if isinstance(meter, Rate) else 1,
    )
    consumer.subscribe(topic)(meter)
    with consumer:
        meter.done.wait()


def lite(name_server: str, topic: str, group: str, meter: Meter) -> None:
    """Consume with a lite pull consumer, 32 messages a pull."""
    with LitePullConsumer(
        group,
        name_server=name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        pull_batch_size=32,
    ) as consumer:
        consumer.subscribe(topic)
        while not meter.done.is_set():
            if messages := consumer.poll(timeout=1.0):
                meter(messages)


if __name__ == "__main__":
    measure, mode, name_server, topic, group, count = sys.argv[1:]
    meter = {"rate": Rate, "latency": Latency}[measure](int(count))
    {"push": push, "lite": lite}[mode](name_server, topic, group, meter)
    print("@@", *meter.figures())
