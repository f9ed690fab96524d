"""What the churn tests share: a producer that sends while consumers come and go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from orbitmq import EmbeddedBroker, Message, MessageQueue, Producer
from orbitmq.testing.wait import wait_until

TOPIC = "orders"
QUEUES = 32
MOST_CONSUMERS = 8


class Feed:
    """Sends messages, whose keys and bodies are numbers, to all queues in turn."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.broker = broker
        self.sent = 0
        self.done = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        """Send until ``done``."""
        queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(QUEUES)]
        try:
            # However long the machine does something else, sending goes on.
            with Producer(
                "makers", name_server=self.broker.name_server, send_timeout_ms=60_000
            ) as producer:
                while not self.done.wait(0.001):
                    number = b"%d" % self.sent
                    message = Message(TOPIC, number, keys=number.decode())
                    producer.send(message, queue=queues[self.sent % QUEUES])
                    self.sent += 1
        except BaseException as error:
            self.failure = error
            raise


@contextmanager
def flowing() -> Iterator[Feed]:
    """A broker whose topic of 32 queues is being sent to."""
    with EmbeddedBroker(default_topic_queues=QUEUES) as broker:
        with Producer(
            "makers", name_server=broker.name_server, default_topic_queue_nums=QUEUES
        ) as producer:
            producer.send(Message(TOPIC, b"first", keys="first"))
        feed = Feed(broker)
        thread = threading.Thread(target=feed.run)
        thread.start()
        try:
            wait_until(lambda: feed.sent > QUEUES or feed.failure)
            yield feed
        finally:
            feed.done.set()
            thread.join()
        assert feed.failure is None
