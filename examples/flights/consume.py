"""The demo's consumers: a group that shares the queues while its members change, and a push one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from examples.flights.data import TOPIC
from orbitmq import LitePullConsumer, MessageQueue, MessageView, PushConsumer

Progress = Callable[[int], None]


@dataclass
class Arrivals:
    """What one consumer got: its messages in the order of their arrival, and from which queues."""

    name: str
    rows: list[tuple[MessageQueue, int, int, str | None]] = field(default_factory=list)

    def add(self, message: MessageView) -> None:
        """Note one message: its queue, its offset there, the flight's number, the aeroplane."""
        key = message.keys
        self.rows.append(
            (message.message_queue, message.queue_offset, int(key or -1), message.sharding_key)
        )

    @property
    def queues(self) -> Counter[MessageQueue]:
        """Messages by queue."""
        return Counter(row[0] for row in self.rows)


class Reader(threading.Thread):
    """A lite pull consumer of the group, polling in a thread of its own until told to leave."""

    def __init__(self, name: str, name_server: str, on_rows: Progress) -> None:
        super().__init__(name=name, daemon=True)
        self.arrivals = Arrivals(name)
        self.error: BaseException | None = None
        self._name_server = name_server
        self._on_rows = on_rows
        self._leave = threading.Event()

    def run(self) -> None:
        """Poll, note what came, and commit on leaving."""
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
                    messages = consumer.poll(timeout=0.2)
                    for message in messages:
                        self.arrivals.add(message)
                    self._on_rows(len(messages))
        except BaseException as error:  # noqa: BLE001 - handed to the main thread, which raises it
            self.error = error

    def leave(self) -> None:
        """Close the consumer, which commits what was polled, and wait for it."""
        self._leave.set()
        self.join()
        if self.error is not None:
            raise self.error


class CarrierListener:
    """A push consumer that takes the flights of one carrier by tag, in the broker's filter."""

    def __init__(self, carrier: str, name_server: str, on_rows: Progress) -> None:
        self.arrivals = Arrivals(f"push, {carrier}")
        self._lock = threading.Lock()
        self._on_rows = on_rows
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
            for message in messages:
                self.arrivals.add(message)
        self._on_rows(len(messages))

    def start(self) -> None:
        """Begin to listen."""
        self._consumer.start()

    def stop(self) -> None:
        """Wait for running listeners and leave."""
        self._consumer.shutdown()
