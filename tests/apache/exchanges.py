"""Sending numbered messages, and what must hold of the deliveries: shared by the tests here."""

from __future__ import annotations

import zlib
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol, TypeAlias

from orbitmq import SendStatus
from tests.apache.java_clients import Sent, body_of
from tests.apache.python_clients import TAGS, new_producer, numbered, sent
from tests.consumer_program import Queue, Received
from tests.patience import PATIENCE_SECONDS, eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orbitmq import Producer, SendResult

Rows: TypeAlias = "Iterable[Received] | Iterable[Sent]"


class Consumer(Protocol):
    """What Java's and our consumers have in common."""

    @property
    def messages(self) -> list[Received]: ...

    @property
    def count(self) -> int: ...

    queues: set[Queue]

    def check_running(self) -> None: ...


# Waiting together


def side_by_side(scenarios: Iterable[Callable[[], object]]) -> None:
    """Runs all at once, in threads: for those that wait more than they work."""
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(scenario) for scenario in scenarios]:
            done.result()


# Sending


def send_messages(name_server: str, topic: str, numbers: Iterable[int]) -> list[Sent]:
    """Sends by a producer of its own, without waiting for one before the next."""
    with new_producer(f"senders-{topic}", name_server) as producer:
        return send_all(producer, topic, numbers)


def send_all(producer: Producer, topic: str, numbers: Iterable[int]) -> list[Sent]:
    """Sends without waiting for one before the next."""
    under_way = [(f"k{n}", producer.send_async(numbered(topic, n))) for n in numbers]
    return [
        row for key, future in under_way for row in stored([key], future.result(PATIENCE_SECONDS))
    ]


def send_batches(producer: Producer, topic: str, numbers: range, size: int = 32) -> list[Sent]:
    """Sends so many messages at once."""
    rows: list[Sent] = []
    for first in range(numbers.start, numbers.stop, size):
        batch = [numbered(topic, n) for n in range(first, min(first + size, numbers.stop))]
        rows += stored([message.keys or "" for message in batch], producer.send(batch))
    return rows


def send_one_by_one(producer: Producer, topic: str, numbers: Iterable[int]) -> list[Sent]:
    """Sends each when the one before is stored."""
    return [row for n in numbers for row in stored([f"k{n}"], producer.send(numbered(topic, n)))]


def stored(keys: Sequence[str], result: SendResult) -> list[Sent]:
    """Where the messages are, once the broker said that it has them."""
    assert result.status is SendStatus.SEND_OK
    return sent(keys, result)


# Waiting


def wait_received(rows: Sequence[Sent], *consumers: Consumer) -> None:
    """Waits until each message has come to one of them at least."""
    missing = {row.key for row in rows}
    counted = 0

    def all_came() -> bool:
        nonlocal counted, missing
        check_running(consumers)
        count = sum(consumer.count for consumer in consumers)
        if count > counted:
            counted = count
            missing -= {row.key for consumer in consumers for row in consumer.messages}
        return not missing

    def saw() -> str:
        never = sorted(row for row in rows if row.key in missing)
        counts = [consumer.count for consumer in consumers]
        return f"deliveries {counts}; {len(never)} never came, such as {never[:5]}"

    eventually(all_came, f"each of {len(rows)} messages", saw)


def wait_shared(queues: int, *consumers: Consumer, saw: Callable[[], object] | None = None) -> None:
    """Waits until each has a fair share, and no queue two owners or none.

    What `saw` answers is told when they do not come to that.
    """

    def balanced() -> bool:
        check_running(consumers)
        sizes = [len(consumer.queues) for consumer in consumers]
        united = set().union(*(consumer.queues for consumer in consumers))
        return sum(sizes) == len(united) == queues and max(sizes) - min(sizes) <= 1

    def shares() -> str:
        return ", ".join(str(sorted(consumer.queues)) for consumer in consumers)

    eventually(balanced, f"a fair share for {len(consumers)}", saw or shares)


def check_running(consumers: Iterable[Consumer]) -> None:
    """Fails when one of them ended by itself: nobody need wait for it any more."""
    for consumer in consumers:
        consumer.check_running()


# What must hold


def check_placed(rows: Sequence[Sent], keys: Sequence[str]) -> None:
    """Each message was stored once, and each queue has them with no gap."""
    assert sorted(row.key for row in rows) == sorted(keys)
    for offsets in offsets_by_queue(rows).values():
        assert sorted(offsets) == list(range(len(offsets)))


def check_received(deliveries: Iterable[Received], rows: Iterable[Sent]) -> None:
    """Each message came once, from where it was stored, and with its body."""
    deliveries = list(deliveries)
    came, wanted = Counter(Sent(*delivery[:4]) for delivery in deliveries), Counter(rows)
    assert came == wanted, f"too often: {sorted(came - wanted)}, missing: {sorted(wanted - came)}"
    assert all(zlib.crc32(body_of(delivery.key)) == delivery.crc for delivery in deliveries)


def check_content(deliveries: Iterable[Received]) -> None:
    """Messages made by `numbered` came as they were made."""
    for delivery in deliveries:
        assert delivery.crc == zlib.crc32(body_of(delivery.key))
        assert delivery.tag == TAGS[number_of(delivery) % len(TAGS)]


def number_of(row: Received | Sent) -> int:
    """The number in the message's key."""
    return int(row.key[1:])


def offsets_by_queue(rows: Rows) -> dict[Queue, list[int]]:
    """The offsets of each queue, in the order of the rows."""
    offsets: dict[Queue, list[int]] = defaultdict(list)
    for row in rows:
        offsets[row.broker, row.queue].append(row.offset)
    return offsets
