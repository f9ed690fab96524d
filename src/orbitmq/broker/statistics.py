"""What goes in and out of the broker, by topic, queue and group.

Counting costs next to nothing where messages pass: a write adds the sizes of its messages up by
queue, a pull adds to its group's figures. Those are brought into the tables now and then, some at a
time. The time is an argument. Follows Java's BrokerStatsManager; its statistics of accounts, for
billing, and of pop consumption are not there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from operator import attrgetter
from typing import Final, NamedTuple

from orbitmq.broker.stats_items import Counts, Item, Items, Snapshot
from orbitmq.broker.store_stats import StoreStats
from orbitmq.names import RETRY_PREFIX, is_system_topic
from orbitmq.store.appended import Appended, Written
from orbitmq.store.consume_queue import ConsumeQueue

log = logging.getLogger("orbitmq.broker")

COLLECT_INTERVAL_MS: Final = 1_000
"""How often what was counted is brought into the tables."""
FORGET_INTERVAL_MS: Final = 600_000
IDLE_MS: Final = 1_440 * 60_000
"""After how long without a message an item is forgotten."""
_size_of: Final[Callable[[Appended], int]] = attrgetter("size")
_AT_ONCE: Final = 2_000
_MOST_ITEMS: Final = 20_000
_MOST_PENDING: Final = 100_000


class _View(NamedTuple):
    """A statistic: the items it is read from, and whether it sums up their sizes."""

    items: Items
    of_size: bool = False


class Statistics:
    """The statistics of a broker of the cluster ``cluster``, whose name is their key in all."""

    def __init__(self, cluster: str, boot_ms: int, now_ms: int) -> None:
        self.store = StoreStats(boot_ms, now_ms)
        self._cluster = cluster
        self._sizes: dict[ConsumeQueue, int] = {}
        self._first: dict[ConsumeQueue, int] = {}
        self._pulls: dict[tuple[str, str, int], list[int]] = {}
        self._topic_puts = Items(_MOST_ITEMS)
        self._queue_puts = Items(_MOST_ITEMS)
        self._put_latencies = Items(_MOST_ITEMS)
        self._group_gets = Items(_MOST_ITEMS)
        self._queue_gets = Items(_MOST_ITEMS)
        self._latencies = Items(_MOST_ITEMS)
        self._send_backs = Items(_MOST_ITEMS)
        self._dead_letters = Items(_MOST_ITEMS)
        self._dead_letter_times = Items(_MOST_ITEMS)
        self._broker_puts = Items(1)
        self._broker_gets = Items(1)
        self._user_puts = Items(1)
        self._user_gets = Items(1)
        self._is_full = False
        self._write_ms = _MeanWrite()
        self._views: Final = {
            "TOPIC_PUT_NUMS": _View(self._topic_puts),
            "TOPIC_PUT_SIZE": _View(self._topic_puts, of_size=True),
            "QUEUE_PUT_NUMS": _View(self._queue_puts),
            "QUEUE_PUT_SIZE": _View(self._queue_puts, of_size=True),
            "TOPIC_PUT_LATENCY": _View(self._put_latencies),
            "GROUP_GET_NUMS": _View(self._group_gets),
            "GROUP_GET_SIZE": _View(self._group_gets, of_size=True),
            "QUEUE_GET_NUMS": _View(self._queue_gets),
            "QUEUE_GET_SIZE": _View(self._queue_gets, of_size=True),
            "GROUP_GET_LATENCY": _View(self._latencies),
            "SNDBCK_PUT_NUMS": _View(self._send_backs),
            "DLQ_PUT_NUMS": _View(self._dead_letters),
            "SNDBCK2DLQ_TIMES": _View(self._dead_letter_times),
            "BROKER_PUT_NUMS": _View(self._broker_puts),
            "BROKER_GET_NUMS": _View(self._broker_gets),
            "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC": _View(self._user_puts),
            "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC": _View(self._user_gets),
        }

    # Where messages pass

    def written(self, written: Written) -> None:
        """Count what one write of the store brought (its write listener)."""
        self.store.put += written.messages
        sizes = self._sizes
        for queue, runs in written.by_queue.items():
            size = sum(map(_size_of, runs))
            if queue in sizes:
                sizes[queue] += size
            else:
                sizes[queue] = size
                self._first[queue] = runs[0].queue_offset

    def pulled(
        self, group: str, topic: str, queue_id: int, number: int, size: int, seconds: float
    ) -> None:
        """Count the messages a pull was answered with, which took so long to find."""
        self.store.found += 1
        self.store.transferred += number
        key = group, topic, queue_id
        counts = self._pulls.get(key)
        if counts is None:
            if len(self._pulls) >= _MOST_PENDING:
                return
            counts = self._pulls[key] = [0, 0, 0, 0]
        counts[0] += 1
        counts[1] += number
        counts[2] += size
        counts[3] += int(seconds * 1000)

    def missed(self) -> None:
        """Count a pull that found nothing."""
        self.store.missed += 1

    def sent_back(self, group: str, topic: str, now_ms: int, *, is_dead: bool = False) -> None:
        """Count a message of ``topic`` that ``group`` gave back, or gave up."""
        one, key = Counts(1, 1, 0), f"{topic}@{group}"
        self._add(self._send_backs, key, one, now_ms)
        if is_dead:
            self._add(self._dead_letters, key, one, now_ms)
            self._add(self._dead_letter_times, f"Owner@{key}@SEND_BACK_TO_DLQ", one, now_ms)

    # Looking at it

    def view(self, name: str, key: str, now_ms: int) -> tuple[Snapshot, Snapshot, Snapshot] | None:
        """A statistic's last minute, hour and day; None for one that is not there."""
        while self.collect(now_ms):
            pass
        found = self._views.get(name)
        item: Item | None = found.items.get(key) if found else None
        if found is None or item is None:
            return None
        return item.snapshots(now_ms, of_size=found.of_size)

    def consume_tps(self, group: str, topic: str, now_ms: int) -> float:
        """How many messages of ``topic`` a second ``group`` got in the last minute."""
        item = self._group_gets.get(f"{topic}@{group}")
        return item.snapshots(now_ms, of_size=False)[0].tps if item else 0.0

    def put_tps(self, topic: str, now_ms: int) -> float:
        """How many messages a second came to ``topic`` in the last minute."""
        item = self._topic_puts.get(topic)
        return item.snapshots(now_ms, of_size=False)[0].tps if item else 0.0

    def forget_topic(self, topic: str) -> None:
        """Forget what was counted of a topic that is gone."""
        self._forget(topic)

    def forget_group(self, group: str) -> None:
        """Forget what was counted of a group that is gone."""
        self._forget(group)

    # Now and then

    def collect(self, now_ms: int) -> bool:
        """Bring some of what was counted into the tables; whether some is left."""
        self._write_ms.renew(self.store)
        for _ in range(min(_AT_ONCE, len(self._sizes))):
            queue, size = self._sizes.popitem()
            self._collect_put(queue, queue.max_offset - self._first.pop(queue), size, now_ms)
        for _ in range(min(_AT_ONCE, len(self._pulls))):
            (group, topic, queue_id), counts = self._pulls.popitem()
            self._collect_get(group, topic, queue_id, counts, now_ms)
        return bool(self._sizes or self._pulls)

    def forget_idle(self, now_ms: int) -> None:
        """Forget what was not counted for a day."""
        self._is_full = False
        for view in self._views.values():
            view.items.forget_idle(now_ms - IDLE_MS)

    def _collect_put(self, queue: ConsumeQueue, number: int, size: int, now_ms: int) -> None:
        counts = Counts(number, number, size)
        topic = queue.topic
        self._add(self._topic_puts, topic, counts, now_ms)
        self._add(self._queue_puts, f"{topic}@{queue.queue_id}", counts, now_ms)
        latency = Counts(number, round(number * self._write_ms.mean), 0)
        self._add(self._put_latencies, f"{queue.queue_id}@{topic}", latency, now_ms)
        self._add(self._broker_puts, self._cluster, counts, now_ms)
        self.store.put_size += size
        if not _is_system(topic):
            self.store.put_by_users += number
            self._add(self._user_puts, self._cluster, counts, now_ms)

    def _collect_get(
        self, group: str, topic: str, queue_id: int, pulled: list[int], now_ms: int
    ) -> None:
        times, number, size, ms = pulled
        counts = Counts(times, number, size)
        self._add(self._group_gets, f"{topic}@{group}", counts, now_ms)
        self._add(self._queue_gets, f"{topic}@{queue_id}@{group}", counts, now_ms)
        self._add(self._latencies, f"{queue_id}@{topic}@{group}", Counts(times, ms, 0), now_ms)
        self._add(self._broker_gets, self._cluster, counts, now_ms)
        if not _is_system(topic):
            self.store.got_by_users += number
            self._add(self._user_gets, self._cluster, counts, now_ms)

    def _add(self, items: Items, key: str, counts: Counts, now_ms: int) -> None:
        if not items.add(key, counts, now_ms) and not self._is_full:
            self._is_full = True
            log.warning(
                "statistics are kept of %d topics, queues and groups of each kind; %s and others "
                "are not counted until idle ones are forgotten", _MOST_ITEMS, key,
            )  # fmt: skip

    def _forget(self, name: str) -> None:
        for view in self._views.values():
            view.items.forget(name)


class _MeanWrite:
    """How many ms a message's write took, in the ``mean`` of those since the last look."""

    def __init__(self) -> None:
        self.mean = 0.0
        self._put = 0
        self._seconds = 0.0

    def renew(self, store: StoreStats) -> None:
        put, seconds = store.put - self._put, store.write_seconds - self._seconds
        if put > 0:
            self.mean = seconds * 1000 / put
            self._put, self._seconds = store.put, store.write_seconds


def _is_system(topic: str) -> bool:
    return is_system_topic(topic) and not topic.startswith(RETRY_PREFIX)
