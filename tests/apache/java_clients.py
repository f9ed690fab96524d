"""Apache's Java clients as Python tests use them: start, wait for messages, compare, stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from tests.apache.java_program import JavaProgram, options
from tests.consumer_program import ConsumerMarks
from tests.marked_program import ProgramError
from tests.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease


class Sent(NamedTuple):
    """One message that a Java producer has sent, and where it went."""

    key: str
    broker: str
    queue: int
    offset: int


class JavaProducer(JavaProgram):
    """Apache's DefaultMQProducer: sends `count` messages as soon as it is entered.

    Keys are `prefix` and a number from `first` on; a body is its key, filled up with dots to `size`
    bytes (see `body_of`). Tags are taken in turn; with `shards` the sharding keys s0, s1... too,
    each to the queue of its hash. `in_flight` 0 sends one message after another, which alone keeps
    the order within a shard; more sends asynchronously. `counts_only` leaves out `sent`.
    """

    def __init__(
        self,
        release: ApacheRelease,
        name_server: str,
        topic: str,
        count: int,
        *,
        first: int = 0,
        prefix: str = "k",
        tags: str = "TagA",
        shards: int = 0,
        size: int = 100,
        in_flight: int = 0,
        group: str = "java-producers",
        counts_only: bool = False,
    ) -> None:
        values: dict[str, object] = {
            "nameServer": name_server,
            "topic": topic,
            "count": count,
            "first": first,
            "prefix": prefix,
            "tags": tags,
            "shards": shards,
            "size": size,
            "inFlight": in_flight,
            "group": group,
            "report": "count" if counts_only else "sent",
        }
        super().__init__(release, "Producer", options(values))
        self._count = count

    @property
    def sent(self) -> list[Sent]:
        """The messages acknowledged so far, in the order of their acknowledgement."""
        return [Sent(*row) for rows in self.values("sent") for row in rows]

    def finish(self, timeout: float = PATIENCE_SECONDS) -> float:
        """Waits until all messages are sent and the program has ended; the seconds sending took.

        Raises:
            ProgramError: a message could not be sent, or the time is over.
        """
        done = self.wait_for("done", timeout)
        failures = self.values("failed")
        if done["sent"] != self._count:
            raise ProgramError(f"{len(failures)} failed: {failures[:3]}\n{self.tail()}")
        self.wait()
        return float(done["ms"]) / 1000


Report: TypeAlias = Literal["messages", "count", "each"]
"""What a consumer prints; see java/Received.java."""


class JavaConsumer(ConsumerMarks, JavaProgram):
    """What the Java consumers have in common: use JavaPushConsumer or JavaLitePullConsumer."""


class JavaPushConsumer(JavaConsumer):
    """Apache's DefaultMQPushConsumer, from the first offset on.

    `batch` is the most messages a call of the listener gets (consumeMessageBatchMaxSize);
    `fail_first` refuses each message's first delivery, so that it comes again.
    """

    def __init__(
        self,
        release: ApacheRelease,
        name_server: str,
        topic: str,
        group: str,
        *,
        tags: str = "*",
        orderly: bool = False,
        batch: int = 1,
        fail_first: bool = False,
        report: Report = "messages",
    ) -> None:
        values: dict[str, object] = {
            "nameServer": name_server,
            "topic": topic,
            "group": group,
            "tags": tags,
            "mode": "orderly" if orderly else "concurrent",
            "batch": batch,
            "failFirst": fail_first,
            "report": report,
        }
        super().__init__(release, "PushConsumer", options(values))


class JavaLitePullConsumer(JavaConsumer):
    """Apache's DefaultLitePullConsumer, from the first offset; commits what it polled when stopped.

    `assign` takes all queues itself instead of sharing them with its group. `batch` is the most
    messages a pull brings (pullBatchSize).
    """

    def __init__(
        self,
        release: ApacheRelease,
        name_server: str,
        topic: str,
        group: str,
        *,
        tags: str = "*",
        assign: bool = False,
        batch: int = 10,
        report: Report = "messages",
    ) -> None:
        values: dict[str, object] = {
            "nameServer": name_server,
            "topic": topic,
            "group": group,
            "tags": tags,
            "mode": "assign" if assign else "subscribe",
            "batch": batch,
            "report": report,
        }
        super().__init__(release, "LitePullConsumer", options(values))


def body_of(key: str, size: int = 100) -> bytes:
    """The body that java/Producer.java gives the message with this key."""
    return key.encode().ljust(size, b".")
