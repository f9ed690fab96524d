"""Subscriptions by tag: ``*`` for every message, or one or more tags as in ``TagA || TagB``.

A consume queue holds the hash code of each message's tag, so the broker filters by
:func:`tags_code_filter` without reading messages. Different tags may have the same hash code, so
the client compares the tags themselves, by :func:`matches_tags`. Both as Java does it
(``FilterAPI``, ``DefaultMessageFilter``, ``PullAPIWrapper``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from orbitmq.errors import ConfigError
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.ids import java_hash

SUB_ALL: Final = "*"
"""The expression every message matches."""

TAG: Final = "TAG"
"""The expression type of tags."""

# Java's String.trim takes away control characters too, but no space beyond ASCII.
_TRIMMED: Final = "".join(map(chr, range(ord(" ") + 1)))


def parse_tags(expression: str | None) -> frozenset[str] | None:
    """The tags of an expression; None, for every message, when it is empty, None or ``*``.

    Raises:
        ConfigError: only separators, such as ``||``.
    """
    if not expression or expression == SUB_ALL:
        return None
    if not expression.replace("||", ""):
        raise ConfigError("expression", expression, f"'{SUB_ALL}', or tags as in 'TagA || TagB'")
    return frozenset(filter(None, (tag.strip(_TRIMMED) for tag in expression.split("||"))))


def build_subscription(
    topic: str, expression: str | None = SUB_ALL, type_: str | None = TAG, *, sub_version: int = 0
) -> SubscriptionData:
    """The subscription a consumer announces (Java's ``FilterAPI.build``).

    ``sub_version`` is the time in ms it was made; the broker keeps a group's newest.

    Raises:
        ConfigError: an expression of separators only, or an expression type not supported.
    """
    if type_ is not None and type_ != TAG:
        raise ConfigError("expression_type", type_, f"'{TAG}' is the only one supported")
    tags = parse_tags(expression) or frozenset()
    return SubscriptionData(
        topic=topic,
        sub_string=expression or SUB_ALL,
        tags_set=tags,
        code_set=frozenset(map(java_hash, tags)),
        sub_version=sub_version,
    )


def tags_code_filter(subscription: SubscriptionData) -> Callable[[int], bool] | None:
    """What decides by the tag code in a consume queue whether to send a message; None: send all.

    A consumer that filters by class, a feature of RocketMQ 3, is sent all.
    """
    if subscription.sub_string == SUB_ALL or subscription.class_filter_mode:
        return None
    return subscription.code_set.__contains__


def matches_tags(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether a received message with these ``tags`` is wanted."""
    if not subscription.tags_set or subscription.class_filter_mode:
        return True
    return tags in subscription.tags_set
