"""Which queues each consumer of a group takes.

Every consumer of a group computes its own share from the same two lists, with no coordinator, so
a strategy must be a pure function and give, for the same lists, exactly what the Java client gives
(``org.apache.rocketmq.client.consumer.rebalance``): Java and Python consumers share one group.
"""

from __future__ import annotations

import hashlib
import logging
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol, TypeVar

from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue

_log = logging.getLogger("orbitmq.allocate")

_T = TypeVar("_T")


class AllocateStrategy(Protocol):
    """Anything that divides a topic's queues among the consumers of a group.

    All consumers of a group must use the same strategy, and must see the same lists, both sorted.
    """

    @property
    def name(self) -> str:
        """The name RocketMQ's tools know the strategy by."""

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The queues of ``client_id``, one of the ``client_ids`` of ``group``."""


class _CheckedStrategy(ABC):
    """The checks of Java's ``AbstractAllocateMessageQueueStrategy``."""

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The share of ``client_id``, nothing when it is not among ``client_ids``.

        Raises:
            ConfigError: an argument is empty.
        """
        if not client_id:
            raise ConfigError("client_id", client_id, "the id of a client of the group")
        if not queues:
            raise ConfigError("queues", queues, "at least one queue")
        if not client_ids:
            raise ConfigError("client_ids", client_ids, "at least one client id")
        if client_id not in client_ids:
            # The broker has not seen our heartbeat yet, or takes us for gone.
            _log.info("client %s is not in the list of group %s: %s", client_id, group, client_ids)
            return []
        return self._share(group, client_ids.index(client_id), queues, client_ids)

    @abstractmethod
    def _share(
        self, group: str, index: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        """The share of the client at ``index``."""


@dataclass(frozen=True)
class AllocateAveragely(_CheckedStrategy):
    """Contiguous shares; the first clients take one more when the queues do not divide evenly."""

    name: ClassVar[str] = "AVG"

    def _share(
        self, group: str, index: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        size, rest = divmod(len(queues), len(client_ids))
        start = index * size + min(index, rest)
        return list(queues[start : start + size + (index < rest)])


@dataclass(frozen=True)
class AllocateAveragelyByCircle(_CheckedStrategy):
    """Queues dealt out one by one, like cards."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def _share(
        self, group: str, index: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        return list(queues[index :: len(client_ids)])


@dataclass(frozen=True)
class AllocateByConfig:
    """Always the queues given here, whatever the topic and the group look like."""

    message_queues: Sequence[MessageQueue]
    name: ClassVar[str] = "CONFIG"

    def __call__(
        self,
        group: str,
        client_id: str,
        queues: Sequence[MessageQueue],
        client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        """The configured queues; nothing is checked."""
        return list(self.message_queues)


@dataclass(frozen=True)
class AllocateByMachineRoom(_CheckedStrategy):
    """Contiguous shares of the queues whose broker, named ``room@name``, is in one of ``rooms``.

    What does not divide evenly is dealt out one by one at the end.
    """

    rooms: Collection[str]
    name: ClassVar[str] = "MACHINE_ROOM"

    def _share(
        self, group: str, index: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        near = [queue for queue in queues if _machine_room(queue.broker_name) in self.rooms]
        size, rest = divmod(len(near), len(client_ids))
        mine = near[index * size : (index + 1) * size]
        if index < rest:
            mine.append(near[len(client_ids) * size + index])
        return mine


@dataclass(frozen=True)
class AllocateMachineRoomNearby(_CheckedStrategy):
    """Each room's queues to the consumers of that room; rooms without consumers to everyone.

    ``broker_room`` and ``client_room`` tell the room of a queue and of a client id, and may not
    answer with an empty string. ``strategy`` divides within a room.
    """

    broker_room: Callable[[MessageQueue], str]
    client_room: Callable[[str], str]
    strategy: AllocateStrategy = field(default_factory=AllocateAveragely)

    @property
    def name(self) -> str:
        """The name of this strategy and of the one it divides by."""
        return f"MACHINE_ROOM_NEARBY-{self.strategy.name}"

    def _share(
        self, group: str, index: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        client_id = client_ids[index]
        room = self.client_room(client_id)
        queues_by_room = _by_room(queues, self.broker_room)
        clients_by_room = _by_room(client_ids, self.client_room)
        mine: list[MessageQueue] = []
        if room in queues_by_room:
            mine += self.strategy(group, client_id, queues_by_room[room], clients_by_room[room])
        for deserted in sorted(queues_by_room.keys() - clients_by_room.keys()):
            mine += self.strategy(group, client_id, queues_by_room[deserted], client_ids)
        return mine


def md5_hash(key: str) -> int:
    """The first four bytes of the MD5 digest, as Java's ``ConsistentHashRouter`` takes them."""
    digest = hashlib.md5(key.encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")


@dataclass(frozen=True)
class AllocateByConsistentHash(_CheckedStrategy):
    """A hash ring: when a client comes or goes, few queues move.

    ``virtual_nodes`` points on the ring for each client (10), placed by ``hash_function``.
    """

    virtual_nodes: int = 10
    hash_function: Callable[[str], int] = md5_hash
    name: ClassVar[str] = "CONSISTENT_HASH"

    def __post_init__(self) -> None:
        if self.virtual_nodes < 0:
            raise ConfigError("virtual_nodes", self.virtual_nodes, "0 or more")

    def _share(
        self, group: str, index: int, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        ring = self._ring(client_ids)
        points = sorted(ring)
        if not points:
            return []

        def owner(queue: MessageQueue) -> str:
            at = bisect_left(points, self.hash_function(str(queue)))
            return ring[points[at % len(points)]]

        return [queue for queue in queues if owner(queue) == client_ids[index]]

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Client ids by their points; an id that comes twice gets further points, as in Java."""
        ring: dict[int, str] = {}
        for client_id in client_ids:
            first = sum(owner == client_id for owner in ring.values())
            for node in range(first, first + self.virtual_nodes):
                ring[self.hash_function(f"{client_id}-{node}")] = client_id
        return ring


def _machine_room(broker_name: str) -> str | None:
    """The room in ``room@name``; None when the name has another form."""
    # Java's split drops empty parts at the end, so "room@name@" has the form too.
    parts = broker_name.rstrip("@").split("@")
    return parts[0] if len(parts) == 2 else None


def _by_room(items: Iterable[_T], room_of: Callable[[_T], str]) -> dict[str, list[_T]]:
    rooms: dict[str, list[_T]] = defaultdict(list)
    for item in items:
        room = room_of(item)
        if not room:
            raise ConfigError("machine room", room, f"a name for {item}")
        rooms[room].append(item)
    return rooms
