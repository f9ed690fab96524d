"""Rebalance: which queues this consumer takes and gives up, and why.

Every consumer of a group works out its own share from the same lists of queues and of client ids,
every 20 s and when something changed, as Java's RebalanceImpl does. Two things go beyond Java.
The log says which queues moved, from whom or to whom, and why. And a queue that comes from a
consumer that is still there is announced as such, so that its first pull can wait for the last
offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple, Protocol

from orbitmq.allocate import AllocateByConfig, AllocateStrategy, allocate_all, java_order
from orbitmq.client.instance import ClientInstance
from orbitmq.clock import elapsed_ms
from orbitmq.consumer.process_queue import Held, ProcessQueue
from orbitmq.errors import BrokerInternalError, OrbitMQError, TopicNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.names import RETRY_PREFIX

log = logging.getLogger("orbitmq.consumer.rebalance")

_EAGER_LOOKS: Final = 30
"""How often a topic without a route is asked for again soon instead of at the next rebalance."""
_PATIENT_LOOKS: Final = 5
"""After how many of them that is a warning."""
_MOST_NAMED: Final = 5
"""How many client ids a line of the log names."""

_topic_of = itemgetter(MessageQueue._fields.index("topic"))
_leaving_of = attrgetter("leaving")
_last_pull_of = attrgetter("last_pull_ms")


class QueueOwner(Protocol):
    """What Rebalance asks of its consumer."""

    def subscribed_topics(self) -> Collection[str]:
        """The topics whose queues are wanted."""
        ...

    def owned(self) -> Mapping[MessageQueue, Held]:
        """The queues held at any time; one that is still being given up is ``leaving``."""
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
    owned: Mapping[MessageQueue, Held],
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
    lost: list[MessageQueue] = []
    expired: dict[MessageQueue, None] = {}
    for queue, held in owned.items():
        process_queue = held.process_queue
        if queue.topic != topic or process_queue.leaving:
            continue
        if queue not in wanted:
            lost.append(queue)
        elif expire and process_queue.pull_expired(now_ms):
            expired[queue] = None
    gained = [queue for queue in assigned if queue not in owned or queue in expired]
    return Plan(lost, list(expired), gained)


class Membership(NamedTuple):
    """What a topic's shares are worked out from."""

    client_ids: tuple[str, ...]
    queues: tuple[MessageQueue, ...]

    def distance(self, before: Membership) -> int:
        """How many clients came or left."""
        return len(set(self.client_ids) ^ set(before.client_ids))

    def change_since(self, before: Membership | None) -> str:
        """What is different from ``before``, in words."""
        if before is None:
            return "first share"
        told = [
            f"{what} {_some(sorted(ids))}"
            for what, ids in (
                ("joined:", set(self.client_ids) - set(before.client_ids)),
                ("left:", set(before.client_ids) - set(self.client_ids)),
            )
            if ids
        ]
        if len(self.queues) != len(before.queues):
            told.append(f"the topic's queues went from {len(before.queues)} to {len(self.queues)}")
        elif self.queues != before.queues:
            told.append("the topic's queues changed")
        return "; ".join(told) or "nothing changed since, but the queue was not held"


class Balance(NamedTuple):
    """How a topic was when nothing was left to do.

    ``answer`` is the strategy's, ``held`` all that the owner held, of other topics too,
    ``mine`` what it held of this one, which may ``expire``. To look whether all is still so costs
    a tenth of working out a plan, which counts with thousands of queues.
    """

    answer: list[MessageQueue]
    held: list[Held]
    mine: list[ProcessQueue]
    expire: bool

    def lasts(self, answer: list[MessageQueue], held: Iterable[Held], now_ms: int) -> bool:
        """Whether :func:`plan` would still find nothing to change."""
        if answer != self.answer or [*held] != self.held or any(map(_leaving_of, self.mine)):
            return False
        if not self.expire or not self.mine:
            return True
        return not min(self.mine, key=_last_pull_of).pull_expired(now_ms)


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
        self._balances: dict[str, Balance] = {}
        self._looks: Counter[str] = Counter()
        self._told: dict[str, str] = {}

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
                balanced = await self._try_to_balance(topic) and balanced
            await self._leave_other_topics()
            return balanced

    async def settled(self) -> None:
        """Wait until no run is under way, nor one that was already waiting."""
        async with self._running:
            pass

    async def _try_to_balance(self, topic: str) -> bool:
        """Balance one topic; what goes wrong leaves its queues, and the other topics, alone."""
        try:
            return await self._balance(topic)
        except TopicNotFoundError as error:
            return self._without_route(topic, error)
        except OrbitMQError as error:
            self._tell(topic, f"its queues stay as they are: {error}")
        except Exception as error:  # noqa: BLE001 - a user's strategy may raise anything
            self._tell(topic, f"its queues stay as they are: {error!r}", error=error)
        return False

    async def _balance(self, topic: str) -> bool:
        """Take and give up what it needs (rebalanceByTopic)."""
        queues = await self._instance.subscribe_queues(topic)
        self._looks.pop(topic, None)
        if self._strategy is None:
            return await self._apply(topic, Membership((), queues), list(queues))
        client_id = self._instance.client_id
        client_ids = sorted(await self._client_ids(topic), key=java_order)
        seen = client_id in client_ids
        if not seen:
            # The broker forgot us, so the others share our queues already.
            log.warning(
                "group %s: the broker does not know this client, %s", self._group, client_id
            )
            await self._instance.heartbeat()
        if not client_ids:
            return False
        now = Membership(tuple(client_ids), queues)
        answer: list[MessageQueue] = []
        if queues:
            answer += self._strategy(self._group, client_id, list(queues), client_ids)
        return await self._apply(topic, now, answer) and seen

    async def _client_ids(self, topic: str) -> list[str]:
        """The clients of the group, as a broker of ``topic`` knows them.

        One that is new to us, as those of a new topic, may be asked before it has heard of us.
        """
        instance = self._instance
        try:
            client_ids = await instance.consumer_ids(self._group, topic)
        except BrokerInternalError:  # it knows nobody of the group
            if topic in self._known:
                raise
            client_ids = []
        if topic in self._known or instance.client_id in client_ids:
            return client_ids
        await instance.heartbeat()
        return await instance.consumer_ids(self._group, topic)

    async def _apply(self, topic: str, now: Membership, answer: list[MessageQueue]) -> bool:
        """Have the owner hold what a strategy's ``answer`` names of ``topic``.

        False when some could not be had yet.
        """
        held = self._owner.owned()
        now_ms = elapsed_ms(self._instance.clock)
        balance = self._balances.pop(topic, None)
        complete = True
        if balance is None or not balance.lasts(answer, held.values(), now_ms):
            # AllocateByConfig names the queues of all topics.
            mine = list(dict.fromkeys(queue for queue in answer if queue.topic == topic))
            change = plan(topic, held, mine, now_ms, expire=self._expire)
            if any(change):
                complete = await self._carry_out(topic, change, now, mine)
            if len(_held_of(mine, self._owner)) < len(mine):
                return complete
            process_queues = [held[queue].process_queue for queue in mine]
            balance = Balance(answer, [*held.values()], process_queues, self._expire)
        self._balances[topic] = balance
        self._known[topic] = now
        self._told.pop(topic, None)
        return complete

    async def _carry_out(
        self, topic: str, change: Plan, now: Membership, mine: Sequence[MessageQueue]
    ) -> bool:
        owner, me = self._owner, self._instance.client_id
        before = self._known.get(topic)
        reason = now.change_since(before)
        if change.lost:
            self._log_moves("gives up", change.lost, "to", self._owners(now), reason)
        if change.expired:
            log.error(
                "group %s: %s of %s were not pulled for two minutes and are taken anew; please "
                "report this",
                self._group,
                names(change.expired),
                topic,
            )
        if change.lost or change.expired:
            await owner.give_up([*change.lost, *change.expired])
        if not change.gained:
            await owner.queues_changed(topic, now.queues, _held_of(mine, owner))
            return True
        others = tuple(client_id for client_id in now.client_ids if client_id != me)
        former = self._owners(before or Membership(others, now.queues))
        # Where several came or left, one who is still there may have had a queue in between.
        several = bool(others) and before is not None and now.distance(before) > 1
        complete = await owner.take_on(
            {queue: several or former.get(queue) in others for queue in change.gained}
        )
        held = owner.owned()
        taken = [queue for queue in change.gained if queue in held]
        self._log_moves("takes", taken, "from", former, reason)
        if len(taken) < len(change.gained):
            missing = names(queue for queue in change.gained if queue not in held)
            self._tell(topic, f"{missing} cannot be had yet ({reason})", logging.INFO)
        if change.lost or taken:
            await owner.queues_changed(topic, now.queues, _held_of(mine, owner))
        return complete

    async def _leave_other_topics(self) -> None:
        """Give up what was unsubscribed (truncateMessageQueueNotMyTopic)."""
        topics = set(self._owner.subscribed_topics())
        held = self._owner.owned()
        others = set(map(_topic_of, held)) - topics
        lost = [
            queue
            for queue, each in (held.items() if others else ())
            if queue.topic in others and not each.process_queue.leaving
        ]
        for topic in sorted({queue.topic for queue in lost}):
            log.info(
                "group %s, client %s, topic %s: gives up %s (unsubscribed)",
                self._group,
                self._instance.client_id,
                topic,
                names(queue for queue in lost if queue.topic == topic),
            )
        if lost:
            await self._owner.give_up(lost)
        for table in (self._known, self._balances, self._looks, self._told):
            for topic in table.keys() - topics:
                del table[topic]

    def _tell(
        self,
        topic: str,
        text: str,
        level: int = logging.WARNING,
        *,
        error: Exception | None = None,
    ) -> None:
        """Log what is in the way when it is new; it may come every second for a long time."""
        new = self._told.get(topic) != text and not topic.startswith(RETRY_PREFIX)
        self._told[topic] = text
        level = level if new else logging.DEBUG
        log.log(level, "group %s, topic %s: %s", self._group, topic, text, exc_info=error)

    def _without_route(self, topic: str, error: OrbitMQError) -> bool:
        """A topic nobody knows yet is asked for again soon, but not for ever."""
        self._looks[topic] += 1
        if self._looks[topic] in {1, _PATIENT_LOOKS} and not topic.startswith(RETRY_PREFIX):
            # It may be about to be created by its first message.
            level = logging.INFO if self._looks[topic] == 1 else logging.WARNING
            log.log(level, "group %s waits for topic %s: %s", self._group, topic, error)
        return self._looks[topic] > _EAGER_LOOKS

    def _owners(self, members: Membership) -> dict[MessageQueue, str]:
        """Who has each queue, worked out as each of ``members`` does."""
        if not members.client_ids or not members.queues:
            return {}
        if self._strategy is None or isinstance(self._strategy, AllocateByConfig):
            return {}  # each client has its own, which only it knows
        try:
            shares = allocate_all(self._strategy, self._group, members.queues, members.client_ids)
        except Exception as error:  # noqa: BLE001 - a user's strategy may raise anything
            log.debug("who has the queues of group %s cannot be told: %r", self._group, error)
            return {}
        return {queue: client_id for client_id, share in shares.items() for queue in share}

    def _log_moves(
        self,
        verb: str,
        queues: Collection[MessageQueue],
        preposition: str,
        owners: Mapping[MessageQueue, str],
        reason: str,
    ) -> None:
        by_owner: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            by_owner.setdefault(owners.get(queue, "nobody"), []).append(queue)
        for owner, moved in by_owner.items():
            log.info(
                "group %s, client %s, topic %s: %s %s %s %s (%s)",
                self._group,
                self._instance.client_id,
                moved[0].topic,
                verb,
                names(moved),
                preposition,
                owner,
                reason,
            )


def _held_of(mine: Iterable[MessageQueue], owner: QueueOwner) -> list[MessageQueue]:
    """Those of ``mine`` that are held: a queue still locked for another is told of when it comes.

    Java's messageQueueChanged is told of all; of one that goes to another before it was had, it
    would never be told again.
    """
    held = owner.owned()
    return [queue for queue in mine if queue in held and not held[queue].process_queue.leaving]


def names(queues: Iterable[MessageQueue]) -> str:
    """Queues for a log: ``broker-a/0-3,7 broker-b/1``."""
    by_broker: dict[str, list[int]] = {}
    for queue in sorted(queues):
        by_broker.setdefault(queue.broker_name, []).append(queue.queue_id)
    return " ".join(f"{broker}/{_ranges(ids)}" for broker, ids in by_broker.items())


def _some(ids: Sequence[str]) -> str:
    """The first few client ids, and how many more there are."""
    more = len(ids) - _MOST_NAMED
    return ", ".join(ids[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _ranges(ids: list[int]) -> str:
    parts: list[list[int]] = []
    for number in ids:
        if parts and number == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)
