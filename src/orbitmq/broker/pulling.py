"""What pulling means: what a consumer gets of a queue, and which pulls wait for more.

Knows neither sockets nor headers. Messages leave as slices of the commit log, never decoded.
Follows PullMessageProcessor and DefaultPullMessageResultHandler; filters are made in filtering.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from time import perf_counter
from typing import Final, Generic, TypeVar

import msgspec

from orbitmq import codes
from orbitmq.broker.clients import ConsumerTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.filter_budget import FilterBudget
from orbitmq.broker.filtering import MessageFilter, Subscriptions
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.long_poll import HeldPull, LongPollTable
from orbitmq.broker.offsets import ConsumerOffsets, check_offset
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import READ_WRITE, TopicTable
from orbitmq.errors import BrokerError
from orbitmq.message import PullStatus
from orbitmq.net.burst import Burst
from orbitmq.store.message_store import MessageStore
from orbitmq.store.pull import GetResult, GetStatus
from orbitmq.wire.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.wire.record import properties_of

log = logging.getLogger("orbitmq.broker")

_PERM_READ: Final = 4

_RequestT = TypeVar("_RequestT")
_OwnerT = TypeVar("_OwnerT", bound=Hashable)

_STATUSES: Final = {
    GetStatus.MESSAGE_WAS_REMOVING: PullStatus.NO_MATCHED_MESSAGE,
    GetStatus.NO_MATCHED_MESSAGE: PullStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL: PullStatus.NO_NEW_MESSAGE,
    GetStatus.OFFSET_OVERFLOW_ONE: PullStatus.NO_NEW_MESSAGE,
    GetStatus.OFFSET_OVERFLOW_BADLY: PullStatus.OFFSET_ILLEGAL,
    GetStatus.OFFSET_TOO_SMALL: PullStatus.OFFSET_ILLEGAL,
    GetStatus.OFFSET_RESET: PullStatus.OFFSET_ILLEGAL,
}


class Pull(msgspec.Struct, gc=False):
    """What a consumer asks for.

    ``expression`` is its subscription, or None to take the one of the group's heartbeats, which
    must be of ``sub_version`` at least. ``commit_offset``: how far it has consumed, to be kept;
    None: not said. ``suspend_ms``: how long it waits when there is nothing; 0: not at all.
    """

    group: str
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int
    expression: str | None = None
    expression_type: str | None = None
    sub_version: int = 0
    commit_offset: int | None = None
    suspend_ms: int = 0


class Pulled(msgspec.Struct, gc=False):
    """The outcome of a pull; ``found`` has the store's own words for it and the messages."""

    status: PullStatus
    found: GetResult
    topic: TopicConfig
    group: SubscriptionGroupConfig


class Pulling(Generic[_OwnerT, _RequestT]):
    """Gives out messages, as ``subscriptions`` say and as fast as ``budget`` allows.

    ``held`` has the pulls that wait; their requests are the caller's.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable[_OwnerT],
        offsets: ConsumerOffsets,
        budget: FilterBudget,
        statistics: Statistics,
    ) -> None:
        self.held: LongPollTable[_RequestT] = LongPollTable(self._properties_at)
        self._store = store
        self._topics = topics
        self._groups = groups
        self.subscriptions = Subscriptions(config, consumers)
        self._offsets = offsets
        self._budget = budget
        self._statistics = statistics
        self._held_burst = Burst(log)
        self.renew(config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self.subscriptions.renew(config)
        self._permission = config.broker_permission
        self._most_held = config.max_held_pulls
        self._most_held_of_one = config.max_held_pulls_per_connection
        self._max_count = config.max_pull_count
        self._max_bytes = config.max_pull_bytes

    def pull(self, pull: Pull) -> Pulled:
        """The messages from ``pull.offset`` on. Raises BrokerError when it is refused."""
        group, topic, match = self._check(pull)
        return self._get(pull, topic, group, match)

    def pull_or_hold(
        self, pull: Pull, owner: _OwnerT, request: _RequestT, now_ms: Callable[[], int]
    ) -> Pulled | None:
        """As :meth:`pull`, but None, and ``request`` held, when there is nothing yet.

        ``held`` will name it ready when there may be something, or its time is up; it is then
        asked for by :meth:`pull`. ``now_ms`` is the time, which is asked for only then.
        """
        if pull.commit_offset is not None:
            check_offset(pull.commit_offset, pull.topic, pull.queue_id)
        group, topic, match = self._check(pull)
        pulled = self._get(pull, topic, group, match)
        if pull.commit_offset is not None and pulled.found.status is not GetStatus.OFFSET_RESET:
            self._offsets.commit(pull.group, pull.topic, pull.queue_id, pull.commit_offset)
        if pulled.status is not PullStatus.NO_NEW_MESSAGE or not pull.suspend_ms:
            return pulled
        self._check_room(owner)
        self.held.hold(
            HeldPull(
                pull.topic,
                pull.queue_id,
                pull.offset,
                deadline_ms=now_ms() + pull.suspend_ms,
                wanted=self._within_budget(match),
                owner=owner,
                request=request,
            )
        )
        return None

    def _check_room(self, owner: _OwnerT) -> None:
        """Raise BrokerError when too many pulls wait already, of all or of ``owner``."""
        held, most = len(self.held), self._most_held
        key = "maxHeldPulls"
        if held < most:
            held, most = self.held.held_for(owner), self._most_held_of_one
            key = "maxHeldPullsPerConnection"
        if held >= most:
            self._held_burst.tell(
                "%d pulls wait, and more are refused (%s): raise the limit, or use fewer consumers",
                held, key,
            )  # fmt: skip
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: {held} pulls wait already "
                f"({key})",
            )

    def _within_budget(self, match: MessageFilter) -> MessageFilter:
        """``match`` for a pull that waits."""
        test = match.by_properties
        if test is None:
            return match
        return msgspec.structs.replace(match, by_properties=self._budget.for_arrivals(test))

    def _properties_at(self, physical_offset: int) -> bytes:
        """The properties of a message that has just been stored."""
        record = self._store.record_at(physical_offset)
        return b"" if record is None else properties_of(record)

    def sweep(self, now_ms: int) -> None:
        """Ready the held pulls whose time is up."""
        self.held.sweep(now_ms, self._store.max_offset)

    def _get(
        self,
        pull: Pull,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        match: MessageFilter,
    ) -> Pulled:
        reset = self._offsets.take_reset(pull.group, pull.topic, pull.queue_id, pull.offset)
        found = self._look(pull, match) if reset is None else self._sent_to(reset, pull)
        self._offsets.pulled(pull.group, pull.topic, pull.queue_id, found.next_begin_offset)
        status = PullStatus.FOUND if found.count else _why_nothing(found, pull)
        return Pulled(status, found, topic, group)

    def _look(self, pull: Pull, match: MessageFilter) -> GetResult:
        """What the store has for a pull."""
        by_tags_code = None if match.codes is None else match.by_tags_code
        by_record = None if match.by_properties is None else match.by_record
        started = perf_counter()
        found = self._store.get_messages(
            pull.topic,
            pull.queue_id,
            pull.offset,
            min(pull.max_count, self._max_count),
            min(pull.max_bytes, self._max_bytes),
            by_tags_code,
            by_record and self._budget.for_scan(by_record),
        )
        if found.count:
            seconds = perf_counter() - started
            self._statistics.pulled(
                pull.group, pull.topic, pull.queue_id, found.count, found.size, seconds
            )
        else:
            self._statistics.missed()
        return found

    def _sent_to(self, offset: int, pull: Pull) -> GetResult:
        """The answer to a pull of a queue in which an operator has sent the group elsewhere."""
        topic, queue_id = pull.topic, pull.queue_id
        log.info(
            "group %s is sent to offset %d of %s queue %d, as an operator has set it",
            pull.group, offset, topic, queue_id,
        )  # fmt: skip
        ends = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return GetResult(GetStatus.OFFSET_RESET, offset, *ends)

    def _check(self, pull: Pull) -> tuple[SubscriptionGroupConfig, TopicConfig, MessageFilter]:
        """The group, the topic and the filter of a pull that may be carried out."""
        if not self._permission & _PERM_READ:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"the broker may not be read: its brokerPermission is {self._permission}",
            )
        group = self._groups.find(pull.group)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"consumer group {pull.group!r} does not exist: create it, or check its name",
            )
        if not group.consume_enable:
            raise BrokerError(
                codes.NO_PERMISSION, f"group {pull.group} may not consume: its settings forbid it"
            )
        topic = self._topics.get(pull.topic)
        if topic is None:
            raise BrokerError(
                codes.TOPIC_NOT_EXIST, f"topic {pull.topic!r} does not exist: create it first"
            )
        if not topic.perm & _PERM_READ:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"topic {pull.topic} may not be read: its permission is {topic.perm} "
                f"(reading and writing is {READ_WRITE})",
            )
        if not 0 <= pull.queue_id < topic.read_queue_nums:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"topic {pull.topic} has no queue {pull.queue_id} to read: its queues are 0 to "
                f"{topic.read_queue_nums - 1}; ask for its route again",
            )
        if pull.expression is None:
            if self._groups.forbidden and not self._groups.may_read(pull.group, pull.topic):
                raise BrokerError(
                    codes.NO_PERMISSION, f"group {pull.group} is forbidden to read {pull.topic}"
                )
            match = self.subscriptions.of_group(group, pull.topic, pull.sub_version)
        else:
            match = self.subscriptions.of_pull(pull.topic, pull.expression, pull.expression_type)
        return group, topic, match


def _why_nothing(found: GetResult, pull: Pull) -> PullStatus:
    """How a pull ends that got no message."""
    status = _STATUSES.get(found.status)
    if status is None:  # an empty queue, where only offset 0 makes sense
        status = PullStatus.OFFSET_ILLEGAL if pull.offset else PullStatus.NO_NEW_MESSAGE
    if status is PullStatus.OFFSET_ILLEGAL and found.status is not GetStatus.OFFSET_RESET:
        log.warning(
            "group %s pulled at offset %d of %s queue %d, which has %d to %d: sent to %d",
            pull.group, pull.offset, pull.topic, pull.queue_id,
            found.min_offset, found.max_offset, found.next_begin_offset,
        )  # fmt: skip
    return status
