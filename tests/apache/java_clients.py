"""Apache's Java clients as Python tests use them: start, wait for messages, compare, stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.apache.java_program import JavaProgram, JavaProgramError, options

if TYPE_CHECKING:
    from tests.apache.jars import ApacheRelease


class Sent(NamedTuple):
    """One message that a Java producer has sent, and where it went."""

    key: str
    broker: str
    queue: int
    offset: int


class Received(NamedTuple):
    """One delivery of a message to a Java consumer; `crc` is crc32 of its body."""

    key: str
    broker: str
    queue: int
    offset: int
    tag: str | None
    reconsume_times: int
    crc: int


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

    def finish(self, timeout: float = 120) -> float:
        """Waits until all messages are sent and the program has ended; the seconds sending took.

        Raises:
            JavaProgramError: a message could not be sent, or the time is over.
        """
        done = self.wait_for("done", timeout)
        failures = self.values("failed")
        if done["sent"] != self._count:
            raise JavaProgramError(f"{len(failures)} failed: {failures[:3]}\n{self.tail()}")
        self.wait()
        return float(done["ms"]) / 1000


class JavaConsumer(JavaProgram):
    """What the Java consumers have in common: use PushConsumer or LitePullConsumer."""

    @property
    def messages(self) -> list[Received]:
        """All deliveries so far, in the order in which they came."""
        return [Received(*row) for rows in self.values("messages") for row in rows]

    @property
    def count(self) -> int:
        """How many deliveries there were so far, also with `counts_only`."""
        counts: list[int] = self.values("count")
        return max([*counts, sum(map(len, self.values("messages")))])

    @property
    def queues(self) -> set[int]:
        """The ids of the queues it has of its topic, once it shares them with its group."""
        shares: list[list[int]] = self.values("queues")
        return set(shares[-1]) if shares else set()

    def wait_ready(self, timeout: float = 60) -> str:
        """Waits until the consumer has started; its client id."""
        return str(self.wait_for("ready", timeout)["clientId"])

    def wait_count(self, count: int, timeout: float = 60) -> None:
        """Waits for so many deliveries, repeated ones included."""
        self.wait_until(lambda: self.count >= count, f"{count} messages", timeout)


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
        counts_only: bool = False,
    ) -> None:
        values: dict[str, object] = {
            "nameServer": name_server,
            "topic": topic,
            "group": group,
            "tags": tags,
            "mode": "orderly" if orderly else "concurrent",
            "batch": batch,
            "failFirst": fail_first,
            "report": "count" if counts_only else "messages",
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
        counts_only: bool = False,
    ) -> None:
        values: dict[str, object] = {
            "nameServer": name_server,
            "topic": topic,
            "group": group,
            "tags": tags,
            "mode": "assign" if assign else "subscribe",
            "batch": batch,
            "report": "count" if counts_only else "messages",
        }
        super().__init__(release, "LitePullConsumer", options(values))


def body_of(key: str, size: int = 100) -> bytes:
    """The body that java/Producer.java gives the message with this key."""
    return key.encode().ljust(size, b".")
