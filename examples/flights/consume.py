"""The demo's consumers: a group that shares the queues while its members change, and a push one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from examples.flights.data import TOPIC
from orbitmq import LitePullConsumer, MessageQueue, MessageView, PushConsumer


class Progress(Protocol):
    """Where a consumer reports to: call it with the number of new rows, or say why it ended."""

    def __call__(self, rows: int) -> None:
        """So many new rows came."""

    def fail(self, error: BaseException) -> None:
        """No more will come."""


class Seen:
    """The flights that some consumer has got; a rebalance may bring one twice."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()
        self._lock = threading.Lock()

    def add(self, numbers: Iterable[int]) -> int:
        """Note these; returns how many of them are new."""
        with self._lock:
            before = len(self._numbers)
            self._numbers.update(numbers)
            return len(self._numbers) - before


@dataclass
class Arrivals:
    """What one consumer got: its messages in the order of their arrival, and from which queues."""

    name: str
    rows: list[tuple[MessageQueue, int, int, str | None]] = field(default_factory=list)

    def add(self, messages: Iterable[MessageView]) -> list[int]:
        """Note messages: queue, offset there, flight number, aeroplane. Returns the numbers."""
        rows = [
            (one.message_queue, one.queue_offset, int(one.keys or -1), one.sharding_key)
            for one in messages
        ]
        self.rows += rows
        return [row[2] for row in rows]

    @property
    def queues(self) -> Counter[MessageQueue]:
        """Messages by queue."""
        return Counter(row[0] for row in self.rows)


class Reader(threading.Thread):
    """A lite pull consumer of the group, polling in a thread of its own until told to leave."""

    def __init__(self, name: str, name_server: str, seen: Seen, progress: Progress) -> None:
        super().__init__(name=name, daemon=True)
        self.arrivals = Arrivals(name)
        self._name_server = name_server
        self._seen = seen
        self._progress = progress
        self._leave = threading.Event()

    def run(self) -> None:
        """Poll and note what came; leave with all of it committed."""
        try:
            with LitePullConsumer(
                "flight-readers",
                name_server=self._name_server,
                instance_name=self.name,
                consume_from_where="CONSUME_FROM_FIRST_OFFSET",
                pull_batch_size=256,
            ) as consumer:
                consumer.subscribe(TOPIC)
                while not self._leave.is_set():
                    numbers = self.arrivals.add(consumer.poll(timeout=0.2))
                    self._progress(self._seen.add(numbers))
                consumer.commit()  # the last poll's messages too: the work on them is done
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._progress.fail(error)

    def leave(self) -> None:
        """Have the consumer leave the group, and wait for it."""
        self._leave.set()
        self.join()


class CarrierListener:
    """A push consumer that takes the flights of one carrier by tag, in the broker's filter."""

    def __init__(self, carrier: str, name_server: str, progress: Progress) -> None:
        self.arrivals = Arrivals(f"push, {carrier}")
        self._lock = threading.Lock()
        self._seen = Seen()
        self._progress = progress
        self._consumer = PushConsumer(
            f"carrier-{carrier}",
            name_server=name_server,
            instance_name=f"push-{carrier}",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            consume_batch_size=32,
        )
        self._consumer.subscribe(TOPIC, carrier)(self._on_messages)

    def _on_messages(self, messages: list[MessageView]) -> None:
        with self._lock:
            numbers = self.arrivals.add(messages)
        self._progress(self._seen.add(numbers))

    def start(self) -> None:
        """Begin to listen."""
        self._consumer.start()

    def stop(self) -> None:
        """Wait for running listeners and leave."""
        self._consumer.shutdown()
