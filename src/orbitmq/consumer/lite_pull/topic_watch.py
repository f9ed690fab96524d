"""TopicWatch: tells listeners when the queues of a topic change.

For those who assign queues themselves, and must hear of new ones. Follows
registerTopicMessageQueueChangeListener and fetchTopicMessageQueuesAndCompare of
DefaultLitePullConsumerImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from orbitmq.client.functions import check_plain_function
from orbitmq.errors import OrbitMQError
from orbitmq.message import MessageQueue

log = logging.getLogger("orbitmq.consumer")

TopicMessageQueueChangeListener: TypeAlias = Callable[[str, set[MessageQueue]], None]
"""Gets a topic and the queues it has now (Java's interface of this name)."""

_FIRST_CHECK_SECONDS: Final = 10.0


class TopicWatch:
    """Looks at topics every ``interval_seconds``, first after 10 s or that, whichever is less.

    ``fetch`` gives the queues of a topic or raises OrbitMQError, ``tell`` calls a listener. Lives
    on the private loop; :meth:`register` may be called from any thread.
    """

    def __init__(
        self,
        fetch: Callable[[str], Awaitable[Iterable[MessageQueue]]],
        tell: Callable[[TopicMessageQueueChangeListener, str, set[MessageQueue]], None],
        interval_seconds: float,
    ) -> None:
        self._fetch = fetch
        self._tell = tell
        self._interval = interval_seconds
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}
        self._known: dict[str, set[MessageQueue]] = {}

    def register(self, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        """Have ``listener`` told of ``topic``, in place of the one before."""
        check_plain_function("listener", listener, "a plain function of a topic and its queues")
        if topic in self._listeners:
            log.warning("topic %s had a listener for changed queues; a new one takes over", topic)
        self._listeners = {**self._listeners, topic: listener}

    async def note(self, topic: str) -> None:
        """Take the queues of ``topic`` as they are for known, if none are; a failure is logged."""
        if topic not in self._known and (queues := await self._look(topic)) is not None:
            self._known[topic] = queues

    async def run(self) -> None:
        """Look at all topics, again and again, until cancelled."""
        for topic in self._listeners:
            await self.note(topic)
        await asyncio.sleep(min(_FIRST_CHECK_SECONDS, self._interval))
        while True:
            for topic in self._listeners:
                await self._check(topic)
            await asyncio.sleep(self._interval)

    async def _check(self, topic: str) -> None:
        queues = await self._look(topic)
        if queues is not None and queues != self._known.get(topic):
            self._known[topic] = queues
            self._tell(self._listeners[topic], topic, set(queues))

    async def _look(self, topic: str) -> set[MessageQueue] | None:
        try:
            return set(await self._fetch(topic))
        except OrbitMQError as error:
            log.warning("the queues of topic %s cannot be looked at now: %s", topic, error)
            return None
