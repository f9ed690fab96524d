"""Routes: which queues a topic has, on which brokers, at which addresses. No I/O here.

Follows MQClientInstance.topicRouteData2TopicPublishInfo, topicRouteData2TopicSubscribeInfo and the
findBrokerAddress methods. Topics mapped across brokers (5.x static topics) are not known to it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import MASTER_ID, TopicRouteData

_WRITABLE = 2
_READABLE = 4


def publish_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues a producer may write, by broker and number.

    Where the topic has an order configuration (``broker:queues;...``) that decides. A broker
    whose master is gone has none.
    """
    if route.order_topic_conf:
        return [
            MessageQueue(topic, broker, queue_id)
            for broker, _, count in (
                item.partition(":") for item in route.order_topic_conf.split(";") if item
            )
            for queue_id in range(int(count))
        ]
    with_master = {
        broker.broker_name for broker in route.broker_datas if broker.master_address is not None
    }
    return [
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & _WRITABLE and queues.broker_name in with_master
        for queue_id in range(queues.write_queue_nums)
    ]


def subscribe_queues(topic: str, route: TopicRouteData) -> list[MessageQueue]:
    """The queues a consumer may read, by broker and number."""
    return [
        MessageQueue(topic, queues.broker_name, queue_id)
        for queues in sorted(route.queue_datas, key=lambda queues: queues.broker_name)
        if queues.perm & _READABLE
        for queue_id in range(queues.read_queue_nums)
    ]


def describe_route(route: TopicRouteData) -> str:
    """The queues of each broker, for logs."""
    queues = ", ".join(
        f"{data.read_queue_nums}/{data.write_queue_nums} (permission {data.perm}) on "
        f"{data.broker_name}"
        for data in route.queue_datas
    )
    return f"read/write queues {queues}" if queues else "no queue"


class RouteTable:
    """What a client knows of topics and brokers."""

    def __init__(self) -> None:
        self._routes: dict[str, TopicRouteData] = {}
        self._subscribe_queues: dict[str, tuple[MessageQueue, ...]] = {}
        self._brokers: dict[str, dict[int, str]] = {}

    def get(self, topic: str) -> TopicRouteData | None:
        """The route of ``topic`` as it was last fetched."""
        return self._routes.get(topic)

    def put(self, topic: str, route: TopicRouteData) -> bool:
        """Take over a fetched route; whether it differs from the one before."""
        old = self._routes.get(topic)
        if old is not None and _sorted(old) == _sorted(route):
            return False
        self._routes[topic] = route
        self._subscribe_queues.pop(topic, None)
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        return True

    def subscribe_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The readable queues of ``topic``, whose route is known, sorted.

        The same objects until the route changes: thousands of them are soon compared.
        """
        queues = self._subscribe_queues.get(topic)
        if queues is None:
            queues = tuple(sorted(subscribe_queues(topic, self._routes[topic])))
            self._subscribe_queues[topic] = queues
        return queues

    def broker_address(
        self, broker_name: str, broker_id: int = MASTER_ID, *, only_this: bool = False
    ) -> str | None:
        """The address of a broker, None where it is not known.

        Without ``only_this`` another broker of that name stands in for one that is missing, as in
        findBrokerAddressInSubscribe.
        """
        addresses = self._brokers.get(broker_name)
        if not addresses:
            return None
        address = addresses.get(broker_id)
        if address is None and broker_id != MASTER_ID:
            address = addresses.get(broker_id + 1)
        if address is None and not only_this:
            address = next(iter(addresses.values()))
        return address

    def master_address(self, broker_name: str) -> str | None:
        """The address of the master, which takes the writes."""
        addresses = self._brokers.get(broker_name)
        return addresses.get(MASTER_ID) if addresses else None

    def address_for_topic(self, topic: str) -> str | None:
        """Any broker of ``topic``, a master where it has one (findBrokerAddrByTopic)."""
        route = self._routes.get(topic)
        if route is None or not route.broker_datas:
            return None
        addresses = random.choice(route.broker_datas).broker_addrs  # noqa: S311 - not a secret
        if MASTER_ID in addresses:
            return addresses[MASTER_ID]
        return random.choice(list(addresses.values())) if addresses else None  # noqa: S311

    def brokers(self, *, masters_only: bool = False) -> Iterable[str]:
        """The addresses of all brokers known."""
        return [
            address
            for addresses in self._brokers.values()
            for broker_id, address in addresses.items()
            if not masters_only or broker_id == MASTER_ID
        ]

    def forget_offline_brokers(self) -> list[str]:
        """Drop the addresses no route names any more, and return them (cleanOfflineBroker)."""
        named = {
            address
            for route in self._routes.values()
            for broker in route.broker_datas
            for address in broker.broker_addrs.values()
        }
        gone = [address for address in self.brokers() if address not in named]
        if gone:
            self._brokers = {
                name: online
                for name, addresses in self._brokers.items()
                if (online := {id_: at for id_, at in addresses.items() if at in named})
            }
        return gone


def _sorted(route: TopicRouteData) -> tuple[object, ...]:
    return (
        route.order_topic_conf,
        sorted(route.queue_datas, key=lambda queues: queues.broker_name),
        sorted(route.broker_datas, key=lambda broker: broker.broker_name),
    )
