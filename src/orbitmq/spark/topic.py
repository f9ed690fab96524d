"""What a Spark driver asks a cluster about topics: their queues, bounds and times, group offsets.

All of it by blocking requests; the tasks' pulls are in pulling.py.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from orbitmq import codes
from orbitmq.client.namespace import with_namespace, without_namespace
from orbitmq.client.routes import subscribe_queues
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ConfigError,
    ConnectError,
    NetworkError,
    TopicNotFoundError,
    for_code,
)
from orbitmq.net.blocking import CONNECTIONS, OPEN, Access, BlockingConnection
from orbitmq.spark.choice import Choice
from orbitmq.spark.offsets import Bounds, Offsets, Place, Queue
from orbitmq.spark.patience import Patience
from orbitmq.spark.topic_stats import read_ranges
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import (
    GetRouteInfoRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.wire.registration import TopicList
from orbitmq.wire.signing import Fields

log = logging.getLogger("orbitmq.spark")

DISCOVERY_SECONDS: Final = 5.0
"""How often the name servers are asked for new topics that match a pattern, and for the routes of
more than MANY topics."""
MANY: Final = 20

_NAME_SERVER_TIMEOUT_MS = 3_000


def fetch_route(name_servers: Iterable[str], topic: str, access: Access = OPEN) -> TopicRouteData:
    """The topic's route, from the first name server that answers.

    Raises TopicNotFoundError when none knows the topic, ConnectError naming them all when none
    answers.
    """
    route = fetch_routes(name_servers, [topic], access)[topic]
    if isinstance(route, TopicNotFoundError):
        raise route
    return route


def fetch_routes(
    name_servers: Iterable[str], topics: Sequence[str], access: Access = OPEN
) -> dict[str, TopicRouteData | TopicNotFoundError]:
    """The routes of ``topics``, or the error of one that the name server does not know.

    From the first name server that answers; raises ConnectError naming them all when none does.
    """

    def ask(connection: BlockingConnection) -> dict[str, TopicRouteData | TopicNotFoundError]:
        headers = [
            GetRouteInfoRequestHeader(topic, accept_standard_json_only=True) for topic in topics
        ]
        answers = _answers(
            connection,
            [(RequestCode.GET_ROUTEINFO_BY_TOPIC, header) for header in headers],
            timeout_ms=_NAME_SERVER_TIMEOUT_MS,
        )
        found: dict[str, TopicRouteData | TopicNotFoundError] = {}
        for topic, answer in zip(topics, answers, strict=True):
            if answer.code == codes.SUCCESS:
                found[topic] = TopicRouteData.decode(answer.body)
                continue
            error = for_code(answer.code, answer.remark, connection.address, access.access_key)
            if not isinstance(error, TopicNotFoundError):
                raise error
            text = f"topic {topic!r} has no route: {error.remark}"
            found[topic] = TopicNotFoundError(error.code, text, connection.address)
        return found

    failures = []
    for address in name_servers:
        try:
            with CONNECTIONS.borrow(address, access) as connection:
                return ask(connection)
        except NetworkError as error:
            failures.append(str(error))
    raise _no_name_server(failures)


def fetch_topics(
    name_servers: Iterable[str], access: Access = OPEN
) -> tuple[frozenset[str], frozenset[str]]:
    """All topics the first name server that answers knows, and which of them are RocketMQ's own."""
    failures = []
    for address in name_servers:
        try:
            with CONNECTIONS.borrow(address, access) as connection:
                every = connection.request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
                system = connection.request(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
            return (
                TopicList.decode(every.body).topic_list,
                TopicList.decode(system.body).topic_list,
            )
        except NetworkError as error:
            failures.append(str(error))
    raise _no_name_server(failures)


def master_addresses(route: TopicRouteData) -> dict[str, str]:
    """The masters by broker name, of those that have one."""
    return {
        broker.broker_name: address
        for broker in route.broker_datas
        if (address := broker.master_address) is not None
    }


class TopicClient:
    """The queues of ``topics``, a Choice or the name of one, as the name servers last told.

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
        self.stored: dict[Queue, int] = {}
        """When the last message of each queue was stored (ms), as :meth:`bounds` last saw it."""
        self.deleted: set[Queue] = set()
        """The queues whose broker did not know their topic any more at the last :meth:`bounds`."""
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
        self._without_stats: set[str] = set()

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

    def bounds(self, *, all_brokers: bool) -> dict[Queue, Bounds]:
        """The bounds of every queue.

        Unless ``all_brokers`` must answer, the queues of one that does not are left out and a
        warning is logged. Raises ConfigError where a queue that was asked for is not there.
        """
        if all_brokers and self._away:
            raise ConnectError(
                f"brokers of {', '.join(self._routes)} are away, the name server knows no master "
                f"of: {', '.join(self._away)}"
            )
        if all_brokers and (missing := self.choice.missing(self.addresses.keys())):
            raise ConfigError("assign", ", ".join(missing), "queues that the topics have")
        found: dict[Queue, Bounds] = {}
        self.deleted = set()
        for address, places in self._by_address.items():
            try:
                with CONNECTIONS.borrow(address, self._access) as connection:
                    self._bounds_at(connection, places, found)
            except NetworkError as error:
                if all_brokers:
                    raise
                topics = ", ".join(sorted({place.topic for place in places}))
                count = sum(map(len, places.values()))
                log.warning("%d queues of %s wait: %s", count, topics, error)
        return found

    def all_bounds(self, wait_ms: int) -> dict[Queue, Bounds]:
        """The bounds of every queue as they are now; brokers are waited for up to ``wait_ms``.

        Name servers are not: where none answers, their address is more likely a wrong one.
        """
        self.refresh()
        patience = Patience("planning", wait_ms)
        while True:
            try:
                return self.bounds(all_brokers=True)
            except NetworkError as error:
                patience.wait_after(error)
                self.refresh()

    def first_stored(self, queues: Iterable[Queue]) -> dict[Queue, int]:
        """When the first message of each queue was stored (ms), of those that have one."""
        answers = self._ask_each(
            RequestCode.GET_EARLIEST_MSG_STORETIME,
            {queue: self._queue_header(queue) for queue in queues},
        )
        times = {
            queue: answer.header(TimestampResponseHeader).timestamp
            for queue, answer in answers.items()
            if answer.code == codes.SUCCESS
        }
        return {queue: time for queue, time in times.items() if time > 0}

    def offsets_at(self, times: Mapping[Queue, int]) -> Offsets:
        """The offset of the first message stored at a queue's time (ms) or later, or its end."""
        answers = self._ask_each(
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
            {
                queue: SearchOffsetRequestHeader(
                    self._wire(queue.topic), queue.queue_id, time, bname=queue.broker_name
                )
                for queue, time in times.items()
            },
        )
        return {
            # Brokers of 4.9 give the last message where all were stored before.
            queue: _END
            if self.stored.get(queue, times[queue]) < times[queue]
            else self._offset(answer, queue)
            for queue, answer in answers.items()
        }

    def group_offsets(self, group: str, queues: Collection[Queue]) -> Offsets:
        """The committed offsets of ``group``, of those queues that it has some of."""
        answers = self._ask_each(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {
                queue: QueryConsumerOffsetRequestHeader(
                    group, self._wire(queue.topic), queue.queue_id,
                    set_zero_if_not_found=False, bname=queue.broker_name,
                )
                for queue in queues
            },
        )  # fmt: skip
        return {
            queue: self._offset(answer, queue)
            for queue, answer in answers.items()
            if answer.code != codes.QUERY_NOT_FOUND
        }

    def commit(self, group: str, offsets: Offsets) -> None:
        """Make ``offsets`` the group's. A broker that refuses or fails is logged.

        The group's offsets only mirror the query's, so a query does not fail for them.
        """
        for address, queues in self._at_brokers(offsets).items():
            requests = [
                (
                    RequestCode.UPDATE_CONSUMER_OFFSET,
                    UpdateConsumerOffsetRequestHeader(
                        consumer_group=group,
                        topic=self._wire(queue.topic),
                        queue_id=queue.queue_id,
                        commit_offset=offsets[queue],
                        bname=queue.broker_name,
                    ),
                )
                for queue in queues
            ]
            try:
                with CONNECTIONS.borrow(address, self._access) as connection:
                    connection.request_all(requests)
            except (NetworkError, BrokerError) as error:
                log.warning("offsets of group %s were not committed: %s", group, error)

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

    def _bounds_at(
        self,
        connection: BlockingConnection,
        places: Mapping[Place, list[Queue]],
        found: dict[Queue, Bounds],
    ) -> None:
        """The bounds of queues on one broker: a request a topic, however many queues it has."""
        if connection.address in self._without_stats:
            self._bounds_one_by_one(connection, places, found)
            return
        requests = [
            (RequestCode.GET_TOPIC_STATS_INFO, TopicRequestHeader(self._wire(place.topic)))
            for place in places
        ]
        answers = _answers(connection, requests)
        for queues, answer in zip(places.values(), answers, strict=True):
            if answer.code == codes.TOPIC_NOT_EXIST:
                self.deleted.update(queues)
            elif answer.code != codes.SUCCESS:
                log.info("%s tells no statistics: %s", connection.address, answer.remark)
                self._without_stats.add(connection.address)
                self._bounds_one_by_one(connection, places, found)
                return
            else:
                by_id = read_ranges(answer.body)
                for queue in queues:
                    offsets = by_id.get(queue.queue_id)
                    if offsets is None:  # never written
                        found[queue] = Bounds(0, 0)
                        continue
                    # A queue without messages may be said to begin at -1.
                    first = max(offsets.min_offset, 0)
                    found[queue] = Bounds(first, max(first, offsets.max_offset))
                    self.stored[queue] = offsets.last_update_timestamp

    def _bounds_one_by_one(
        self,
        connection: BlockingConnection,
        places: Mapping[Place, list[Queue]],
        found: dict[Queue, Bounds],
    ) -> None:
        """The same for who may not ask for statistics."""
        every = [queue for queues in places.values() for queue in queues]
        answers = connection.request_all(
            (code, self._queue_header(queue))
            for queue in every
            for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
        )
        offsets = [max(answer.header(OffsetResponseHeader).offset, 0) for answer in answers]
        for queue, first, end in zip(every, offsets[0::2], offsets[1::2], strict=True):
            found[queue] = Bounds(first, max(first, end))

    def _ask_each(
        self, code: RequestCode, headers: Mapping[Queue, Fields]
    ) -> dict[Queue, RemotingCommand]:
        """The answers of the brokers of queues, whatever their codes."""
        answers: dict[Queue, RemotingCommand] = {}
        for address, queues in self._at_brokers(headers).items():
            with CONNECTIONS.borrow(address, self._access) as connection:
                got = _answers(connection, [(code, headers[queue]) for queue in queues])
            answers.update(zip(queues, got, strict=True))
        return answers

    def _offset(self, answer: RemotingCommand, queue: Queue) -> int:
        if answer.code != codes.SUCCESS:
            address = self.addresses[queue]
            raise for_code(answer.code, answer.remark, address, self._access.access_key)
        return answer.header(OffsetResponseHeader).offset

    def _queue_header(self, queue: Queue) -> TopicQueueRequestHeader:
        return TopicQueueRequestHeader(
            self._wire(queue.topic), queue.queue_id, bname=queue.broker_name
        )

    def _at_brokers(self, queues: Iterable[Queue]) -> dict[str, list[Queue]]:
        found: dict[str, list[Queue]] = {}
        for queue in queues:
            if queue in self.addresses:
                found.setdefault(self.addresses[queue], []).append(queue)
        return found

    def _wire(self, topic: str) -> str:
        return with_namespace(self._namespace, topic)


_END: Final = 2**63 - 1
"""After any message; whoever asks knows the queue's bounds."""


def _answers(
    connection: BlockingConnection,
    requests: Iterable[tuple[int, Fields]],
    timeout_ms: int = 15_000,
) -> list[RemotingCommand]:
    """The answers to requests sent together, in their order, whatever their codes."""
    opaques = [connection.send(code, header) for code, header in requests]
    answers: dict[int, RemotingCommand] = {}
    while len(answers) < len(opaques):
        answer = connection.receive(timeout_ms)
        answers[answer.opaque] = answer
    return [answers[opaque] for opaque in opaques]


def _no_name_server(failures: Iterable[str]) -> ConnectError:
    return ConnectError(
        f"no name server answered, check nameServer and that they run: {'; '.join(failures)}"
    )
