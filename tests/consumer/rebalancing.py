"""What tests of Rebalance share: a cluster that attributes answer for, an owner that notes all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from orbitmq import codes
from orbitmq.allocate import AllocateAveragely, AllocateStrategy
from orbitmq.client.instance import ClientInstance
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.rebalance import Rebalance
from orbitmq.errors import OrbitMQError, TopicNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock

ORDERS = [MessageQueue("orders", "broker-a", number) for number in range(8)]
RETRIES = MessageQueue("%RETRY%readers", "broker-a", 0)


class HeldQueue:
    """What an owner has of a queue."""

    def __init__(self, now_ms: int) -> None:
        self.process_queue = ProcessQueue(now_ms)


class Cluster(ClientInstance):
    """What Rebalance asks of an instance, answered from attributes."""

    def __init__(self) -> None:
        self.client_id = "me"
        self.clock = ManualClock(0)
        self.topics: dict[str, Sequence[MessageQueue]] = {"orders": ORDERS}
        self.ids: list[str] | OrbitMQError = ["me"]
        self.route_error: OrbitMQError | None = None
        self.heartbeats = 0

    async def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        if self.route_error is not None:
            raise self.route_error
        if topic not in self.topics:
            raise TopicNotFoundError(codes.TOPIC_NOT_EXIST, "no such topic")
        return tuple(self.topics[topic])

    async def consumer_ids(self, group: str, topic: str) -> list[str]:
        if isinstance(self.ids, OrbitMQError):
            raise self.ids
        return self.ids

    async def heartbeat(self) -> None:
        self.heartbeats += 1


class Owner:
    """A consumer that notes what it is told."""

    def __init__(self, topics: Collection[str] = ("orders",)) -> None:
        self.topics = list(topics)
        self.held: dict[MessageQueue, HeldQueue] = {}
        self.taken: list[dict[MessageQueue, bool]] = []
        self.lost: list[set[MessageQueue]] = []
        self.changes: list[tuple[str, int, int]] = []
        self.refuse: set[MessageQueue] = set()
        self.now_ms = 0

    def subscribed_topics(self) -> Collection[str]:
        return self.topics

    def owned(self) -> Mapping[MessageQueue, HeldQueue]:
        return self.held

    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        self.taken.append(dict(queues))
        for queue in queues.keys() - self.refuse:
            self.held[queue] = HeldQueue(self.now_ms)
        return not queues.keys() & self.refuse

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        self.lost.append(set(queues))
        for queue in queues:
            del self.held[queue]

    async def queues_changed(
        self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        self.changes.append((topic, len(all_queues), len(mine)))


def rebalancing(
    owner: Owner | None = None, strategy: AllocateStrategy | None = None
) -> tuple[Cluster, Owner, Rebalance]:
    cluster, owner = Cluster(), owner or Owner()
    strategy = strategy or AllocateAveragely()
    return cluster, owner, Rebalance(cluster, "readers", owner, strategy, expire=True)
