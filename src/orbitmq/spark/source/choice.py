"""Which topics and queues a query reads, as its options say it: pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from orbitmq.names import check_topic, is_system_topic
from orbitmq.spark.source.offsets import Queue

_ASSIGNED: Final = (
    'JSON of queue ids by topic such as {"flights": [0, 1]}, or by topic and broker name such as '
    '{"flights": {"broker-a": [0, 1]}}'
)


class Choice(msgspec.Struct, frozen=True):
    """What is read: ``topics``, or those whose name is a ``pattern``, of them all queues or some.

    ``queues`` are a topic, a broker name (None: every broker) and a queue id.
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    queues: frozenset[tuple[str, str | None, int]] | None = None

    @property
    def only_topic(self) -> str | None:
        """The topic, where there is but one."""
        return self.topics[0] if len(self.topics) == 1 else None

    def matching(self, names: Iterable[str], system: Collection[str] = ()) -> tuple[str, ...]:
        """The topics among ``names`` that are read, sorted.

        ``.*`` means topics of users: neither ``system`` topics nor, unless the pattern begins with
        ``%``, those for retries and dead letters.
        """
        if self.pattern is None:
            return self.topics
        pattern = re.compile(self.pattern)
        special = self.pattern.startswith("%")
        return tuple(
            sorted(
                name
                for name in names
                if pattern.fullmatch(name)
                and name not in system
                and not is_system_topic(name)
                and (special or not name.startswith("%"))
            )
        )

    def takes(self, queue: Queue) -> bool:
        """Whether ``queue``, of a topic that is read, is."""
        return (
            self.queues is None
            or queue in self.queues
            or (queue.topic, None, queue.queue_id) in self.queues
        )

    def missing(self, queues: Collection[Queue]) -> list[str]:
        """The queues to be read that are not among ``queues``."""
        known = {*queues} | {(queue.topic, None, queue.queue_id) for queue in queues}
        return [
            f"queue {queue_id} of {topic}{f' on {broker_name}' if broker_name else ''}"
            for topic, broker_name, queue_id in sorted(
                (self.queues or frozenset()) - known, key=lambda item: (item[0], item[2])
            )
        ]


def parse_topic(text: str) -> Choice:
    """The name of a topic."""
    check_topic(text)
    return Choice((text,))


def parse_topics(text: str) -> Choice:
    """Topics joined by ``,``."""
    names = tuple(dict.fromkeys(name for part in text.split(",") if (name := part.strip())))
    if not names:
        raise ValueError("topics joined by ',' such as flights,bookings")
    for name in names:
        check_topic(name)
    return Choice(names)


def parse_pattern(text: str) -> Choice:
    """A regular expression that a whole name must match."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"a regular expression such as flights-.*: {error}") from error
    if not text:
        raise ValueError("a regular expression such as flights-.*")
    return Choice(pattern=text)


def parse_assign(text: str) -> Choice:
    """JSON of queues."""
    try:
        document = json.loads(text)
        queues = frozenset(
            (topic, broker_name, queue_id)
            for topic, brokers in document.items()
            for broker_name, ids in (
                brokers.items() if type(brokers) is dict else [(None, brokers)]
            )
            for queue_id in ids
        )
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ValueError(_ASSIGNED) from error
    if not queues or any(type(queue_id) is not int or queue_id < 0 for *_, queue_id in queues):
        raise ValueError(_ASSIGNED)
    topics = tuple(sorted({topic for topic, _, _ in queues}))
    for topic in topics:
        check_topic(topic)
    return Choice(topics, queues=queues)
