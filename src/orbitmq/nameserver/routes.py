"""The route table: brokers, their addresses, and the topics each has.

A state machine: the time is an argument, and nothing here reads a socket. A broker is kept while
its connection lasts and it registers or beats at least every 120 s. Follows RouteInfoManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from typing import Final, NamedTuple

import msgspec

from orbitmq import codes
from orbitmq.errors import BrokerError
from orbitmq.wire.bodies import (
    MASTER_ID,
    BrokerData,
    ClusterInfo,
    DataVersion,
    QueueData,
    TopicConfig,
    TopicRouteData,
)
from orbitmq.wire.registration import TopicList

log = logging.getLogger("orbitmq.nameserver")

BROKER_TIMEOUT_MS: Final = 120_000
# Java's name server keeps whatever it is told; these bound what strangers can have kept.
MAX_NAME_LENGTH: Final = 255
"""How long names and addresses may be, in characters."""
MAX_BROKERS: Final = 64
"""How many brokers may register over one connection."""
MAX_TOPICS: Final = 200_000
"""How many topics are kept."""
MAX_QUEUES: Final = 65_536
"""How many queues a topic may have on one broker."""
_WRITE: Final = 2
_READ_WRITE: Final = 6
# Java's TopicSysFlag
_UNIT: Final = 1
_UNIT_SUB: Final = 2


class BrokerId(NamedTuple):
    """One broker process: its cluster and address."""

    cluster: str
    address: str


class Registration(msgspec.Struct, frozen=True):
    """What a broker says of itself.

    ``timeout_ms``: how long it may be silent. ``acting_master``: whether the slave with the lowest
    id shall answer reads while there is no master; None from brokers before 5.0.
    """

    broker: BrokerId
    broker_name: str
    broker_id: int
    ha_address: str = ""
    timeout_ms: int | None = None
    acting_master: bool | None = None
    zone: str | None = None


class RegisterResult(NamedTuple):
    """What a slave learns by registering: where its master is."""

    master_address: str | None = None
    ha_address: str | None = None


class _LiveBroker(msgspec.Struct):
    registration: Registration
    connection: Hashable | None
    version: DataVersion
    seen_ms: int

    def is_silent(self, now_ms: int) -> bool:
        timeout_ms = self.registration.timeout_ms
        return now_ms - self.seen_ms > (BROKER_TIMEOUT_MS if timeout_ms is None else timeout_ms)


class RouteTable:
    """All that is known of brokers and topics."""

    def __init__(self) -> None:
        self._live: dict[BrokerId, _LiveBroker] = {}
        self._brokers: dict[str, BrokerData] = {}  # by broker name
        self._topics: dict[str, dict[str, QueueData]] = {}  # by topic, then broker name
        self._routes: dict[str, TopicRouteData] = {}  # those asked for, until they change

    # Brokers

    def register(
        self,
        registration: Registration,
        topics: Iterable[TopicConfig],
        version: DataVersion,
        connection: Hashable | None,
        now_ms: int,
        *,
        only_these: bool = False,
    ) -> RegisterResult | None:
        """Take in a broker and its topics, all or only those that changed.

        Topics that it has are left as they are unless the version is another, so that a name
        registered again stays without write permission. ``only_these`` takes the broker out of the
        routes of all other topics.

        None when a broker tells of a single topic before its first registration, or another
        broker with the same name and id has a newer state: nothing is changed then. Raises
        BrokerError for names that are too long, and too many brokers on one connection.
        """
        self._check(registration, connection)
        broker, name, broker_id = (
            registration.broker, registration.broker_name, registration.broker_id,
        )  # fmt: skip
        topics = list(topics)
        known = self._brokers.get(name)
        addresses = dict(known.broker_addrs) if known else {}
        if self._has_newer(BrokerId(broker.cluster, addresses.get(broker_id, "")), broker, version):
            log.warning("%s is refused: its name and id have a newer broker", registration)
            self._live.pop(broker, None)
            return None
        if broker_id not in addresses and len(topics) == 1:
            log.warning("%s is refused: it has told of one topic only", registration)
            return None
        # A slave that becomes master keeps its address under one id only.
        addresses = {
            key: address for key, address in addresses.items() if address != broker.address
        }
        addresses[broker_id] = broker.address
        self._put_broker(
            BrokerData(
                cluster=broker.cluster,
                broker_name=name,
                broker_addrs=addresses,
                enable_acting_master=bool(registration.acting_master),
                zone_name=registration.zone,
            )
        )
        is_first_slave = registration.acting_master is not None and broker_id == min(addresses)
        if broker_id == MASTER_ID or is_first_slave:
            if only_these:
                self._keep_only({topic.topic_name for topic in topics}, name)
            read_only = broker_id != MASTER_ID and registration.acting_master
            changed = self.version(broker) != version
            for topic in topics:
                if changed or name not in self._topics.get(topic.topic_name, ()):
                    self._put_queues(topic, name, topic.perm & ~_WRITE if read_only else topic.perm)
        if broker not in self._live:
            log.info("broker %s registered as %s, id %d", broker.address, name, broker_id)
        self._live[broker] = _LiveBroker(registration, connection, version, now_ms)
        return self._master_of(broker.cluster, name, broker_id)

    def touch(self, broker: BrokerId, now_ms: int) -> None:
        """A heartbeat of ``broker``; nothing if it is not registered."""
        live = self._live.get(broker)
        if live:
            live.seen_ms = now_ms

    def version(self, broker: BrokerId) -> DataVersion | None:
        """The version of the topics ``broker`` registered last."""
        live = self._live.get(broker)
        return live.version if live else None

    def unregister(self, broker: BrokerId, broker_name: str) -> None:
        """Forget a broker; with the last of its name go the name's queues."""
        if self._live.pop(broker, None):
            log.info("broker %s (%s) is gone", broker.address, broker_name)
        data = self._brokers.get(broker_name)
        if data is None:
            return
        left = {
            key: address for key, address in data.broker_addrs.items() if address != broker.address
        }
        if left:
            self._put_broker(msgspec.structs.replace(data, broker_addrs=left))
            return
        del self._brokers[broker_name]
        self._routes.clear()
        for topic in list(self._topics):
            self._drop_queues(topic, [broker_name])

    def disconnected(self, connection: Hashable) -> None:
        """Forget the brokers whose connection has ended."""
        for live in list(self._live.values()):
            if live.connection is not None and live.connection == connection:
                self._unregister(live)

    def expire(self, now_ms: int) -> list[Hashable]:
        """Forget brokers that are silent; returns their connections, to be closed."""
        silent = [live for live in self._live.values() if live.is_silent(now_ms)]
        for live in silent:
            log.warning("broker %s was silent too long", live.registration.broker.address)
            self._unregister(live)
        return [live.connection for live in silent if live.connection is not None]

    def members(self, broker_name: str) -> dict[int, str]:
        """The addresses behind a broker name, by broker id."""
        data = self._brokers.get(broker_name)
        return dict(data.broker_addrs) if data else {}

    def clusters(self) -> ClusterInfo:
        """All brokers, and the names in each cluster."""
        names: dict[str, set[str]] = {}
        for data in self._brokers.values():
            names.setdefault(data.cluster, set()).add(data.broker_name)
        return ClusterInfo(
            dict(self._brokers), {cluster: frozenset(found) for cluster, found in names.items()}
        )

    def set_writable(self, broker_name: str, *, writable: bool) -> int:
        """Allow or forbid writing to all queues of a broker; returns how many topics it has."""
        count = 0
        for topic, queues in self._topics.items():
            data = queues.get(broker_name)
            if data:
                perm = _READ_WRITE if writable else data.perm & ~_WRITE
                self._put(topic, msgspec.structs.replace(data, perm=perm))
                count += 1
        return count

    # Topics

    def route(self, topic: str) -> TopicRouteData | None:
        """Where a topic's queues are, the same object until that changes; None: nowhere."""
        known = self._routes.get(topic)
        if known is not None:
            return known
        queues = self._topics.get(topic, {})
        brokers = [self._brokers[name] for name in queues if name in self._brokers]
        if not brokers:
            return None
        route = TopicRouteData(queue_datas=list(queues.values()), broker_datas=brokers)
        self._routes[topic] = route
        return route

    def topics(self) -> TopicList:
        """All topics."""
        return TopicList(frozenset(self._topics))

    def cluster_topics(self, cluster: str) -> TopicList:
        """The topics of a cluster's brokers."""
        names = self.clusters().cluster_addr_table.get(cluster, frozenset())
        return TopicList(
            frozenset(topic for topic, queues in self._topics.items() if names & queues.keys())
        )

    def system_topics(self) -> TopicList:
        """The topics named after clusters and brokers, and the address of some broker to ask."""
        info = self.clusters()
        names = frozenset(info.cluster_addr_table) | frozenset(info.broker_addr_table)
        addresses = (data.broker_addrs for data in info.broker_addr_table.values())
        return TopicList(names, next((found[min(found)] for found in addresses), None))

    def unit_topics(self) -> TopicList:
        """The topics of units (getUnitTopics)."""
        return self._by_sys_flag(lambda flag: bool(flag & _UNIT))

    def unit_sub_topics(self) -> TopicList:
        """The topics that a group of a unit subscribes to (getHasUnitSubTopicList)."""
        return self._by_sys_flag(lambda flag: bool(flag & _UNIT_SUB))

    def unit_sub_only_topics(self) -> TopicList:
        """Those which belong to no unit themselves (getHasUnitSubUnUnitTopicList)."""
        return self._by_sys_flag(lambda flag: flag & (_UNIT | _UNIT_SUB) == _UNIT_SUB)

    def register_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Take in one topic's queues; none of them when a broker is not registered."""
        queues = list(queues)
        if all(data.broker_name in self._brokers for data in queues):
            for data in queues:
                if self._may_have(topic, data.read_queue_nums, data.write_queue_nums):
                    self._put(topic, data)
        else:
            log.warning(
                "topic %.99s is not registered: a broker of its %d queues is unknown",
                topic,
                len(queues),
            )

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, in one cluster or in all."""
        if cluster:
            self._drop_queues(topic, self.clusters().cluster_addr_table.get(cluster, ()))
        else:
            self._topics.pop(topic, None)
            self._routes.pop(topic, None)

    # Inner workings

    def _by_sys_flag(self, test: Callable[[int], bool]) -> TopicList:
        """The topics whose flags pass, as the first of their brokers tells them."""
        return TopicList(
            frozenset(
                topic
                for topic, queues in self._topics.items()
                if test(next(iter(queues.values())).topic_sys_flag)
            )
        )

    def _keep_only(self, topics: set[str], broker_name: str) -> None:
        for topic in [name for name, queues in self._topics.items() if broker_name in queues]:
            if topic not in topics:
                log.info("broker name %s has topic %s no more", broker_name, topic)
                self._drop_queues(topic, [broker_name])

    def _check(self, registration: Registration, connection: Hashable | None) -> None:
        broker = registration.broker
        names = (
            registration.broker_name, broker.cluster, broker.address, registration.ha_address,
            registration.zone or "",
        )  # fmt: skip
        if max(map(len, names)) > MAX_NAME_LENGTH:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"a broker's names and addresses have {MAX_NAME_LENGTH} characters at most: "
                "shorten them",
            )
        if connection is not None and broker not in self._live:
            count = sum(live.connection == connection for live in self._live.values())
            if count >= MAX_BROKERS:
                raise BrokerError(
                    codes.SYSTEM_ERROR,
                    f"{count} brokers are registered over this connection, as many as may be: use "
                    "another for more",
                )

    def _may_have(self, topic: str, *queues: int) -> bool:
        """Whether a topic with so many queues is kept; if not, that is logged."""
        if len(topic) > MAX_NAME_LENGTH or min(queues) < 0 or max(queues) > MAX_QUEUES:
            log.warning("topic %.99s with %s queues is left out: there is none such", topic, queues)
            return False
        if topic not in self._topics and len(self._topics) >= MAX_TOPICS:
            log.warning("topic %s is left out: there are %d already", topic, MAX_TOPICS)
            return False
        return True

    def _has_newer(self, holder: BrokerId, broker: BrokerId, version: DataVersion) -> bool:
        live = self._live.get(holder)
        return (
            live is not None
            and holder != broker
            and live.version.state_version > version.state_version
        )

    def _put_queues(self, topic: TopicConfig, broker_name: str, perm: int) -> None:
        if not self._may_have(topic.topic_name, topic.read_queue_nums, topic.write_queue_nums):
            return
        self._put(
            topic.topic_name,
            QueueData(
                broker_name=broker_name,
                read_queue_nums=topic.read_queue_nums,
                write_queue_nums=topic.write_queue_nums,
                perm=perm,
                topic_sys_flag=topic.topic_sys_flag,
            ),
        )

    def _put(self, topic: str, data: QueueData) -> None:
        queues = self._topics.setdefault(topic, {})
        if queues.get(data.broker_name) != data:
            queues[data.broker_name] = data
            self._routes.pop(topic, None)

    def _put_broker(self, data: BrokerData) -> None:
        if self._brokers.get(data.broker_name) != data:
            self._brokers[data.broker_name] = data
            self._routes.clear()

    def _drop_queues(self, topic: str, broker_names: Iterable[str]) -> None:
        self._routes.pop(topic, None)
        queues = self._topics.get(topic, {})
        for name in broker_names:
            queues.pop(name, None)
        if not queues:
            self._topics.pop(topic, None)

    def _master_of(self, cluster: str, broker_name: str, broker_id: int) -> RegisterResult:
        address = self._brokers[broker_name].master_address
        if broker_id == MASTER_ID or address is None:
            return RegisterResult()
        master = self._live.get(BrokerId(cluster, address))
        return RegisterResult(address, master.registration.ha_address if master else None)

    def _unregister(self, live: _LiveBroker) -> None:
        self.unregister(live.registration.broker, live.registration.broker_name)
