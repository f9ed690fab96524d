"""What pulling means: what a consumer gets of a queue, and which pulls wait for more.

Knows neither sockets nor headers. Messages leave as slices of the commit log, never decoded.
Follows PullMessageProcessor, DefaultPullMessageResultHandler and ExpressionMessageFilter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from orbitmq import codes
from orbitmq.broker.clients import ConsumerTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.long_poll import HeldPull, LongPollTable
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.topics import READ_WRITE, TopicTable
from orbitmq.errors import BrokerError, ConfigError
from orbitmq.filters.subscription import TAG, build_subscription
from orbitmq.filters.tags import SUB_ALL, tags_code_filter
from orbitmq.message import PullStatus
from orbitmq.store.message_store import MessageStore
from orbitmq.store.pull import GetResult, GetStatus
from orbitmq.wire.bodies import MessageModel, SubscriptionData, SubscriptionGroupConfig, TopicConfig

log = logging.getLogger("orbitmq.broker")

_PERM_READ: Final = 4

_RequestT = TypeVar("_RequestT")
_OwnerT = TypeVar("_OwnerT", bound=Hashable)

_STATUSES: Final = {
    GetStatus.FOUND: PullStatus.FOUND,
    GetStatus.MESSAGE_WAS_REMOVING: PullStatus.NO_MATCHED_MESSAGE,
    GetStatus.NO_MATCHED_MESSAGE: PullStatus.NO_MATCHED_MESSAGE,
    GetStatus.OFFSET_FOUND_NULL: PullStatus.NO_NEW_MESSAGE,
    GetStatus.OFFSET_OVERFLOW_ONE: PullStatus.NO_NEW_MESSAGE,
    GetStatus.OFFSET_OVERFLOW_BADLY: PullStatus.OFFSET_ILLEGAL,
    GetStatus.OFFSET_TOO_SMALL: PullStatus.OFFSET_ILLEGAL,
}


class Pull(msgspec.Struct):
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


class Pulled(NamedTuple):
    """The outcome of a pull; ``found`` has the store's own words for it and the messages."""

    status: PullStatus
    found: GetResult
    topic: TopicConfig
    group: SubscriptionGroupConfig


class Pulling(Generic[_OwnerT, _RequestT]):
    """Gives out messages. ``held`` has the pulls that wait; their requests are the caller's."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        consumers: ConsumerTable[_OwnerT],
        offsets: ConsumerOffsets,
    ) -> None:
        self.held: LongPollTable[_RequestT] = LongPollTable()
        self._store = store
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._max_count = config.max_pull_count
        self._max_bytes = config.max_pull_bytes

    def pull(self, pull: Pull) -> Pulled:
        """The messages from ``pull.offset`` on. Raises BrokerError when it is refused."""
        group, topic, match = self._check(pull)
        return self._get(pull, topic, group, match)

    def pull_or_hold(
        self, pull: Pull, owner: _OwnerT, request: _RequestT, now_ms: int
    ) -> Pulled | None:
        """As :meth:`pull`, but None, and ``request`` held, when there is nothing yet.

        ``held`` will name it ready when there may be something, or its time is up; it is then
        asked for by :meth:`pull`.
        """
        group, topic, match = self._check(pull)
        pulled = self._get(pull, topic, group, match)
        if pull.commit_offset is not None:
            self._offsets.commit(pull.group, pull.topic, pull.queue_id, pull.commit_offset)
        if pulled.status is not PullStatus.NO_NEW_MESSAGE or not pull.suspend_ms:
            return pulled
        self.held.hold(
            HeldPull(
                pull.topic,
                pull.queue_id,
                pull.offset,
                deadline_ms=now_ms + pull.suspend_ms,
                match=match,
                owner=owner,
                request=request,
            )
        )
        return None

    def sweep(self, now_ms: int) -> None:
        """Ready the held pulls whose time is up."""
        self.held.sweep(now_ms, self._store.max_offset)

    def _get(
        self,
        pull: Pull,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        match: Callable[[int], bool] | None,
    ) -> Pulled:
        found = self._store.get_messages(
            pull.topic,
            pull.queue_id,
            pull.offset,
            min(pull.max_count, self._max_count),
            min(pull.max_bytes, self._max_bytes),
            match,
        )
        status = _STATUSES.get(found.status)
        if status is None:  # an empty queue, where only offset 0 makes sense
            status = PullStatus.OFFSET_ILLEGAL if pull.offset else PullStatus.NO_NEW_MESSAGE
        if status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "group %s pulled at offset %d of %s queue %d, which has %d to %d: sent to %d",
                pull.group, pull.offset, pull.topic, pull.queue_id,
                found.min_offset, found.max_offset, found.next_begin_offset,
            )  # fmt: skip
        return Pulled(status, found, topic, group)

    def _check(
        self, pull: Pull
    ) -> tuple[SubscriptionGroupConfig, TopicConfig, Callable[[int], bool] | None]:
        """The group, the topic and the tag filter of a pull that may be carried out."""
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
        return group, topic, self._match(pull, group)

    def _match(self, pull: Pull, group: SubscriptionGroupConfig) -> Callable[[int], bool] | None:
        """What the consumer wants, as a test of a message's tags code; None: everything."""
        if pull.expression is None:
            subscription = self._subscription(pull, group)
            check_expression_type(subscription.expression_type)
        else:
            check_expression_type(pull.expression_type)
            if pull.expression == SUB_ALL:
                return None
            try:
                subscription = build_subscription(pull.topic, pull.expression)
            except ConfigError as error:
                raise BrokerError(codes.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return tags_code_filter(subscription)

    def _subscription(self, pull: Pull, settings: SubscriptionGroupConfig) -> SubscriptionData:
        """What the group's heartbeats say of the topic."""
        group = self._consumers.groups.get(pull.group)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_NOT_EXIST,
                f"group {pull.group} has no members: send a heartbeat, or the subscription itself",
            )
        broadcasts = group.message_model is MessageModel.BROADCASTING
        if broadcasts and not settings.consume_broadcast_enable:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"group {pull.group} may not consume by broadcasting: its settings forbid it",
            )
        subscription = group.subscriptions.get(pull.topic)
        if subscription is None:
            raise BrokerError(
                codes.SUBSCRIPTION_NOT_EXIST,
                f"group {pull.group} does not subscribe to {pull.topic}: all its members must "
                "subscribe to the same topics",
            )
        if subscription.sub_version < pull.sub_version:
            raise BrokerError(
                codes.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of group {pull.group} to {pull.topic} known here is older than "
                "the pull's: send a heartbeat",
            )
        return subscription


def check_expression_type(kind: str | None) -> None:
    """Raise BrokerError unless subscriptions of this kind can be served."""
    if kind not in (None, "", TAG):
        raise BrokerError(
            codes.SYSTEM_ERROR, f"this broker does not filter by {kind}: subscribe by tags"
        )
