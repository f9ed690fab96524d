"""Where a query begins and ends, as its options say it, and which offsets that means.

Reading what the user wrote is pure; what it means is asked of the brokers through Lookups.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from orbitmq.errors import ConfigError
from orbitmq.spark.option_values import duration_ms
from orbitmq.spark.source.offsets import Bounds, Offsets, Queue, flat, nested

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
GROUP: Final = "group"


class Times(NamedTuple):
    """The first message stored at a time or later: ``ms`` since 1970, for some ``queues`` theirs.

    Without ``ms`` the other queues begin at their first message and end at their last.
    """

    ms: int | None
    queues: Offsets = {}


class Ago(NamedTuple):
    """The first message stored no longer ago than ``ms``."""

    ms: int


class Back(NamedTuple):
    """The last ``messages`` of each queue."""

    messages: int


Boundary: TypeAlias = Literal["earliest", "latest", "group"] | Offsets | Times | Ago | Back
"""What startingOffsets, startingTimestamp and so on say. A queue that is not named counts as
earliest where a query begins and latest where it ends."""

_IN_JSON: Final = {EARLIEST: -2, LATEST: -1}
_ALLOWED: Final = (
    "{words}, the last of each queue such as -100, the last of time such as -10m, or JSON such as "
    '{{"broker-a": {{"0": 120, "1": 98}}}} by broker and queue, of several topics '
    '{{"flights": {{"broker-a": {{"0": 120}}}}}}'
)


class Lookups(Protocol):
    """What must be asked of brokers to know what a boundary means."""

    def group_offsets(self, group: str, queues: Collection[Queue]) -> Offsets:
        """The committed offsets of ``group``, of those queues that it has some of."""
        ...

    def offsets_at(self, times: Mapping[Queue, int]) -> Offsets:
        """The offset of the first message stored at a queue's time or later, or its end."""
        ...


def parse_offsets(name: str, text: str, topic: str | None) -> Boundary:
    """The value of startingOffsets or endingOffsets, whichever is ``name``.

    In JSON, as with Spark's Kafka source, -2 stands for earliest and -1 for latest; where only
    ``topic`` is read it need not be named. Raises ConfigError for anything else.
    """
    word = text.strip().lower()
    words: dict[str, Boundary] = {EARLIEST: EARLIEST, LATEST: LATEST}
    if name == "startingOffsets":
        words[GROUP] = GROUP
    if word in words:
        return words[word]
    allowed = _ALLOWED.format(words=", ".join(words))
    if match := re.fullmatch(r"-([0-9]{1,15})", word):
        if not int(match.group(1)):
            raise ConfigError(name, text, allowed)
        return Back(int(match.group(1)))
    if word.startswith("-"):
        try:
            return Ago(duration_ms(word[1:]))
        except ValueError:
            raise ConfigError(name, text, allowed) from None
    offsets = _by_queue(name, text, topic, allowed)
    if any(offset < -2 for offset in offsets.values()):
        raise ConfigError(name, text, "an offset is 0 or more, -2 for earliest, -1 for latest")
    return offsets


def parse_times(name: str, text: str, topic: str | None) -> Times:
    """The value of startingOffsetsByTimestamp or endingOffsetsByTimestamp.

    Raises ConfigError unless it is JSON of times by queue.
    """
    allowed = 'JSON of ms since 1970 such as {"broker-a": {"0": 1767225600000}}'
    times = _by_queue(name, text, topic, allowed)
    if any(time < 0 for time in times.values()):
        raise ConfigError(name, text, allowed)
    return Times(None, times)


def parse_time(text: str) -> Times:
    """The value of startingTimestamp or endingTimestamp: ms since 1970, or ISO 8601 with a zone."""
    if re.fullmatch(r"[0-9]{1,15}", text.strip()):
        return Times(int(text))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        moment = datetime.min  # noqa: DTZ901 - has no zone
    if moment.tzinfo is None:
        raise ValueError("ms since 1970, or a time with its zone such as 2026-01-01T00:00:00Z")
    return Times(int(moment.timestamp() * 1000))


def initial_offset(boundary: Boundary) -> dict[str, Any]:
    """The offset before a query's first batch, still to be resolved."""
    match boundary:
        case str():
            return {"initial": boundary}
        case Times(ms, queues):
            return {"initial": {"time": ms, "times": nested(queues)}}
        case Ago(ms):
            return {"initial": f"-{ms}ms"}
        case Back(messages):
            return {"initial": f"-{messages}"}
        case offsets:
            return {"initial": nested(offsets)}


class Resolver(NamedTuple):
    """Finds out what boundaries mean.

    ``late_is_error``: a time that no message was stored at or after is an error, not the end.
    """

    lookups: Lookups
    now_ms: int
    group: str | None = None
    late_is_error: bool = False

    def resolve(self, name: str, boundary: Boundary, bounds: Mapping[Queue, Bounds]) -> Offsets:
        """The offsets ``boundary``, the value of the option ``name``, means.

        Raises ConfigError for a queue the topics do not have.
        """
        default = LATEST if name.startswith("ending") else EARLIEST
        match boundary:
            case "group":
                committed = self.lookups.group_offsets(self.group or "", bounds)
                return _filled(name, committed, EARLIEST, bounds)
            case str():
                return _filled(name, {}, boundary, bounds)
            case Times(ms, times):
                return _filled(name, self._at(name, ms, times, bounds), default, bounds)
            case Ago(ms):
                return self._at(name, self.now_ms - ms, {}, bounds)
            case Back(messages):
                return {
                    queue: max(bound.first, bound.end - messages) for queue, bound in bounds.items()
                }
            case offsets:
                return _filled(name, offsets, default, bounds)

    def _at(
        self,
        name: str,
        ms: int | None,
        times: Mapping[Queue, int],
        bounds: Mapping[Queue, Bounds],
    ) -> Offsets:
        _check_queues(name, times, bounds)
        wanted = dict(times) if ms is None else dict.fromkeys(bounds, ms) | dict(times)
        found = self.lookups.offsets_at(wanted)
        offsets = {
            queue: min(max(offset, bounds[queue].first), bounds[queue].end)
            for queue, offset in found.items()
        }
        late = [queue for queue, offset in offsets.items() if offset == bounds[queue].end]
        if self.late_is_error and late and name.startswith("starting"):
            raise ConfigError(
                name,
                wanted[late[0]],
                f"{late[0]} has no message of then or later; with "
                "startingOffsetsByTimestampStrategy=latest it is read from its end",
            )
        return offsets


def _filled(
    name: str, named: Mapping[Queue, int], default: str, bounds: Mapping[Queue, Bounds]
) -> Offsets:
    _check_queues(name, named, bounds)
    resolved = {}
    for queue, bound in bounds.items():
        offset = named.get(queue, _IN_JSON[default])
        if offset == _IN_JSON[EARLIEST]:
            offset = bound.first
        elif offset == _IN_JSON[LATEST]:
            offset = bound.end
        resolved[queue] = offset
    return resolved


def _check_queues(name: str, named: Collection[Queue], bounds: Mapping[Queue, Bounds]) -> None:
    for queue in named:
        if queue not in bounds:
            known = ", ".join(map(str, sorted(bounds)[:20]))
            raise ConfigError(name, str(queue), f"read are {known}")


def _by_queue(name: str, text: str, topic: str | None, allowed: str) -> Offsets:
    try:
        document = json.loads(text)
        if _depth(document) == 2 and topic is not None:
            document = {topic: document}
        return flat(document)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ConfigError(name, text, allowed) from error


def _depth(document: object) -> int:
    if not isinstance(document, dict) or not document:
        return 0
    return 1 + _depth(next(iter(document.values())))
