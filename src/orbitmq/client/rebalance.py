"""Rebalance: which queues this consumer takes and gives up, and why.

Every consumer of a group works out its own share from the same lists of queues and of client ids,
every 20 s and when something changed, as Java's RebalanceImpl does. Two things go beyond Java.
The log says which queues moved, from whom, and why. And a queue that comes from a consumer that
is still there is announced as such, so that its first pull can wait for the last offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from orbitmq.allocate import AllocateStrategy
from orbitmq.client.instance import ClientInstance
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.errors import BrokerError, NetworkError, OrbitMQError, TopicNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.names import RETRY_PREFIX

log = logging.getLogger("orbitmq.client.rebalance")

_EAGER_LOOKS: Final = 30
"""How often a topic without a route is asked for again soon instead of at the next rebalance."""
_MAX_OWNERS_WORK: Final = 1_000_000
"""Queues times clients beyond which former owners are not worked out."""


class QueueOwner(Protocol):
    """What Rebalance asks of its consumer."""

    def subscribed_topics(self) -> Collection[str]:
        """The topics whose queues are wanted."""
        ...

    def owned(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues held now; one that is still being given up is ``leaving``."""
        ...

    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        """Start on these queues; the value says whether a running consumer gives the queue up.

        False when some could not be had yet.
        """
        ...

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop with these queues: save their offsets, release their locks."""
        ...

    async def queues_changed(
        self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        """The queues held of ``topic`` are others than before."""
        ...


class Plan(NamedTuple):
    """What must change: queues to give up, queues that nobody pulls any more, queues to take."""

    lost: list[MessageQueue]
    expired: list[MessageQueue]
    gained: list[MessageQueue]


def plan(
    topic: str,
    owned: Mapping[MessageQueue, ProcessQueue],
    assigned: Collection[MessageQueue],
    now_ms: int,
    *,
    expire: bool,
) -> Plan:
    """The way from the queues ``owned`` of ``topic`` to those ``assigned``.

    With ``expire`` a queue not pulled for two minutes is given up and taken anew
    (updateProcessQueueTableInRebalance). Queues on their way out are left alone.
    """
    wanted = set(assigned)
    lost, expired = [], []
    for queue, process_queue in owned.items():
        if queue.topic != topic or process_queue.leaving:
            continue
        if queue not in wanted:
            lost.append(queue)
        elif expire and process_queue.pull_expired(now_ms):
            expired.append(queue)
    gained = [queue for queue in assigned if queue not in owned or queue in expired]
    return Plan(lost, expired, gained)


class Membership(NamedTuple):
    """What a topic's shares are worked out from."""

    client_ids: tuple[str, ...]
    queues: tuple[MessageQueue, ...]

    def change_since(self, before: Membership | None) -> str:
        """What is different from ``before``, in words."""
        if before is None:
            return "first share"
        told = [
            f"{what} {', '.join(map(str, sorted(items)))}"
            for what, items in (
                ("joined:", set(self.client_ids) - set(before.client_ids)),
                ("left:", set(before.client_ids) - set(self.client_ids)),
            )
            if items
        ]
        if len(self.queues) != len(before.queues):
            told.append(f"the topic's queues went from {len(before.queues)} to {len(self.queues)}")
        elif self.queues != before.queues:
            told.append("the topic's queues changed")
        return "; ".join(told) or "nothing changed since, but the queue was not held"


class Rebalance:
    """Balances the queues of one consumer. One run at a time; all on the private loop."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        owner: QueueOwner,
        strategy: AllocateStrategy | None,
        *,
        expire: bool,
    ) -> None:
        """``strategy`` None is broadcasting: every consumer takes all queues."""
        self._instance = instance
        self._group = group
        self._owner = owner
        self._strategy = strategy
        self._expire = expire
        self._running = asyncio.Lock()
        self._next_waits = False
        self._known: dict[str, Membership] = {}
        self._looks: Counter[str] = Counter()
        self._failures: dict[str, str] = {}

    async def run(self) -> bool:
        """Balance all topics (doRebalance); False when it should be tried again soon.

        While one run is under way and another waits, a third would find nothing left to do.
        """
        if self._next_waits:
            return True
        self._next_waits = True
        async with self._running:
            self._next_waits = False
            balanced = True
            for topic in list(self._owner.subscribed_topics()):
                try:
                    balanced = await self._balance(topic) and balanced
                except TopicNotFoundError as error:
                    balanced = self._without_route(topic, error) and balanced
                except (NetworkError, BrokerError) as error:
                    self._log_failure(topic, error)
                    balanced = False
            await self._leave_other_topics()
            return balanced

    async def settled(self) -> None:
        """Wait until no run is under way, nor one that was already waiting."""
        async with self._running:
            pass

    async def _balance(self, topic: str) -> bool:
        queues = sorted(await self._instance.subscribe_queues(topic))
        self._looks.pop(topic, None)
        if self._strategy is None:
            now = Membership((), tuple(queues))
            return await self._apply(topic, now, queues)
        client_id = self._instance.client_id
        client_ids = sorted(await self._instance.consumer_ids(self._group, topic))
        now = Membership(tuple(client_ids), tuple(queues))
        self._failures.pop(topic, None)
        seen = client_id in client_ids
        if not seen:
            # The broker forgot us, so the others share our queues already.
            log.warning(
                "group %s: the broker does not know this client, %s", self._group, client_id
            )
            await self._instance.heartbeat()
        if not queues or not client_ids:
            return await self._apply(topic, now, [])
        mine = self._strategy(self._group, client_id, queues, client_ids)
        return await self._apply(topic, now, mine) and seen

    async def _apply(self, topic: str, now: Membership, mine: Sequence[MessageQueue]) -> bool:
        owner = self._owner
        change = plan(
            topic, owner.owned(), mine, self._instance.clock.now_ms(), expire=self._expire
        )
        before = self._known.get(topic)
        self._known[topic] = now
        if not any(change):
            return True
        former = self._former_owners(topic, before, now)
        self._log(topic, change, former, now.change_since(before))
        if change.lost or change.expired:
            await owner.give_up([*change.lost, *change.expired])
        here = set(now.client_ids) - {self._instance.client_id}
        complete = not change.gained or await owner.take_on(
            {queue: former.get(queue) in here for queue in change.gained}
        )
        await owner.queues_changed(topic, now.queues, mine)
        return complete

    async def _leave_other_topics(self) -> None:
        """Give up what was unsubscribed (truncateMessageQueueNotMyTopic)."""
        topics = set(self._owner.subscribed_topics())
        held = self._owner.owned().items()
        lost = [queue for queue, pq in held if queue.topic not in topics and not pq.leaving]
        if lost:
            log.info("group %s gives up, unsubscribed: %s", self._group, names(lost))
            await self._owner.give_up(lost)

    def _log_failure(self, topic: str, error: OrbitMQError) -> None:
        """Warn of a failure when it is new; it may come every second for a long time."""
        new = self._failures.get(topic) != str(error) and not topic.startswith(RETRY_PREFIX)
        self._failures[topic] = str(error)
        level = logging.WARNING if new else logging.DEBUG
        log.log(level, "group %s keeps its queues of %s as they are: %s", self._group, topic, error)

    def _without_route(self, topic: str, error: OrbitMQError) -> bool:
        """A topic nobody knows yet is asked for again soon, but not for ever."""
        self._looks[topic] += 1
        if self._looks[topic] == 1 and not topic.startswith(RETRY_PREFIX):
            log.warning("group %s waits for topic %s: %s", self._group, topic, error)
        return self._looks[topic] > _EAGER_LOOKS

    def _former_owners(
        self, topic: str, before: Membership | None, now: Membership
    ) -> dict[MessageQueue, str]:
        """Who had each queue, worked out as each of them did; empty where that is too much."""
        if self._strategy is None:
            return {}
        me = self._instance.client_id
        then = before or Membership(tuple(id_ for id_ in now.client_ids if id_ != me), now.queues)
        if not then.client_ids or len(then.client_ids) * len(then.queues) > _MAX_OWNERS_WORK:
            return {}
        owners = {}
        try:
            for client_id in then.client_ids:
                share = self._strategy(self._group, client_id, then.queues, then.client_ids)
                owners.update(dict.fromkeys(share, client_id))
        except OrbitMQError as error:
            log.debug("who had the queues of %s cannot be told: %s", topic, error)
        return owners

    def _log(
        self, topic: str, change: Plan, former: Mapping[MessageQueue, str], reason: str
    ) -> None:
        prefix = f"group {self._group}, client {self._instance.client_id}, topic {topic}"
        if change.lost:
            log.info("%s: gives up %s (%s)", prefix, names(change.lost), reason)
        if change.expired:
            log.error(
                "%s: %s were not pulled for two minutes and are taken anew; please report this",
                prefix,
                names(change.expired),
            )
        by_owner: dict[str, list[MessageQueue]] = {}
        for queue in change.gained:
            by_owner.setdefault(former.get(queue, "nobody"), []).append(queue)
        for owner, queues in by_owner.items():
            log.info("%s: takes %s from %s (%s)", prefix, names(queues), owner, reason)


def names(queues: Iterable[MessageQueue]) -> str:
    """Queues for a log: ``broker-a/0-3,7 broker-b/1``."""
    by_broker: dict[str, list[int]] = {}
    for queue in sorted(queues):
        by_broker.setdefault(queue.broker_name, []).append(queue.queue_id)
    return " ".join(f"{broker}/{_ranges(ids)}" for broker, ids in by_broker.items())


def _ranges(ids: list[int]) -> str:
    parts: list[list[int]] = []
    for number in ids:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
