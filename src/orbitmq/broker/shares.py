"""How much of the tables of clients each connection takes: groups, and what they subscribe to.

Whoever connects may send heartbeats, and what they tell is kept while the connection lasts. Without
a bound one connection could take all memory; Java's broker has none. A state machine.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from orbitmq import codes
from orbitmq.errors import BrokerError
from orbitmq.wire.bodies import ConsumerData, HeartbeatData

_ConnectionT = TypeVar("_ConnectionT", bound=Hashable)

MAX_GROUPS: Final = 1_024
"""How many groups one connection may belong to."""
MAX_LENGTH: Final = 2 << 20
"""How long what its groups subscribe to may be together, in characters."""
MAX_CLIENT_ID_LENGTH: Final = 1_024
"""How long a client id may be."""
_EACH: Final = 64
"""What a subscription and each of its tags take besides their text."""


class ClientShares(Generic[_ConnectionT]):
    """The groups of each connection, with the length of what they subscribe to."""

    def __init__(self) -> None:
        self._groups: dict[_ConnectionT, dict[str, int]] = {}

    def take(self, connection: _ConnectionT, heartbeat: HeartbeatData) -> None:
        """Note what a heartbeat adds to the connection's share; nothing when it is too much.

        Raises BrokerError then, and for a client id that is too long.
        """
        client_id = heartbeat.client_id or ""
        check_client_id(client_id)
        known = self._groups.get(connection, {})
        groups = known | {f"P{data.group_name}": 0 for data in heartbeat.producer_data_set}
        for data in heartbeat.consumer_data_set:
            name = f"C{data.group_name}"
            groups[name] = known.get(name, 0) if heartbeat.without_sub else _length(data)
        if len(groups) > MAX_GROUPS:
            raise _too_much(
                f"client {client_id} is in {len(groups)} groups",
                MAX_GROUPS,
                "unregister those it has left, or use more connections",
            )
        if sum(groups.values()) > MAX_LENGTH:
            raise _too_much(
                f"client {client_id} subscribes by {sum(groups.values())} characters",
                MAX_LENGTH,
                "subscribe to less, or use more connections",
            )
        if groups:
            self._groups[connection] = groups

    def give_back(
        self, connection: _ConnectionT, producer: str | None, consumer: str | None
    ) -> None:
        """Forget the groups that a client has left."""
        groups = self._groups.get(connection)
        if groups is not None:
            groups.pop(f"P{producer}", None)
            groups.pop(f"C{consumer}", None)

    def forget(self, connection: _ConnectionT) -> None:
        """Forget a connection that has ended."""
        self._groups.pop(connection, None)


def check_client_id(client_id: str) -> None:
    """Raise BrokerError for one that is too long to be kept."""
    if len(client_id) > MAX_CLIENT_ID_LENGTH:
        raise _too_much(
            f"the client id has {len(client_id)} characters", MAX_CLIENT_ID_LENGTH, "shorten it"
        )


def _length(data: ConsumerData) -> int:
    return sum(
        len(item.topic)
        + len(item.sub_string)
        + sum(map(len, item.tags_set))
        + _EACH * (1 + len(item.tags_set) + len(item.code_set))
        for item in data.subscription_data_set
    )


def _too_much(what: str, limit: int, remedy: str) -> BrokerError:
    return BrokerError(codes.INVALID_PARAMETER, f"{what}, {limit} at most: {remedy}")
