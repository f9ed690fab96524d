"""A group whose consumers come and go, and what each strategy makes of it.

The model behind ``orbitmq simulate rebalance``: it asks the very strategies the consumers use, and
counts. Pure: the same scenario always has the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean, pstdev

from orbitmq.allocate import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConsistentHash,
    AllocateByMachineRoom,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    allocate_all,
    java_order,
)
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue


@dataclass(frozen=True)
class Scenario:
    """A topic of ``queues`` queues and a group of ``clients``.

    In each of ``rounds`` rounds ``leave`` clients leave, ``join`` new ones join, and the group is
    balanced anew. Brokers are spread evenly over ``rooms`` machine rooms, clients at random.
    ``virtual_nodes`` is for consistent hashing.

    Raises:
        ConfigError: there cannot be such a group.
    """

    queues: int
    brokers: int
    rooms: int
    clients: int
    join: int
    leave: int
    rounds: int
    virtual_nodes: int
    seed: int

    def __post_init__(self) -> None:
        for name in ("queues", "brokers", "rooms", "clients", "virtual_nodes"):
            self._check(name, getattr(self, name) >= 1, "1 or more")
        for name in ("join", "leave", "rounds"):
            self._check(name, getattr(self, name) >= 0, "0 or more")
        self._check("brokers", self.brokers <= self.queues, f"at most the {self.queues} queues")
        self._check("rooms", self.rooms <= self.brokers, f"at most the {self.brokers} brokers")
        size = self.clients
        for number in range(1, self.rounds + 1):
            enough = self.leave <= size and self.leave < size + self.join
            there = f"{size} clients are there before round {number}, and one must be after it"
            self._check("leave", enough, there)
            size += self.join - self.leave

    def _check(self, name: str, right: bool, allowed: str) -> None:
        if not right:
            raise ConfigError(f"--{name.replace('_', '-')}", getattr(self, name), allowed)

    def message_queues(self) -> list[MessageQueue]:
        """The queues of the topic, dealt out to the brokers, sorted."""
        digits = len(str(self.brokers))
        names = [
            f"room{number % self.rooms + 1}@broker-{number + 1:0{digits}}"
            for number in range(self.brokers)
        ]
        return sorted(
            MessageQueue("simulated", names[number % self.brokers], number // self.brokers)
            for number in range(self.queues)
        )

    def groups(self) -> list[list[str]]:
        """The sorted client ids at the start and after each round."""
        random = Random(self.seed)  # noqa: S311 - repeatable on purpose
        new = self._client_ids(random)
        group = [next(new) for _ in range(self.clients)]
        groups = []
        for _ in range(self.rounds):
            groups.append(sorted(group, key=java_order))
            leaving = set(random.sample(range(len(group)), self.leave))
            group = [client for number, client in enumerate(group) if number not in leaving]
            group += [next(new) for _ in range(self.join)]
        return [*groups, sorted(group, key=java_order)]

    def _client_ids(self, random: Random) -> Iterator[str]:
        """Ids as clients make them, address@process#time, behind the name of their room."""
        time = 0
        while True:
            time += random.randint(1, 10**9)
            room = random.randint(1, self.rooms)
            address = f"10.{room}.{random.randint(0, 255)}.{random.randint(1, 254)}"
            yield f"room{room}-{address}@{random.randint(2, 99_999)}#{time}"

    def strategies(self) -> dict[str, AllocateStrategy]:
        """Every strategy that computes shares, by the name the command knows it by."""
        rooms = {f"room{number + 1}" for number in range(self.rooms)}
        return {
            "averagely": AllocateAveragely(),
            "circle": AllocateAveragelyByCircle(),
            "machine-room": AllocateByMachineRoom(rooms),
            "nearby": AllocateMachineRoomNearby(_room_of_queue, _room_of_client),
            "consistent-hash": AllocateByConsistentHash(self.virtual_nodes),
        }


def _room_of_queue(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]


def _room_of_client(client_id: str) -> str:
    return client_id.partition("-")[0]


@dataclass(frozen=True)
class Step:
    """The group after a round, or at the start, balanced by one strategy.

    ``smallest`` to ``deviation`` are about the queues a client has, ``idle`` clients have none.
    ``moved`` queues changed hands, where ``least`` would have done to give shares of these sizes.
    """

    clients: int
    joined: int
    left: int
    smallest: int
    mean: float
    largest: int
    deviation: float
    idle: int
    moved: int
    least: int

    @property
    def avoidable(self) -> int:
        """How many moved needlessly."""
        return self.moved - self.least


def simulate(
    strategy: AllocateStrategy,
    queues: Sequence[MessageQueue],
    groups: Sequence[Sequence[str]],
    on_step: Callable[[], None] = lambda: None,
) -> list[Step]:
    """Balance each of ``groups`` in turn; ``on_step`` is called after each."""
    steps: list[Step] = []
    sizes: dict[str, int] = {}
    owners: dict[MessageQueue, str] = {}
    for group in groups:
        shares = allocate_all(strategy, "simulated", queues, group)
        now = {client: len(share) for client, share in shares.items()}
        owners_now = {queue: client for client, share in shares.items() for queue in share}
        first = not steps
        steps.append(
            Step(
                clients=len(now),
                joined=0 if first else len(now.keys() - sizes.keys()),
                left=len(sizes.keys() - now.keys()),
                smallest=min(now.values()),
                mean=fmean(now.values()),
                largest=max(now.values()),
                deviation=pstdev(now.values()),
                idle=sum(not size for size in now.values()),
                moved=0
                if first
                else sum(owners[queue] != owner for queue, owner in owners_now.items()),
                least=0 if first else least_moves(sizes, now),
            )
        )
        sizes, owners = now, owners_now
        on_step()
    return steps


def least_moves(before: Mapping[str, int], after: Mapping[str, int]) -> int:
    """How many queues must move at least from shares of these sizes to shares of those.

    Whoever had most keeps most. All queues of who left move, and nobody loses one without need.
    """
    had = sorted(before.get(client, 0) for client in after)
    return sum(max(0, now - then) for then, now in zip(had, sorted(after.values()), strict=True))
