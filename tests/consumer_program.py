"""Our consumers as programs of their own, for tests that kill them.

They print marks (marked_program.py) as the Java programs in tests/apache/java do, so that a test
need not care in which language a consumer of its group is written.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from orbitmq import LitePullConsumer, PushConsumer
from tests.marked_program import Mark, MarkedProgram
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq import MessageQueue, MessageView

Queue: TypeAlias = tuple[str, int]
"""A queue of a topic: its broker's name and its id."""

ROOT = Path(__file__).parents[1]
FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"

_printing = threading.Lock()


class Received(NamedTuple):
    """One delivery of a message to a consumer; `crc` is crc32 of its body."""

    key: str
    broker: str
    queue: int
    offset: int
    tag: str | None
    reconsume_times: int
    crc: int


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


class ConsumerMarks(MarkedProgram):
    """What a consumer in a program of its own tells of itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.queues: set[Queue] = set()
        """The queues it has of its topic, once it shares them with its group."""
        self.count = 0
        """How many deliveries there were so far, also where they are only counted."""
        self._messages: list[Received] = []

    @property
    def client_id(self) -> str:
        """What the brokers know it by; empty until it has started."""
        ready = self.values("ready")
        return str(ready[0]["clientId"]) if ready else ""

    @property
    def messages(self) -> list[Received]:
        """All deliveries so far, in the order in which they came."""
        return list(self._messages)

    def note(self, mark: Mark) -> None:
        """Counts and keeps deliveries."""
        super().note(mark)
        match mark.kind:
            case "messages":
                self._messages += [Received(*row) for row in mark.value]
                self.count = len(self._messages)
            case "count":
                self.count = mark.value
            case "queues":
                self.queues = {(broker, queue) for broker, queue in mark.value}

    def wait_ready(self, timeout: float = PATIENCE_SECONDS) -> str:
        """Waits until the consumer has started; its client id."""
        self.wait_for("ready", timeout)
        return self.client_id

    def wait_count(self, count: int, timeout: float = PATIENCE_SECONDS) -> None:
        """Waits for so many deliveries, repeated ones included."""
        self.wait_until(lambda: self.count >= count, f"{count} messages", timeout)


class ConsumerProgram(ConsumerMarks):
    """One of our consumers in a process of its own, from the first offset on.

    `mode` is concurrent, orderly or lite-pull. A delivery is printed before it counts as consumed.
    """

    def __init__(self, name_server: str, topic: str, group: str, mode: str) -> None:
        self._client_id = f"127.0.0.1@{uuid.uuid4()}"
        arguments = [name_server, topic, group, mode, self._client_id]
        command = [sys.executable, "-m", "tests.consumer_program", *arguments]
        super().__init__(f"consumer-{mode}", command, ROOT)

    @property
    def client_id(self) -> str:
        """What the brokers know it by."""
        return self._client_id


class LogLines(logging.Handler):
    """Prints what the client logs, between the marks."""

    def emit(self, record: logging.LogRecord) -> None:
        """Prints a line or more."""
        _print_line(self.format(record))


def main(name_server: str, topic: str, group: str, mode: str, client_id: str) -> None:
    """Consumes until stdin says `stop` or closes."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", handlers=[LogLines()]
    )
    client_ip, _, instance_name = client_id.partition("@")
    stopped = threading.Event()
    threading.Thread(target=_read_stdin, args=(stopped,), daemon=True).start()

    def share(changed: str, _all: list[MessageQueue], mine: list[MessageQueue]) -> None:
        if changed == topic:
            _mark("queues", sorted((queue.broker_name, queue.queue_id) for queue in mine))

    if mode == "lite-pull":
        with LitePullConsumer(
            group,
            queue_listener=share,
            name_server=name_server,
            client_ip=client_ip,
            instance_name=instance_name,
            consume_from_where=FROM_FIRST,
        ) as lite_pull:
            lite_pull.subscribe(topic)
            _mark("ready", {"clientId": client_id})
            while not stopped.is_set():
                _print(lite_pull.poll(0.05))
            lite_pull.commit()
    else:
        push = PushConsumer(
            group,
            _print,
            queue_listener=share,
            name_server=name_server,
            client_ip=client_ip,
            instance_name=instance_name,
            consume_from_where=FROM_FIRST,
            orderly=mode == "orderly",
        )
        push.subscribe(topic)
        with push:
            _mark("ready", {"clientId": client_id})
            stopped.wait()


def _print(messages: Sequence[MessageView]) -> None:
    if messages:
        _mark("messages", [received(message) for message in messages])


def _mark(kind: str, value: object) -> None:
    _print_line(f"@@ {kind} {json.dumps(value)}")


def _print_line(line: str) -> None:
    with _printing:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _read_stdin(stopped: threading.Event) -> None:
    for line in sys.stdin:
        if line == "stop\n":
            break
    stopped.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
