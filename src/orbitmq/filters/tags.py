"""Subscriptions by tag: ``*`` for every message, or one or more tags as in ``TagA || TagB``.

A consume queue holds the hash code of each message's tag, so the broker filters by
:func:`wanted_codes` without reading messages. Different tags may have the same hash code, so
the client compares the tags themselves, by :func:`matches_tags`. Both as Java does it
(``FilterAPI``, ``DefaultMessageFilter``, ``PullAPIWrapper``).
"""

from __future__ import annotations

from typing import Final

from orbitmq.errors import ConfigError
from orbitmq.wire.bodies import SubscriptionData

SUB_ALL: Final = "*"
"""The expression every message matches."""

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


def wanted_codes(subscription: SubscriptionData) -> frozenset[int] | None:
    """The tag codes of the messages in a consume queue that are to be sent; None: send all.

    A consumer that filters by class, a feature of RocketMQ 3, is sent all.
    """
    if subscription.sub_string == SUB_ALL or subscription.class_filter_mode:
        return None
    return subscription.code_set


def matches_tags(subscription: SubscriptionData, tags: str | None) -> bool:
    """Whether a received message with these ``tags`` is wanted."""
    if not subscription.tags_set or subscription.class_filter_mode:
        return True
    return tags in subscription.tags_set
