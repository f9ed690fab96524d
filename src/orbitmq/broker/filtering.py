"""Which messages of a topic a consumer gets: its subscription, made into tests.

The subscription comes with a pull, or with the group's heartbeats. By tags, the codes in the
consume queue are enough; by SQL92, the stored properties are looked at, and only those named. An
expression is compiled once and kept by :func:`~orbitmq.filters.sql92.compile_sql`. Follows
PullMessageProcessor, ConsumerFilterManager, ExpressionMessageFilter and
ExpressionForRetryMessageFilter. Where Java's broker keeps compiled expressions apart from the
subscriptions, and may find them older (FILTER_DATA_NOT_LATEST), here they cannot differ.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from orbitmq import codes
from orbitmq.broker.clients import ConsumerTable
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import BrokerError, ConfigError, RecordError
from orbitmq.filters.sql92 import SqlExpression, compile_sql
from orbitmq.filters.subscription import SQL92, TAG, build_subscription
from orbitmq.filters.tags import SUB_ALL, wanted_codes
from orbitmq.names import RETRY_PREFIX
from orbitmq.wire.bodies import MessageModel, SubscriptionData, SubscriptionGroupConfig
from orbitmq.wire.properties import RETRY_TOPIC, decode_properties, find_property
from orbitmq.wire.record import properties_of

_FEW_TESTS: Final = 4
"""Up to how many tests it takes less time to look for properties than to decode all of them."""
_SHORT_LENGTH: Final = 256
_TAG_TYPES: Final = (TAG, None, "")


class MessageFilter(msgspec.Struct, frozen=True):
    """The tags codes wanted, or a test of a message's stored properties; None lets all through.

    Of one topic, tests that have the same ``key`` let the same through.
    """

    codes: frozenset[int] | None = None
    by_properties: Callable[[bytes], bool] | None = None
    key: Hashable = None

    @property
    def by_tags_code(self) -> Callable[[int], bool] | None:
        """The test by tags code."""
        return None if self.codes is None else self.codes.__contains__

    @property
    def by_record(self) -> Callable[[memoryview], bool] | None:
        """The test by properties, of a whole record."""
        if self.by_properties is None:
            return None
        return partial(_matches_record, self.by_properties)


EVERYTHING: Final = MessageFilter()


class Subscriptions:
    """Makes filters of what consumers subscribe to. Raises BrokerError with Java's codes."""

    def __init__(self, config: BrokerConfig, consumers: ConsumerTable[Any]) -> None:
        self._consumers = consumers
        self.renew(config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._by_property = config.enable_property_filter
        self._of_origin = config.filter_support_retry

    def check(self, subscription: SubscriptionData) -> None:
        """Refuse what could not be filtered by (ClientManageProcessor.checkClientConfig)."""
        kind = subscription.expression_type
        if kind not in _TAG_TYPES:
            self._check_supported(kind)
            _compile(kind, subscription.sub_string)

    def of_pull(self, topic: str, expression: str, kind: str | None) -> MessageFilter:
        """The filter of a pull that brings its own subscription."""
        if kind not in _TAG_TYPES:
            self._check_supported(kind)
            return self._by_sql(topic, _compile(kind, expression))
        try:
            return _tag_filter(expression)
        except ConfigError as error:
            raise BrokerError(codes.SUBSCRIPTION_PARSE_FAILED, str(error)) from error

    def of_group(
        self, settings: SubscriptionGroupConfig, topic: str, sub_version: int
    ) -> MessageFilter:
        """The filter of a pull that relies on its group's heartbeats, of ``sub_version`` at least.

        A broken expression is found now: heartbeats are taken as they are.
        """
        subscription = self._announced(settings, topic, sub_version)
        kind = subscription.expression_type
        if kind in _TAG_TYPES:
            return MessageFilter(wanted_codes(subscription))
        try:
            expression = _compile(kind, subscription.sub_string)
        except BrokerError as error:
            raise BrokerError(
                codes.FILTER_DATA_NOT_EXIST,
                f"group {settings.group_name} cannot be filtered for: {error.remark}",
            ) from error
        self._check_supported(kind)
        if subscription.class_filter_mode:
            return EVERYTHING
        return self._by_sql(topic, expression)

    def _announced(
        self, settings: SubscriptionGroupConfig, topic: str, sub_version: int
    ) -> SubscriptionData:
        """What the group's heartbeats say of the topic."""
        name = settings.group_name
        group = self._consumers.groups.get(name)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_NOT_EXIST,
                f"group {name} has no members: send a heartbeat, or the subscription itself",
            )
        broadcasts = group.message_model is MessageModel.BROADCASTING
        if broadcasts and not settings.consume_broadcast_enable:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"group {name} may not consume by broadcasting: its settings forbid it",
            )
        subscription = group.subscriptions.get(topic)
        if subscription is None:
            raise BrokerError(
                codes.SUBSCRIPTION_NOT_EXIST,
                f"group {name} does not subscribe to {topic}: all its members must subscribe to "
                "the same topics",
            )
        if subscription.sub_version < sub_version:
            raise BrokerError(
                codes.SUBSCRIPTION_NOT_LATEST,
                f"the subscription of group {name} to {topic} known here is older than the "
                "pull's: send a heartbeat",
            )
        return subscription

    def _check_supported(self, kind: str | None) -> None:
        if not self._by_property:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"this broker does not filter by {kind}: subscribe by tags, or start it with "
                "enable_property_filter=True",
            )

    def _by_sql(self, topic: str, expression: SqlExpression) -> MessageFilter:
        if self._of_origin and topic.startswith(RETRY_PREFIX):
            return MessageFilter(
                by_properties=partial(self._matches_origin, topic.removeprefix(RETRY_PREFIX)),
                key=RETRY_PREFIX,
            )
        return MessageFilter(by_properties=partial(_matches, expression), key=expression.text)

    def _matches_origin(self, group: str, properties: bytes) -> bool:
        """Whether a message to be retried passes what its group wants of the topic it came from."""
        members = self._consumers.groups.get(group)
        origin = find_property(properties, RETRY_TOPIC)
        wanted = members.subscriptions.get(origin) if members and origin else None
        if wanted is None or wanted.expression_type in _TAG_TYPES:
            return True
        try:
            return _matches(_compile(wanted.expression_type, wanted.sub_string), properties)
        except BrokerError:
            return True  # as Java: nothing was compiled, so nothing is filtered out


def _tag_filter(expression: str) -> MessageFilter:
    """The filter by a pull's own tags; those of short expressions are remembered."""
    if expression == SUB_ALL:
        return EVERYTHING
    return _short(expression) if len(expression) <= _SHORT_LENGTH else _build(expression)


def _build(expression: str) -> MessageFilter:
    return MessageFilter(wanted_codes(build_subscription("", expression)))


_short: Final = lru_cache(maxsize=1024)(_build)


def _compile(kind: str | None, expression: str) -> SqlExpression:
    if kind != SQL92:
        raise BrokerError(
            codes.SUBSCRIPTION_PARSE_FAILED,
            f"there is no expression type {kind!r}: subscribe by {TAG} or {SQL92}",
        )
    try:
        return compile_sql(expression)
    except ConfigError as error:
        raise BrokerError(codes.SUBSCRIPTION_PARSE_FAILED, str(error)) from error


def _matches(expression: SqlExpression, properties: bytes) -> bool:
    if expression.tests > _FEW_TESTS:
        return expression.matches(decode_properties(properties).get)
    return expression.matches(partial(find_property, properties))


def _matches_record(by_properties: Callable[[bytes], bool], record: memoryview) -> bool:
    try:
        properties = properties_of(record)
    except RecordError:
        return True  # its consumer finds out, as one without a filter does
    return by_properties(properties)
