"""Consumes a number of messages with our client and prints how long that took, in seconds.

    python -m benchmarks.consume_rate push|lite NAME_SERVER TOPIC GROUP COUNT

The same work, measured in the same way, as ``java/ConsumeRate.java``.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence

from orbitmq import LitePullConsumer, MessageView, PushConsumer


class Counter:
    """Counts messages, touching each body, and notes when the first and the last came."""

    def __init__(self, count: int) -> None:
        self.done = threading.Event()
        self.first = self.last = 0.0
        self._count = count
        self._seen = 0
        self._lock = threading.Lock()

    def __call__(self, messages: Sequence[MessageView]) -> None:
        """Count these messages."""
        if not sum(len(message.body) for message in messages):
            return
        with self._lock:
            self._seen += len(messages)
            if self._seen == len(messages):
                self.first = time.perf_counter()
            if self._seen >= self._count and not self.done.is_set():
                self.last = time.perf_counter()
                self.done.set()


def push(name_server: str, topic: str, group: str, counter: Counter) -> None:
    """Consume with a push consumer, 32 messages a call."""
    consumer = PushConsumer(
        group,
        name_server=name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        consume_batch_size=32,
    )
    consumer.subscribe(topic)(counter)
    with consumer:
        counter.done.wait()


def lite(name_server: str, topic: str, group: str, counter: Counter) -> None:
    """Consume with a lite pull consumer, 32 messages a pull."""
    with LitePullConsumer(
        group,
        name_server=name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        pull_batch_size=32,
    ) as consumer:
        consumer.subscribe(topic)
        while not counter.done.is_set():
            counter(consumer.poll(timeout=1.0))


if __name__ == "__main__":
    mode, name_server, topic, group, count = sys.argv[1:]
    counter = Counter(int(count))
    {"push": push, "lite": lite}[mode](name_server, topic, group, counter)
    print(counter.last - counter.first)
