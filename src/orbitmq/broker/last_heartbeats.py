"""Heartbeats that say the same again: nearly all, and the longest of what clients send.

One is known again by its bytes. As long as nothing changed that it could meet otherwise, it says
no more than that its client is alive, and need not even be decoded. A state machine.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from orbitmq.broker.clients import ClientInfo, ConsumerGroup, ProducerTable
from orbitmq.wire.command import RemotingCommand

_ConnectionT = TypeVar("_ConnectionT", bound=Hashable)


class Mark(NamedTuple):
    """What a heartbeat is known again by."""

    body: int
    language: str | int
    version: int

    @staticmethod
    def of(command: RemotingCommand) -> Mark:
        """That of a heartbeat, with what its header says of the client.

        Of its body the hash, for bodies may be long: it is only held against the one before, and of
        64 bits.
        """
        return Mark(hash(bytes(command.body)), command.language, command.version)


class LastHeartbeat(NamedTuple, Generic[_ConnectionT]):
    """A heartbeat that was taken in, and all that taking it in again would depend on.

    ``tables`` are the versions of those it is taken in by, ``groups`` the consumer groups with
    their ``changes``. ``client`` is the entry that it left in all its groups.
    """

    mark: Mark
    tables: tuple[object, ...]
    client: ClientInfo
    groups: list[tuple[ConsumerGroup[_ConnectionT], int]]
    is_producer: bool
    fingerprint: int


class LastHeartbeats(Generic[_ConnectionT]):
    """The last heartbeat of each connection."""

    def __init__(self, producers: ProducerTable[_ConnectionT]) -> None:
        self._producers = producers
        self._last: dict[_ConnectionT, LastHeartbeat[_ConnectionT]] = {}

    def repeated(
        self, connection: _ConnectionT, mark: Mark, tables: tuple[object, ...]
    ) -> LastHeartbeat[_ConnectionT] | None:
        """The last heartbeat, if this one is equal and would change nothing; None: take it in."""
        last = self._last.get(connection)
        if (
            last is None
            or last.mark != mark
            or last.tables != tables
            or any(group.changes != changes for group, changes in last.groups)
        ):
            return None
        if last.is_producer and self._producers.find(last.client.client_id) != connection:
            return None
        return last

    def keep(self, connection: _ConnectionT, last: LastHeartbeat[_ConnectionT]) -> None:
        """Note what has been taken in."""
        self._last[connection] = last

    def forget(self, connection: _ConnectionT) -> None:
        """Forget a connection that has ended, or left a group."""
        self._last.pop(connection, None)
