"""OrbitMQ's side of an exchange with Apache's programs, under the same handles as Apache's side.

The broker runs as users run it, in a process of its own; the consumers keep their deliveries as
rows like those of java_clients.py, so that a test may compare the two, or not care which it has.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import zlib
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from orbitmq import LitePullConsumer, Message, PushConsumer
from orbitmq.testing.wait import wait_until
from tests.apache import remoting
from tests.apache.java_clients import Received, Sent, body_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq import MessageQueue, MessageView, SendResult

TAGS = ("TagA", "TagB", "TagC")
FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"


class OrbitCluster:
    """Our broker and name server on free ports, started by the command line; see ApacheCluster."""

    def __init__(self) -> None:
        self._topics = itertools.count()
        self._open = ExitStack()
        self._process: subprocess.Popen[str]

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            process = opened.enter_context(_broker_process())
            opened.callback(process.kill)
            ready = process.stdout.readline().split() if process.stdout else []
            assert ready[:1] == ["ready"], f"the broker did not start: {ready}"
            addresses = dict(word.split("=", 1) for word in ready[1:])
            self.name_server, self.address = addresses["name-server"], addresses["broker"]
            self._process = process
            self._open = opened.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        with self._open:
            self._process.send_signal(signal.SIGTERM)
            code = self._process.wait(30)
        assert code == 0, f"the broker ended with exit code {code}"

    def new_topic(self, name: str = "topic", queues: int = 8) -> str:
        """Creates a topic with a name of its own, beginning with `name`, and returns it."""
        topic = f"{name}-{next(self._topics)}"
        remoting.create_topic(self.name_server, self.address, topic, queues)
        return topic


def _broker_process() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "orbitmq.cli", "broker", "--port", "0", "--name-server-port", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )


class PythonConsumer(ABC):
    """What our consumers have in common: use PythonPushConsumer or PythonLitePullConsumer."""

    def __init__(self, topic: str) -> None:
        self.messages: list[Received] = []
        self.queues: set[int] = set()
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

    def wait_count(self, count: int, timeout: float = 60) -> None:
        """Waits for so many deliveries, repeated ones included."""
        wait_until(lambda: self.count >= count, f"{count} messages", timeout=timeout)

    def _share(self, topic: str, _all: list[MessageQueue], mine: list[MessageQueue]) -> None:
        if topic == self._topic:
            self.queues = {queue.queue_id for queue in mine}

    def _receive(self, messages: Sequence[MessageView]) -> None:
        self.messages.extend([received(message) for message in messages])


class PythonPushConsumer(PythonConsumer):
    """Our PushConsumer, from the first offset on; `fail_first` as JavaPushConsumer's."""

    def __init__(
        self, name_server: str, topic: str, group: str, *, fail_first: bool = False
    ) -> None:
        super().__init__(topic)
        self._fail_first = fail_first
        self._consumer = PushConsumer(
            group,
            self._listen,
            queue_listener=self._share,
            name_server=name_server,
            consume_from_where=FROM_FIRST,
        )
        self._consumer.subscribe(topic)

    def start(self) -> None:
        self._consumer.start()

    def stop(self) -> None:
        self._consumer.shutdown()

    def _listen(self, messages: Sequence[MessageView]) -> bool:
        self._receive(messages)
        return not self._fail_first or all(message.reconsume_times for message in messages)


class PythonLitePullConsumer(PythonConsumer):
    """Our LitePullConsumer, from the first offset on, polled by a thread of its own."""

    def __init__(self, name_server: str, topic: str, group: str) -> None:
        super().__init__(topic)
        self._consumer = LitePullConsumer(
            group,
            queue_listener=self._share,
            name_server=name_server,
            consume_from_where=FROM_FIRST,
        )
        self._consumer.subscribe(topic)
        self._stopped = threading.Event()
        self._poller = threading.Thread(target=self._poll, name=f"poll-{group}")

    def start(self) -> None:
        self._consumer.start()
        self._poller.start()

    def stop(self) -> None:
        self._stopped.set()
        self._poller.join()
        self._consumer.shutdown()

    def _poll(self) -> None:
        while not self._stopped.is_set():
            self._receive(self._consumer.poll(0.2))


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


def received(message: MessageView) -> Received:
    """One delivery, as the Java consumers print it."""
    return Received(
        message.keys or "",
        message.broker_name,
        message.queue_id,
        message.queue_offset,
        message.tags,
        message.reconsume_times,
        zlib.crc32(message.body),
    )
