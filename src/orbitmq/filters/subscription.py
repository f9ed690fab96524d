"""Subscriptions: what a consumer wants of a topic, as it tells the brokers.

By tag, ``*`` or ``TagA || TagB``, or by an SQL92 expression over the messages' properties, such as
``price > 10 AND carrier = 'UA'``. Follows ``FilterAPI``, ``MessageSelector`` and
``ExpressionType``.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self, TypeAlias

from orbitmq.errors import ConfigError
from orbitmq.filters.tags import SUB_ALL, parse_tags
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.ids import java_hash

TAG: Final = "TAG"
"""The expression type of tags."""

SQL92: Final = "SQL92"
"""The expression type of SQL92."""


class MessageSelector(NamedTuple):
    """Which messages of a topic a consumer wants; use :meth:`by_tag` or :meth:`by_sql`."""

    expression: str
    type: str = TAG

    @classmethod
    def by_tag(cls, expression: str) -> Self:
        """By tag: ``*`` for all, or tags as in ``TagA || TagB``; a plain string means the same."""
        return cls(expression or SUB_ALL, TAG)

    @classmethod
    def by_sql(cls, expression: str, *, check: bool = True) -> Self:
        """By the properties of messages, such as ``price > 10 AND carrier = 'UA'``.

        The broker filters; an Apache broker must have ``enablePropertyFilter=true``. The expression
        is checked here as RocketMQ 5.5 would, so that a mistake shows where it was made; ``check``
        False leaves that to the broker, which may be newer and know more.

        Raises:
            ConfigError: no expression, or one that does not end where it seems to: a broker takes
                ``a = 1 b = 2`` for ``a = 1``.
        """
        from orbitmq.filters.sql92 import compile_sql  # few consumers need it

        if check and (ignored := compile_sql(expression).ignored):
            allowed = f"brokers would ignore {ignored!r}: join it with AND or OR, or leave it out"
            raise ConfigError("expression", expression, allowed)
        return cls(expression, SQL92)


Expression: TypeAlias = str | MessageSelector | None
"""Tags, ``*`` or None for every message, or a selector."""


def build_subscription(
    topic: str,
    expression: Expression = SUB_ALL,
    type_: str | None = None,
    *,
    sub_version: int = 0,
) -> SubscriptionData:
    """The subscription a consumer announces (Java's ``FilterAPI.build``).

    ``type_`` is the type of an expression that is a string, by default of tags. ``sub_version`` is
    the time in ms it was made; the broker keeps a group's newest.

    Raises:
        ConfigError: an expression of separators only, no SQL92 expression, or an expression type
            not supported.
    """
    if isinstance(expression, MessageSelector):
        expression, type_ = expression
    if type_ == SQL92:
        return _by_sql(topic, expression, sub_version)
    if type_ is not None and type_ != TAG:
        raise ConfigError("expression_type", type_, f"'{TAG}' or '{SQL92}'")
    tags = parse_tags(expression) or frozenset()
    return SubscriptionData(
        topic=topic,
        sub_string=expression or SUB_ALL,
        tags_set=tags,
        code_set=frozenset(map(java_hash, tags)),
        sub_version=sub_version,
    )


def _by_sql(topic: str, expression: str | None, sub_version: int) -> SubscriptionData:
    if not expression:
        raise ConfigError("expression", expression, f"an expression for {SQL92}, such as 'a > 5'")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        expression_type=SQL92,
        sub_version=sub_version,
    )
