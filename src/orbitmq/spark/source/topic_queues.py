"""Which queues topics have, and on which brokers, as the name servers last told."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from orbitmq.client.namespace import with_namespace, without_namespace
from orbitmq.client.routes import subscribe_queues
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import ConnectError, NetworkError, TopicNotFoundError
from orbitmq.net.blocking import OPEN, Access
from orbitmq.spark.source.choice import Choice
from orbitmq.spark.source.offsets import Place, Queue
from orbitmq.spark.source.routes import fetch_routes, fetch_topics, master_addresses
from orbitmq.wire.bodies import TopicRouteData

log = logging.getLogger("orbitmq.spark")

DISCOVERY_SECONDS: Final = 5.0
"""How often the name servers are asked for new topics that match a pattern, and for the routes of
more than MANY topics."""
MANY: Final = 20


class TopicQueues:
    """The queues of ``topics``, a Choice or the name of one.

    Topics are known here by the names users know; brokers know them with their ``namespace``.
    """

    def __init__(
        self,
        name_servers: tuple[str, ...],
        topics: Choice | str,
        access: Access = OPEN,
        namespace: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.choice = Choice((topics,)) if isinstance(topics, str) else topics
        self.addresses: dict[Queue, str] = {}
        """Where each queue is read."""
        self._name_servers = name_servers
        self._access = access
        self._namespace = namespace
        self._clock = clock
        self._routes: dict[str, TopicRouteData] = {}
        self._refreshed_at: float | None = None
        self._topics: tuple[str, ...] = self.choice.topics
        self._by_address: dict[str, dict[Place, list[Queue]]] = {}
        self._away: list[str] = []
        self._without_routes: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Ask for topics and their queues anew.

        A name server that does not answer, or does not know a topic any more, is logged as long as
        an earlier answer can serve; otherwise its error is raised.
        """
        try:
            routes = self._fetch_routes()
        except NetworkError as error:
            if not self.addresses:
                raise
            log.warning("going on with the last known queues: %s", error)
            return
        unknown = {
            topic: route for topic, route in routes.items() if isinstance(route, TopicNotFoundError)
        }
        for topic, missing in sorted(unknown.items()):
            if topic not in self._routes and self.choice.pattern is None:
                raise missing
            if topic in self._routes and topic not in self._without_routes:
                log.warning("going on with the last known queues of %s: %s", topic, missing)
        self._without_routes = frozenset(unknown)
        news = {
            topic: route
            for topic, route in routes.items()
            if isinstance(route, TopicRouteData) and self._routes.get(topic) != route
        }
        if news:
            self._routes.update(news)
            self._take_routes()

    def address(self, queue: Queue) -> str:
        """Where ``queue`` is read. Raises ConnectError when the route names no such master."""
        try:
            return self.addresses[queue]
        except KeyError:
            raise ConnectError(
                f"{queue} cannot be read now: the name server knows no master of "
                f"{queue.broker_name}"
            ) from None

    def _at_brokers(self, queues: Iterable[Queue]) -> dict[str, list[Queue]]:
        found: dict[str, list[Queue]] = {}
        for queue in queues:
            if queue in self.addresses:
                found.setdefault(self.addresses[queue], []).append(queue)
        return found

    def _wire(self, topic: str) -> str:
        return with_namespace(self._namespace, topic)

    def _fetch_routes(self) -> dict[str, TopicRouteData | TopicNotFoundError]:
        """The routes of all topics, none where they were asked for not long ago."""
        now = self._clock.monotonic()
        recent = self._refreshed_at is not None and now - self._refreshed_at < DISCOVERY_SECONDS
        if recent and len(self._topics) > MANY:
            return {}
        if self.choice.pattern is not None and not recent:
            every, system = fetch_topics(self._name_servers, self._access)
            users = (without_namespace(name, self._namespace) for name in every if self._mine(name))
            found = self.choice.matching(users, system)
            self._topics = tuple(sorted({*found, *self._routes}))
        if not recent:
            self._refreshed_at = now
        wire = {self._wire(topic): topic for topic in self._topics}
        routes = fetch_routes(self._name_servers, [*wire], self._access) if wire else {}
        return {wire[name]: route for name, route in routes.items()}

    def _mine(self, name: str) -> bool:
        """Whether a topic of a name server's is of this namespace."""
        return self._namespace is None or without_namespace(name, self._namespace) != name

    def _take_routes(self) -> None:
        self.addresses = {}
        self._by_address = {}
        away = set()
        for topic, route in self._routes.items():
            # Only masters are read: a slave may lag, and what it lacks would look like lost
            # messages.
            masters = master_addresses(route)
            for _, broker_name, queue_id in subscribe_queues(topic, route):
                queue = Queue(topic, broker_name, queue_id)
                if not self.choice.takes(queue):
                    continue
                address = masters.get(broker_name)
                if address is None:
                    away.add(broker_name)
                    continue
                self.addresses[queue] = address
                places = self._by_address.setdefault(address, {})
                places.setdefault(Place(topic, broker_name), []).append(queue)
        self._away = sorted(away)
