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
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue

_log = logging.getLogger("orbitmq.allocate")

_T = TypeVar("_T")

_ShareOf: TypeAlias = Callable[[str], list[MessageQueue]]
"""Gives each client of a group its share."""


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


def allocate_all(
    strategy: AllocateStrategy,
    group: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> dict[str, list[MessageQueue]]:
    """The share of each of ``client_ids``, the same as ``strategy`` gives them one by one.

    The strategies of this module do here only once what all shares have in common: 100,000 queues
    are divided among 10,000 clients in a second or less.

    Raises:
        ConfigError: an argument is empty.
    """
    if isinstance(strategy, _CheckedStrategy):
        _check_lists(queues, client_ids)
    share_of = _divided(strategy, group, queues, client_ids)
    return {client_id: share_of(client_id) for client_id in dict.fromkeys(client_ids)}


def java_order(text: str) -> bytes:
    """What to sort by to sort text as Java does, by UTF-16 units.

    Consumers written in Java and in Python must see the same lists in the same order. It differs
    from Python's order only beyond the basic multilingual plane.
    """
    return text.encode("utf-16-be", "surrogatepass")


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
        _check_lists(queues, client_ids)
        if client_id not in client_ids:
            # The broker has not seen our heartbeat yet, or takes us for gone.
            _log.info(
                "client %s is not among the %d of group %s", client_id, len(client_ids), group
            )
            return []
        return self._divide(group, queues, client_ids)(client_id)

    @abstractmethod
    def _divide(
        self, group: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> _ShareOf:
        """Do what all shares have in common; the answer gives the share of one of the clients."""


@dataclass(frozen=True)
class AllocateAveragely(_CheckedStrategy):
    """Contiguous shares; the first clients take one more when the queues do not divide evenly."""

    name: ClassVar[str] = "AVG"

    def _divide(
        self, group: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> _ShareOf:
        index_of = _indexes(client_ids)
        size, rest = divmod(len(queues), len(client_ids))

        def share_of(client_id: str) -> list[MessageQueue]:
            index = index_of[client_id]
            start = index * size + min(index, rest)
            return list(queues[start : start + size + (index < rest)])

        return share_of


@dataclass(frozen=True)
class AllocateAveragelyByCircle(_CheckedStrategy):
    """Queues dealt out one by one, like cards."""

    name: ClassVar[str] = "AVG_BY_CIRCLE"

    def _divide(
        self, group: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> _ShareOf:
        index_of = _indexes(client_ids)
        return lambda client_id: list(queues[index_of[client_id] :: len(client_ids)])


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

    def _divide(
        self, group: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> _ShareOf:
        index_of = _indexes(client_ids)
        near = [queue for queue in queues if _machine_room(queue.broker_name) in self.rooms]
        size, rest = divmod(len(near), len(client_ids))

        def share_of(client_id: str) -> list[MessageQueue]:
            index = index_of[client_id]
            mine = near[index * size : (index + 1) * size]
            if index < rest:
                mine.append(near[len(client_ids) * size + index])
            return mine

        return share_of


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

    def _divide(
        self, group: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> _ShareOf:
        queues_by_room = _by_room(queues, self.broker_room)
        clients_by_room = _by_room(client_ids, self.client_room)
        deserted = sorted(queues_by_room.keys() - clients_by_room.keys(), key=java_order)
        of_all = [
            _divided(self.strategy, group, queues_by_room[room], client_ids) for room in deserted
        ]

        @cache
        def within(room: str) -> _ShareOf:
            return _divided(self.strategy, group, queues_by_room[room], clients_by_room[room])

        def share_of(client_id: str) -> list[MessageQueue]:
            room = self.client_room(client_id)
            parts = [within(room), *of_all] if room in queues_by_room else of_all
            return [queue for part in parts for queue in part(client_id)]

        return share_of


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

    def _divide(
        self, group: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> _ShareOf:
        ring = self._ring(client_ids)
        points = sorted(ring)
        shares: dict[str, list[MessageQueue]] = {client_id: [] for client_id in client_ids}
        if points:
            for queue in queues:
                at = bisect_left(points, self.hash_function(str(queue)))
                shares[ring[points[at % len(points)]]].append(queue)
        return lambda client_id: list(shares[client_id])

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        """Client ids by their points; an id that comes twice gets further points, as in Java."""
        ring: dict[int, str] = {}
        held: Counter[str] = Counter()  # points of each client
        for client_id in client_ids:
            first = held[client_id]
            for node in range(first, first + self.virtual_nodes):
                point = self.hash_function(f"{client_id}-{node}")
                held[ring.get(point, client_id)] -= point in ring
                held[client_id] += 1
                ring[point] = client_id
        return ring


def _divided(
    strategy: AllocateStrategy,
    group: str,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> _ShareOf:
    """How any ``strategy`` divides non-empty lists: ours at once, others when they are asked."""
    if isinstance(strategy, _CheckedStrategy):
        return strategy._divide(group, queues, client_ids)
    return lambda client_id: strategy(group, client_id, queues, client_ids)


def _check_lists(queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> None:
    if not queues:
        raise ConfigError("queues", queues, "at least one queue")
    if not client_ids:
        raise ConfigError("client_ids", client_ids, "at least one client id")


def _indexes(client_ids: Sequence[str]) -> dict[str, int]:
    """Where each client comes first."""
    return {client_ids[index]: index for index in reversed(range(len(client_ids)))}


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
