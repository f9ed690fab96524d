"""Which clients are connected: the members and subscriptions of every group, by heartbeat.

State machines: the time is an argument, and a method that changes who belongs to a consumer group
says so, for the broker to tell the members. A client is known by its connection; the type of
connection does not matter here. Follows ConsumerManager, ConsumerGroupInfo and ProducerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

import msgspec

from orbitmq.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    GetConsumerListByGroupResponseBody,
    MessageModel,
    SubscriptionData,
)

log = logging.getLogger("orbitmq.broker")

_ConnectionT = TypeVar("_ConnectionT", bound=Hashable)


class ClientInfo(msgspec.Struct):
    """A client as one of its heartbeats described it."""

    client_id: str
    language: str | int
    version: int
    seen_ms: int = 0


class ConsumerGroup(Generic[_ConnectionT]):
    """A consumer group with its members. The last heartbeat decides its manner.

    ``changes`` counts the heartbeats that said anything else of the group than the one before.
    """

    def __init__(self, data: ConsumerData) -> None:
        self.name = data.group_name
        self.consume_type: ConsumeType = data.consume_type
        self.message_model: MessageModel = data.message_model
        self.consume_from_where: ConsumeFromWhere = data.consume_from_where
        self.members: dict[_ConnectionT, ClientInfo] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.changes = 0
        self._fingerprint: int | None = None
        self._member_list: bytes | None = None

    def is_other(self, fingerprint: int) -> bool:
        """Whether the heartbeat of a member has another fingerprint than the one before it."""
        before, self._fingerprint = self._fingerprint, fingerprint
        if before == fingerprint:
            return False
        self.changes += 1
        return before is not None

    def join(self, connection: _ConnectionT, client: ClientInfo) -> bool:
        """Take in a member, or what is new of one; returns whether it was none before."""
        before = self.members.get(connection)
        self.members[connection] = client
        if before is None or before.client_id != client.client_id:
            self._member_list = None
        return before is None

    def leave(self, connection: _ConnectionT) -> ClientInfo | None:
        """Take a member out; None when it is none."""
        self._member_list = None
        return self.members.pop(connection, None)

    @property
    def client_ids(self) -> list[str]:
        """The members' client ids, each once, in the order they came."""
        return list(dict.fromkeys(member.client_id for member in self.members.values()))

    @property
    def member_list(self) -> bytes:
        """The body with the members' client ids; each member asks for it for each of its topics."""
        if self._member_list is None:
            self._member_list = GetConsumerListByGroupResponseBody(self.client_ids).encode()
        return self._member_list

    @property
    def wants_notice(self) -> bool:
        """Whether members are told of changes: those who broadcast share no queues."""
        return self.message_model is not MessageModel.BROADCASTING

    def set_manner(self, data: ConsumerData) -> None:
        """Go by a heartbeat's word of how the group consumes."""
        manner = data.consume_type, data.message_model, data.consume_from_where
        if manner != (self.consume_type, self.message_model, self.consume_from_where):
            self.consume_type, self.message_model, self.consume_from_where = manner
            self.changes += 1

    def subscribe(self, given: Iterable[SubscriptionData]) -> bool:
        """Make ``given`` the group's subscriptions; returns whether topics came or went.

        Of two subscriptions to a topic the newer stays: members are updated one after the other.
        """
        known = self.subscriptions
        self.subscriptions = {}
        for new in given:
            old = known.get(new.topic, new)
            self.subscriptions[new.topic] = new if new.sub_version > old.sub_version else old
        self.changes += known != self.subscriptions
        return known.keys() != self.subscriptions.keys()


class _Memberships(Generic[_ConnectionT]):
    """The groups that each connection is in, so that its end costs no more than those."""

    def __init__(self) -> None:
        self._groups: dict[_ConnectionT, dict[str, None]] = {}

    def add(self, connection: _ConnectionT, group: str) -> None:
        self._groups.setdefault(connection, {})[group] = None

    def remove(self, connection: _ConnectionT, group: str) -> None:
        groups = self._groups.get(connection, {})
        groups.pop(group, None)
        if not groups:
            self._groups.pop(connection, None)

    def of(self, connection: _ConnectionT) -> list[str]:
        return list(self._groups.get(connection, ()))


class ConsumerTable(Generic[_ConnectionT]):
    """All consumer groups."""

    def __init__(self) -> None:
        self.groups: dict[str, ConsumerGroup[_ConnectionT]] = {}
        self._memberships: _Memberships[_ConnectionT] = _Memberships()

    def register(
        self,
        data: ConsumerData,
        connection: _ConnectionT,
        client: ClientInfo,
        *,
        with_subscriptions: bool = True,
    ) -> bool:
        """Take in one group of a heartbeat; returns whether its members must be told.

        Without subscriptions the known ones stay.
        """
        group = self.groups.get(data.group_name)
        if group is None:
            group = self.groups[data.group_name] = ConsumerGroup(data)
        group.set_manner(data)
        joined = group.join(connection, client)
        if joined:
            log.info("consumer %s joined group %s", client.client_id, group.name)
            self._memberships.add(connection, group.name)
        changed = with_subscriptions and group.subscribe(data.subscription_data_set)
        return (joined or changed) and group.wants_notice

    def unregister(self, name: str, connection: _ConnectionT) -> bool:
        """Take a client out of a group; returns whether the others must be told."""
        group = self.groups.get(name)
        if group is None:
            return False
        client = group.leave(connection)
        if client is None:
            return False
        log.info("consumer %s left group %s", client.client_id, name)
        self._memberships.remove(connection, name)
        if not group.members:
            del self.groups[name]
            return False
        return group.wants_notice

    def disconnect(self, connection: _ConnectionT) -> list[str]:
        """Take a connection out of all groups; returns the groups whose others must be told."""
        return [
            name for name in self._memberships.of(connection) if self.unregister(name, connection)
        ]

    def find(self, name: str, client_id: str | None) -> tuple[_ConnectionT, ClientInfo] | None:
        """The member of a group with ``client_id``; None when it is not there."""
        group = self.groups.get(name)
        members = group.members.items() if group else ()
        return next((member for member in members if member[1].client_id == client_id), None)

    def silent(self, now_ms: int, timeout_ms: int) -> list[_ConnectionT]:
        """The connections whose last heartbeat is older than ``timeout_ms``."""
        return _silent((group.members for group in self.groups.values()), now_ms, timeout_ms)

    def subscribers(self, topic: str) -> list[str]:
        """The groups that subscribe to ``topic``."""
        return [name for name, group in self.groups.items() if topic in group.subscriptions]


class ProducerTable(Generic[_ConnectionT]):
    """The members of all producer groups."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[_ConnectionT, ClientInfo]] = {}
        self._by_client_id: dict[str, _ConnectionT] = {}
        self._memberships: _Memberships[_ConnectionT] = _Memberships()
        self._turn = 0

    def register(self, name: str, connection: _ConnectionT, client: ClientInfo) -> None:
        """Take in one group of a heartbeat."""
        members = self.groups.setdefault(name, {})
        before = members.get(connection)
        members[connection] = client
        self._memberships.add(connection, name)
        self._by_client_id[client.client_id] = connection
        if before is not None and before.client_id != client.client_id:
            self._forget_id(before.client_id, connection)

    def unregister(self, name: str, connection: _ConnectionT) -> None:
        """Take a client out of a group."""
        members = self.groups.get(name, {})
        gone = members.pop(connection, None)
        self._memberships.remove(connection, name)
        if not members:
            self.groups.pop(name, None)
        if gone is not None:
            self._forget_id(gone.client_id, connection)

    def find(self, client_id: str) -> _ConnectionT | None:
        """Where a client is that has a producer (ProducerManager.findChannel)."""
        return self._by_client_id.get(client_id)

    def disconnect(self, connection: _ConnectionT) -> None:
        """Take a connection out of all groups."""
        for name in self._memberships.of(connection):
            self.unregister(name, connection)

    def available(
        self, name: str, is_usable: Callable[[_ConnectionT], bool]
    ) -> _ConnectionT | None:
        """One of a group's members that are usable, each in turn (getAvailableChannel)."""
        members = list(self.groups.get(name, ()))
        self._turn += 1
        for i in range(len(members)):
            member = members[(self._turn + i) % len(members)]
            if is_usable(member):
                return member
        return None

    def silent(self, now_ms: int, timeout_ms: int) -> list[_ConnectionT]:
        """The connections whose last heartbeat is older than ``timeout_ms``."""
        return _silent(self.groups.values(), now_ms, timeout_ms)

    def _forget_id(self, client_id: str, connection: _ConnectionT) -> None:
        """Unless the connection goes by this id in another group."""
        groups = (self.groups[name] for name in self._memberships.of(connection))
        if self._by_client_id.get(client_id) == connection and not any(
            members[connection].client_id == client_id for members in groups
        ):
            del self._by_client_id[client_id]


def _silent(
    tables: Iterable[dict[_ConnectionT, ClientInfo]], now_ms: int, timeout_ms: int
) -> list[_ConnectionT]:
    found = {
        connection: None
        for members in tables
        for connection, client in members.items()
        if now_ms - client.seen_ms > timeout_ms
    }
    return list(found)
