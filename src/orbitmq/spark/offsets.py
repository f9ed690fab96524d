"""Where a query stands in a topic, and where its next batch begins and ends: pure functions.

A position maps queues to the offset of the next message to read. Spark keeps positions as JSON in
its checkpoint. Two things beyond plain numbers make resumption exact:

* Spark does not store the initial offset of a Python source and asks for it twice. So the initial
  offset only names what the query was told (``{"initial": "latest"}``); it is resolved once, when
  the first batch is planned, and where the batch begins is written into the batch's *end*.
* The same place in the end offset, ``since``, tells where a queue that appeared later begins, or
  one whose messages were removed before they could be read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from orbitmq.errors import ConfigError, DataLossError, OrbitMQError

EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class Queue(NamedTuple):
    """One queue of the topic."""

    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"queue {self.queue_id} of {self.broker_name}"


Offsets: TypeAlias = dict[Queue, int]
Boundary: TypeAlias = Literal["earliest", "latest"] | Offsets
"""What startingOffsets and endingOffsets say. A queue that is not named counts as earliest in
the one and latest in the other."""

_IN_JSON: Final = {EARLIEST: -2, LATEST: -1}


class Bounds(NamedTuple):
    """The offsets a queue holds messages of: ``first`` up to but not with ``end``."""

    first: int
    end: int


class Position(NamedTuple):
    """An offset of Spark's: where to read on, and where the batch ending here began.

    ``since`` has the queues whose beginning the offset before this one does not tell.
    """

    queues: Offsets
    since: Offsets

    def to_json(self) -> dict[str, Any]:
        """The form Spark keeps; equal positions give equal text."""
        document = {"queues": _nested(self.queues)}
        if self.since:
            document["since"] = _nested(self.since)
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Position:
        """A position from Spark; the initial one has no queues.

        Raises OrbitMQError when it is not one of ours.
        """
        if "initial" in document:
            return cls({}, {})
        try:
            return cls(_flat(document["queues"]), _flat(document.get("since", {})))
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise OrbitMQError(
                f"{json.dumps(document)} is not an offset of format rocketmq: the checkpoint "
                "belongs to another source; use another checkpointLocation"
            ) from error


def initial_offset(boundary: Boundary) -> dict[str, Any]:
    """The offset before a query's first batch, still to be resolved."""
    return {"initial": boundary if isinstance(boundary, str) else _nested(boundary)}


def parse_boundary(name: str, text: str) -> Boundary:
    """The value of the option ``name``: earliest, latest, or JSON by broker name and queue id.

    In JSON, as with Spark's Kafka source, -2 stands for earliest and -1 for latest. Raises
    ConfigError for anything else.
    """
    match text.strip().lower():
        case "earliest":
            return EARLIEST
        case "latest":
            return LATEST
    try:
        offsets = _flat(json.loads(text))
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            name, text, 'earliest, latest, or JSON such as {"broker-a": {"0": 120, "1": 98}}'
        ) from error
    if any(offset < -2 for offset in offsets.values()):
        raise ConfigError(name, text, "an offset is 0 or more, -2 for earliest, -1 for latest")
    return offsets


def resolve(name: str, boundary: Boundary, bounds: Mapping[Queue, Bounds]) -> Offsets:
    """What ``boundary``, the value of the option ``name``, means for queues with ``bounds``.

    Raises ConfigError for a queue the topic does not have.
    """
    named: Offsets = {}
    if isinstance(boundary, str):
        default = _IN_JSON[boundary]
    else:
        default = _IN_JSON[LATEST if name == "endingOffsets" else EARLIEST]
        named = boundary
    for queue in named:
        if queue not in bounds:
            known = ", ".join(map(str, sorted(bounds)))
            raise ConfigError(name, str(queue), f"the topic has {known}")
    resolved = {}
    for queue, bound in bounds.items():
        offset = named.get(queue, default)
        if offset == _IN_JSON[EARLIEST]:
            offset = bound.first
        elif offset == _IN_JSON[LATEST]:
            offset = bound.end
        resolved[queue] = offset
    return resolved


def begin_at(
    wanted: Mapping[Queue, int], bounds: Mapping[Queue, Bounds], *, fail_on_data_loss: bool
) -> tuple[Offsets, list[str]]:
    """Where reading can begin for who wants to begin at ``wanted``, and what is lost by it.

    Raises DataLossError when anything is, and ``fail_on_data_loss``. Only queues with known
    bounds are in the result.
    """
    begins: Offsets = {}
    losses = []
    for queue, offset in wanted.items():
        bound = bounds.get(queue)
        if bound is None:
            continue
        begins[queue] = offset
        if offset < bound.first:
            losses.append(f"{queue}: offset {offset} was removed, the first is {bound.first}")
            begins[queue] = bound.first
        elif offset > bound.end:
            losses.append(f"{queue}: offset {offset} is not there, the queue ends at {bound.end}")
            begins[queue] = bound.first
    if losses and fail_on_data_loss:
        raise DataLossError(
            f"{'; '.join(losses)}. The messages were removed by the broker's retention, or the "
            "topic was made anew. Set failOnDataLoss=false to read on with what is there"
        )
    return begins, losses


def limit_ends(begins: Mapping[Queue, int], ends: Mapping[Queue, int], limit: int) -> Offsets:
    """Ends that leave ``limit`` offsets between ``begins`` and them, shared out by backlog."""
    backlog = {queue: ends[queue] - begin for queue, begin in begins.items()}
    total = sum(backlog.values())
    if total <= limit:
        return dict(ends)
    shares = {queue: size * limit // total for queue, size in backlog.items()}
    left = limit - sum(shares.values())
    by_remainder = sorted(backlog, key=lambda queue: (-(backlog[queue] * limit % total), queue))
    for queue in by_remainder[:left]:
        shares[queue] += 1
    return {queue: begins[queue] + share for queue, share in shares.items()}


def _nested(offsets: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    document: dict[str, dict[str, int]] = {}
    for (broker_name, queue_id), offset in sorted(offsets.items()):
        document.setdefault(broker_name, {})[str(queue_id)] = offset
    return document


def _flat(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    return dict(_queues_of(document))


def _queues_of(document: Mapping[str, Mapping[str, int]]) -> Iterable[tuple[Queue, int]]:
    for broker_name, queues in document.items():
        for queue_id, offset in queues.items():
            if type(offset) is not int or int(queue_id) < 0:
                raise ValueError(f"{queue_id!r}: {offset!r}")
            yield Queue(broker_name, int(queue_id)), offset
