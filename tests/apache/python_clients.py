"""Our clients as java_clients.py has Java's, so that a test need not care which it has.

The consumers keep their deliveries as rows that can be compared with those of the Java programs.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from orbitmq import LitePullConsumer, Message, Producer, PushConsumer
from tests.apache.java_clients import Sent, body_of
from tests.consumer_program import FROM_FIRST, Queue, Received, received
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq import MessageQueue, MessageView, SendResult
    from orbitmq.filters.subscription import Expression

TAGS = ("TagA", "TagB", "TagC")
PATIENT: dict[str, Any] = {"api_timeout_ms": 60_000, "connect_timeout_ms": 60_000}
"""For clients whose brokers may have to wait for the processor, as java/Connected.java has it."""


def new_producer(group: str, name_server: str, **settings: Any) -> Producer:
    """Our producer, with patience."""
    return Producer(
        group, name_server=name_server, **{**PATIENT, "send_timeout_ms": 60_000, **settings}
    )


class PythonConsumer(ABC):
    """What our consumers have in common: use PythonPushConsumer or PythonLitePullConsumer."""

    def __init__(self, topic: str) -> None:
        self.messages: list[Received] = []
        self.queues: set[Queue] = set()
        self._topic = topic

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None:
        """Starts to consume."""

    @abstractmethod
    def stop(self) -> None:
        """Leaves the group; does nothing the second time."""

    @property
    def count(self) -> int:
        """How many deliveries there were so far."""
        return len(self.messages)

    def wait_count(self, count: int) -> None:
        """Waits for so many deliveries, repeated ones included."""
        eventually(lambda: self.count >= count, f"{count} messages", lambda: self.count)

    @abstractmethod
    def check_running(self) -> None:
        """Fails when it ended though nobody asked it to."""

    def _share(self, topic: str, _all: list[MessageQueue], mine: list[MessageQueue]) -> None:
        if topic == self._topic:
            self.queues = {(queue.broker_name, queue.queue_id) for queue in mine}

    def _receive(self, messages: Sequence[MessageView]) -> None:
        self.messages.extend([received(message) for message in messages])


class PythonPushConsumer(PythonConsumer):
    """Our PushConsumer, from the first offset on; `fail_first` as JavaPushConsumer's."""

    def __init__(
        self,
        name_server: str,
        topic: str,
        group: str,
        expression: Expression = "*",
        *,
        fail_first: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(topic)
        self._fail_first = fail_first
        self.consumer = PushConsumer(
            group,
            self._listen,
            queue_listener=self._share,
            name_server=name_server,
            consume_from_where=FROM_FIRST,
            **{**PATIENT, **settings},
        )
        self.consumer.subscribe(topic, expression)

    def start(self) -> None:
        self.consumer.start()

    def stop(self) -> None:
        self.consumer.shutdown()

    def check_running(self) -> None:
        """Nothing to check: its threads see to themselves."""

    def _listen(self, messages: Sequence[MessageView]) -> bool:
        self._receive(messages)
        return not self._fail_first or all(message.reconsume_times for message in messages)


class PythonLitePullConsumer(PythonConsumer):
    """Our LitePullConsumer, from the first offset on, polled by a thread of its own."""

    def __init__(
        self,
        name_server: str,
        topic: str,
        group: str,
        expression: Expression = "*",
        **settings: Any,
    ) -> None:
        super().__init__(topic)
        self.consumer = LitePullConsumer(
            group,
            queue_listener=self._share,
            name_server=name_server,
            consume_from_where=FROM_FIRST,
            **{**PATIENT, **settings},
        )
        self.consumer.subscribe(topic, expression)
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name=f"poll-{group}")

    def start(self) -> None:
        self.consumer.start()
        self._poller.start()

    def stop(self) -> None:
        self._stopped.set()
        self._poller.join()
        if self.consumer.is_running:
            self.consumer.commit()
        self.consumer.shutdown()

    def check_running(self) -> None:
        if self._poller.ident is not None and not self._stopped.is_set():
            assert self._poller.is_alive(), "polling ended by itself"

    def _poll(self) -> None:
        while not self._stopped.is_set():
            self._receive(self.consumer.poll(0.2))


def numbered(topic: str, number: int) -> Message:
    """The message with this number: its key, tag and body as java/Producer.java makes them."""
    key = f"k{number}"
    return Message(topic, body_of(key), tags=TAGS[number % len(TAGS)], keys=key)


def sent(keys: Sequence[str], result: SendResult) -> list[Sent]:
    """Where the messages of one send went: one, or a batch, which lies in one piece."""
    queue = result.message_queue
    first = result.queue_offset
    return [
        Sent(key, queue.broker_name, queue.queue_id, first + place)
        for place, key in enumerate(keys)
    ]
