"""The routes of a producer: the queues of each topic it sends to, found when first needed.

Follows TopicPublishInfo and DefaultMQProducerImpl.tryToFindTopicPublishInfo. Lives on the private
loop, except where a method says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet

import msgspec

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.client.routes import publish_queues
from orbitmq.errors import NetworkError, OrbitMQError, TopicNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.producer.config import ProducerConfig
from orbitmq.wire.bodies import TopicRouteData

log = logging.getLogger("orbitmq.producer")

_RETRY_SECONDS = 0.2


class PublishInfo:
    """The writable queues of a topic, and whose turn it is."""

    __slots__ = ("_next", "brokers", "queues")

    def __init__(self, queues: Sequence[MessageQueue], first: int = 0) -> None:
        self.queues = queues
        self.brokers = frozenset(queue.broker_name for queue in queues)
        self._next = first

    def select(self, avoid: AbstractSet[str] = frozenset()) -> MessageQueue:
        """The next queue in turn, of a broker other than those to ``avoid`` where there is one.

        After a failure the turn starts anywhere (MQFaultStrategy.selectOneMessageQueue).
        """
        if avoid:
            self._next = random.randrange(len(self.queues))  # noqa: S311 - not a secret
            if not self.brokers <= avoid:
                while self.queues[self._next % len(self.queues)].broker_name in avoid:
                    self._next += 1
        position = self._next
        self._next = position + 1
        return self.queues[position % len(self.queues)]

    def select_among(self, brokers: AbstractSet[str], *, anew: bool) -> MessageQueue:
        """The next queue in turn of one of ``brokers``; with ``anew`` the turn starts anywhere."""
        if anew:
            self._next = random.randrange(len(self.queues))  # noqa: S311 - not a secret
        count = len(self.queues)
        for _ in range(count):
            queue = self.queues[self._next % count]
            self._next += 1
            if queue.broker_name in brokers:
                return queue
        return self.select()

    def replaced_by(self, queues: Sequence[MessageQueue]) -> PublishInfo:
        """The same turn over other queues."""
        return PublishInfo(queues, self._next)


RouteHandler = Callable[["PublishInfo | OrbitMQError"], None]


class PublishRoutes:
    """What a producer knows of the topics it sends to."""

    def __init__(self, instance: ClientInstance, config: ProducerConfig) -> None:
        self._instance = instance
        self._config = config
        self._known: dict[str, PublishInfo] = {}
        self.get: Callable[[str], PublishInfo | None] = self._known.get
        """What is known of a topic; may be called from any thread."""
        self._once_known: set[str] = set()
        self._waiting: dict[str, list[RouteHandler]] = {}
        self._wanted_until: dict[str, float] = {}
        self._last_error: dict[str, OrbitMQError] = {}

    def find(self, topic: str, deadline: float, on_found: RouteHandler) -> None:
        """Call ``on_found`` with what a name server says of ``topic``, or with the error.

        While no name server answers, or none knows a queue of a topic that had some before, this
        tries again until ``deadline`` (of the clock's monotonic time). Callers get their answer
        in the order they came, before :meth:`get` gives it to anyone else.
        """
        self._wanted_until[topic] = max(deadline, self._wanted_until.get(topic, deadline))
        waiting = self._waiting.get(topic)
        if waiting is not None:
            waiting.append(on_found)
            return
        self._waiting[topic] = [on_found]
        self._instance.spawn(self._find(topic))

    async def wait_for(self, topic: str, deadline: float) -> PublishInfo | OrbitMQError | None:
        """What :meth:`find` finds; None where that takes until ``deadline``."""
        found: asyncio.Future[PublishInfo | OrbitMQError] = asyncio.Future()

        def on_found(outcome: PublishInfo | OrbitMQError) -> None:
            if not found.done():
                found.set_result(outcome)

        self.find(topic, deadline, on_found)
        left = max(0.0, deadline - self._instance.clock.monotonic())
        done, _ = await asyncio.wait([found], timeout=left)
        return found.result() if done else None

    def error_of(self, topic: str) -> OrbitMQError | None:
        """Why ``topic`` has not been found so far, while it is looked for."""
        return self._last_error.get(topic)

    def topics(self) -> Iterable[str]:
        """The topics sent to, those not found included."""
        return self._known.keys() | self._wanted_until.keys()

    def changed(self, topic: str, route: TopicRouteData) -> None:
        """Take over a route, for a topic of ours."""
        old = self._known.get(topic)
        if old is None and topic not in self._waiting:
            return
        queues = publish_queues(topic, route)
        if queues:
            self._found(topic, old.replaced_by(queues) if old else _first_info(queues))
        else:
            self._known.pop(topic, None)  # found again when next sent to

    async def refresh(self, topic: str) -> None:
        """Fetch the route anew; that it cannot be had is only logged."""
        try:
            await self._instance.fetch_route(topic)
        except OrbitMQError as error:
            log.debug("the route of topic %s was not refreshed: %s", topic, error)

    async def _find(self, topic: str) -> None:
        clock = self._instance.clock
        try:
            while True:
                try:
                    self._found(topic, await self._look_up(topic))
                    return
                except (NetworkError, TopicNotFoundError) as error:
                    if isinstance(error, TopicNotFoundError) and topic not in self._once_known:
                        raise
                    self._last_error[topic] = error
                    left = self._wanted_until[topic] - clock.monotonic()
                    if left <= 0:
                        self._answer(topic, error)
                        return
                await asyncio.sleep(min(left, _RETRY_SECONDS))
        except OrbitMQError as error:
            self._answer(topic, error)
        finally:
            self._last_error.pop(topic, None)

    async def _look_up(self, topic: str) -> PublishInfo:
        try:
            route = await self._instance.fetch_route(topic)
        except TopicNotFoundError:
            route = await self._default_route(topic)
            self._instance.adopt_route(topic, route)
        queues = publish_queues(topic, route)
        if not queues:
            raise TopicNotFoundError(
                codes.TOPIC_NOT_EXIST,
                f"topic {topic!r} has no queue to write: its brokers are away or it is read-only",
                self._instance.name_servers.addresses,
            )
        return self._known.get(topic) or _first_info(queues)

    async def _default_route(self, topic: str) -> TopicRouteData:
        """The route a new topic starts with: brokers create it when the first message comes."""
        key = self._config.create_topic_key
        try:
            route = await self._instance.query_route(key)
        except TopicNotFoundError as error:
            raise TopicNotFoundError(
                codes.TOPIC_NOT_EXIST,
                f"topic {topic!r} does not exist, and no broker creates topics by need "
                f"(autoCreateTopicEnable, which shows as topic {key}); create it first",
                self._instance.name_servers.addresses,
            ) from error
        most = self._config.default_topic_queue_nums
        queue_datas = []
        for queues in route.queue_datas:
            count = min(most, queues.read_queue_nums)
            queue_datas.append(
                msgspec.structs.replace(queues, read_queue_nums=count, write_queue_nums=count)
            )
        return msgspec.structs.replace(route, queue_datas=queue_datas)

    def _found(self, topic: str, info: PublishInfo) -> None:
        self._known[topic] = info
        self._once_known.add(topic)
        self._answer(topic, info)

    def _answer(self, topic: str, outcome: PublishInfo | OrbitMQError) -> None:
        for on_found in self._waiting.pop(topic, ()):
            on_found(outcome)


def _first_info(queues: Sequence[MessageQueue]) -> PublishInfo:
    """Start at a random queue, so that many producers spread over them."""
    return PublishInfo(queues, random.randrange(len(queues)))  # noqa: S311 - not a secret
