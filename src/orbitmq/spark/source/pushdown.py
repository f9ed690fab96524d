"""Spark's own filters, as far as they tell what need not be read: ``WHERE queueId = 3``.

Spark hands them to a batch read where ``spark.sql.python.filterPushdown.enabled`` is set, and takes
no reader that wants them where it is not; so there is the option pushFilters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from orbitmq.spark.source.offsets import Offsets, Queue
from orbitmq.spark.source.options import ReadOptions

CLOCK_MARGIN_MS: Final = 60_000
"""A broker's clock may be set back between messages, so a queue is read this much further than the
store times asked for; Spark leaves out the rest."""

_ALL: Final = 2**63 - 1
_PLAIN: Final = re.compile(r"[^\s|'\\]+")
_Bounds = tuple[int, int]


class Pushed(msgspec.Struct):
    """What the filters leave to be read: store times in ms, offsets, each from and up to with."""

    queue_ids: frozenset[int] | None = None
    offsets: _Bounds = (0, _ALL)
    stored_ms: _Bounds | None = None
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None

    def ranges(
        self,
        begins: Mapping[Queue, int],
        ends: Mapping[Queue, int],
        offsets_at: Callable[[Mapping[Queue, int]], Offsets],
    ) -> dict[Queue, _Bounds]:
        """Where each queue that is left is read, from and up to but not with."""
        first, last = self.offsets
        found = {
            queue: (max(begin, first), min(ends[queue], last + 1))
            for queue, begin in begins.items()
            if self.queue_ids is None or queue.queue_id in self.queue_ids
        }
        if self.stored_ms is None or not found:
            return found
        from_ms, until_ms = self.stored_ms
        low = offsets_at(dict.fromkeys(found, max(from_ms - CLOCK_MARGIN_MS, 0)))
        high = offsets_at(dict.fromkeys(found, until_ms + CLOCK_MARGIN_MS + 1))
        return {
            queue: (max(begin, low[queue]), min(end, high[queue]))
            for queue, (begin, end) in found.items()
        }

    def applied(self, options: ReadOptions) -> ReadOptions:
        """The same options with the brokers filtering by tags and keys too."""
        tags = options.tags if self.tags is None else self.tags
        if self.keys is None and self.tags is not None:
            return msgspec.structs.replace(
                options, tags=tags, expression=" || ".join(sorted(self.tags))
            )
        if self.keys is None:
            return options
        conditions = [f"KEYS IN ({_listed(self.keys)})"]
        if tags is not None:
            conditions.append(f"TAGS IN ({_listed(tags)})")
        if options.expression_type != "TAG":
            conditions.append(f"({options.expression})")
        return msgspec.structs.replace(
            options, tags=None, expression=" AND ".join(conditions), expression_type="SQL92"
        )


def push(filters: Iterable[Filter], options: ReadOptions) -> tuple[Pushed, list[Filter]]:
    """What ``filters``, all of which must hold, leave to be read; which Spark still evaluates."""
    pushed = Pushed()
    tags = options.tags
    left = []
    for item in filters:
        column, values, low, high = _read(item)
        if values is None and column in {"queueid", "tags", "keys"}:
            left.append(item)
        elif column == "queueid" and _are(values or (), int):
            pushed.queue_ids = _both(pushed.queue_ids, values)
        elif column == "queueoffset" and _are({low, high} - {None}, int):
            pushed.offsets = _within(pushed.offsets, low, high)
            if values is not None and len(values) > 1:
                left.append(item)
        elif column == "tags" and _are_plain(values) and options.expression_type == "TAG":
            tags = pushed.tags = _both(tags, values)
        elif column == "keys" and _are_plain(values) and _are_plain(options.tags or frozenset()):
            pushed.keys = _both(pushed.keys, values)
            left.append(item)
        elif column == "storetimestamp" and (times := _in_ms(low, high)) is not None:
            pushed.stored_ms = _within(pushed.stored_ms or (0, _ALL // 2), *times)
            left.append(item)
        else:
            left.append(item)
    if pushed.tags == frozenset() or pushed.keys == frozenset():
        pushed = Pushed(queue_ids=frozenset())  # no message can have two tags
    return pushed, left


def _read(item: Filter) -> tuple[str, frozenset[Any] | None, Any, Any]:
    """A filter's column, the values it takes if they can be listed, its least and its greatest."""
    column = ".".join(getattr(item, "attribute", ())).lower()
    match item:
        case EqualTo(_, value) if value is not None:
            return column, frozenset([value]), value, value
        case In(_, values) if values and None not in values:
            return column, frozenset(values), min(values), max(values)
        case GreaterThan(_, value):
            return column, None, _next(value, 1), None
        case GreaterThanOrEqual(_, value):
            return column, None, value, None
        case LessThan(_, value):
            return column, None, None, _next(value, -1)
        case LessThanOrEqual(_, value):
            return column, None, None, value
    return "", None, None, None


def _next(value: Any, step: int) -> Any:
    return value + step if type(value) is int else value


def _are(values: Iterable[Any], kind: type) -> bool:
    found = [*values]
    return bool(found) and all(type(value) is kind for value in found)


def _are_plain(values: frozenset[Any] | None) -> bool:
    """Whether values can stand in a tag expression or a condition in SQL as they are."""
    return values is not None and all(
        type(value) is str and _PLAIN.fullmatch(value) and value != "*" for value in values
    )


def _in_ms(low: Any, high: Any) -> tuple[int | None, int | None] | None:
    times: list[int | None] = []
    for value in (low, high):
        if value is None:
            times.append(None)
        elif isinstance(value, datetime) and value.tzinfo is not None:
            times.append(int(value.timestamp() * 1000))
        else:
            return None
    return None if times == [None, None] else (times[0], times[1])


def _within(bounds: _Bounds, low: int | None, high: int | None) -> _Bounds:
    first, last = bounds
    return (
        first if low is None else max(first, low),
        last if high is None else min(last, high),
    )


def _both(known: frozenset[Any] | None, values: frozenset[Any] | None) -> frozenset[Any] | None:
    return values if known is None or values is None else known & values


def _listed(values: Iterable[str]) -> str:
    return ", ".join(f"'{value}'" for value in sorted(values))
