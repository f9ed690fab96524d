"""Attributes of topics and groups: how a change of them is written, and which there are.

A change is ``+message.type=DELAY,-reserve.time``: ``+`` sets, ``-`` removes. Follows
AttributeParser, AttributeUtil, TopicAttributes and SubscriptionGroupAttributes of 5.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.errors import BrokerError
from orbitmq.wire.message_types import MESSAGE_TYPE, MIXED

_MAX_LONG: Final = (1 << 63) - 1
_MOST_DIGITS: Final = 20


class Attribute(msgspec.Struct, frozen=True):
    """One attribute; ``problem`` says what is wrong with a value, None that nothing is."""

    changeable: bool
    problem: Callable[[str], str | None]


def _one_of(*values: str, missing: Mapping[str, str] | None = None) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        if missing and value in missing:
            return missing[value]
        return None if value in values else f"use {', '.join(values[:-1])} or {values[-1]}"

    return problem


def _number(lowest: int, highest: int) -> Callable[[str], str | None]:
    def problem(value: str) -> str | None:
        digits = value.removeprefix("-").removeprefix("+")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS
        fits = is_number and lowest <= int(value) <= highest
        return None if fits else f"use a number from {lowest} to {highest}"

    return problem


def _no_lite(_value: str) -> str:
    return "lite topics are not here yet"


TOPIC_ATTRIBUTES: Final = {
    "queue.type": Attribute(
        changeable=False,
        problem=_one_of("SimpleCQ", missing={"BatchCQ": "batch consume queues are not here"}),
    ),
    "cleanup.policy": Attribute(
        changeable=False,
        problem=_one_of("DELETE", missing={"COMPACTION": "compaction is not here"}),
    ),
    MESSAGE_TYPE: Attribute(
        changeable=True,
        problem=_one_of(
            *("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", MIXED),
            missing={"LITE": "lite topics are not here yet"},
        ),
    ),
    "reserve.time": Attribute(changeable=True, problem=_number(-1, _MAX_LONG)),
    "lite.topic.expiration": Attribute(changeable=True, problem=_no_lite),
}
"""The attributes a topic may have (TopicAttributes)."""

GROUP_ATTRIBUTES: Final = {
    "priority.factor": Attribute(changeable=True, problem=_number(0, 100)),
    **dict.fromkeys(
        (
            "lite.bind.topic",
            "lite.sub.client.quota",
            "lite.sub.model",
            "lite.sub.reset.offset.exclusive",
            "lite.sub.reset.offset.unsubscribe",
            "lite.sub.client.max.event.cnt",
            "lite.sub.wildcard",
        ),
        Attribute(changeable=True, problem=_no_lite),
    ),
}
"""The attributes a group may have (SubscriptionGroupAttributes)."""


def parse_changes(text: str | None) -> dict[str, str]:
    """The changes in ``text``: values by name with its sign; "" for what is removed.

    Raises BrokerError for what is no change, and for a name that is given twice.
    """
    changes: dict[str, str] = {}
    for change in (text or "").rstrip(",").split(",") if text else ():
        name, is_set, value = change.partition("=")
        if not name.startswith("+" if is_set else "-") or not value == value.partition("=")[0]:
            raise _refused(f"{change[:99]!r} is no change: +name=value sets, -name removes")
        if name in changes:
            raise _refused(f"{name!r} is given twice")
        changes[name] = value
    return changes


def altered(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, Attribute],
) -> dict[str, str]:
    """``current`` after ``changes``; None for a topic or group that is new, which takes no removal.

    ``known`` has the attributes there are. Raises BrokerError for others, for a value one cannot
    have, for a change of one that stays, and for removing what is not there.
    """
    result = dict(current or {})
    names = set[str]()
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        if sign not in {"+", "-"} or not name or "+" in name or "-" in name:
            raise _refused(f"{signed[:99]!r} is no change: +name=value sets, -name removes")
        if name in names:
            raise _refused(f"{name!r} is given twice")
        names.add(name)
        if sign == "-" and name not in result:
            raise _refused(f"{name[:99]!r} cannot be removed: it is not set")
        attribute = known.get(name)
        if attribute is None:
            raise _refused(f"there is no {name[:99]!r}: there are {', '.join(sorted(known))}")
        if current is not None and not attribute.changeable:
            raise _refused(f"{name} stays as it was when the topic was made")
        if sign == "-":
            del result[name]
        elif problem := attribute.problem(value):
            raise _refused(f"{name}={value[:99]!r} cannot be: {problem}")
        else:
            result[name] = value
    return result


def _refused(reason: str) -> BrokerError:
    return BrokerError(codes.SYSTEM_ERROR, f"attributes: {reason}")
