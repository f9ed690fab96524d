"""Where a query stands in its topics, and where its next batch begins and ends: pure functions.

A position maps queues to the offset of the next message to read. Spark keeps positions as JSON in
its checkpoint. Some things beyond plain numbers make resumption exact:

* Spark does not store the initial offset of a Python source and asks for it twice. So the initial
  offset only names what the query was told (``{"initial": "latest"}``); it is resolved once, when
  the first batch is planned, and where the batch begins is written into the batch's *end*.
* The same place in the end offset, ``since``, tells where a queue that appeared later begins, or
  one whose messages were removed before they could be read.
* ``seen`` has, for each topic and broker, when the newest message known there was stored. All of a
  topic that was deleted and made again is newer than that.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from orbitmq.errors import DataLossError, OrbitMQError


class Queue(NamedTuple):
    """One queue of a topic."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.topic}, queue {self.queue_id} of {self.broker_name}"


class Place(NamedTuple):
    """A topic on one broker."""

    topic: str
    broker_name: str


Offsets: TypeAlias = dict[Queue, int]


class Bounds(NamedTuple):
    """The offsets a queue holds messages of: ``first`` up to but not with ``end``."""

    first: int
    end: int


class Position(NamedTuple):
    """An offset of Spark's: where to read on, and where the batch ending here began.

    ``since`` has the queues whose beginning the offset before this one does not tell, ``seen`` the
    store time (ms) of the newest message known when the position was taken.
    """

    queues: Offsets
    since: Offsets
    seen: Mapping[Place, int] = {}

    def to_json(self) -> dict[str, Any]:
        """The form Spark keeps; equal positions give equal text."""
        document: dict[str, Any] = {"topics": nested(self.queues)}
        if self.since:
            document["since"] = nested(self.since)
        if self.seen:
            seen: dict[str, dict[str, int]] = {}
            document["seen"] = seen
            for place, stored in sorted(self.seen.items()):
                seen.setdefault(place.topic, {})[place.broker_name] = stored
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any], topic: str | None = None) -> Position:
        """A position from Spark; the initial one has no queues.

        Before several topics could be read, positions named none: those are of ``topic``. Raises
        OrbitMQError when it is not one of ours.
        """
        if "initial" in document:
            return cls({}, {})
        try:
            if "queues" in document and topic is not None:
                return cls(
                    flat({topic: document["queues"]}), flat({topic: document.get("since", {})})
                )
            return cls(
                flat(document["topics"]),
                flat(document.get("since", {})),
                dict(_places_of(document.get("seen", {}))),
            )
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise OrbitMQError(
                f"{_short(document)} is not an offset of format rocketmq for these topics: the "
                "checkpoint belongs to another source; use another checkpointLocation"
            ) from error


def begin_at(
    wanted: Mapping[Queue, int],
    bounds: Mapping[Queue, Bounds],
    *,
    fail_on_data_loss: bool,
    made_anew: Collection[Place] = (),
) -> tuple[Offsets, list[str]]:
    """Where reading can begin for who wants to begin at ``wanted``, and what is lost by it.

    Of topics in ``made_anew`` nothing that was wanted is there any more. Raises DataLossError when
    anything is lost, and ``fail_on_data_loss``. Only queues with known bounds are in the result.
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
        elif made_anew and offset > bound.first and queue[:2] in made_anew:
            losses.append(
                f"{queue}: the topic was deleted and made again, offset {offset} was of the old one"
            )
            begins[queue] = bound.first
    check_loss(losses, fail_on_data_loss=fail_on_data_loss)
    return begins, losses


def queues_to_ask(
    known: Mapping[Queue, int], bounds: Mapping[Queue, Bounds], seen: Mapping[Place, int]
) -> dict[Place, Queue]:
    """For each topic and broker a queue whose first message tells whether the topic was made anew.

    One of which something was read, and more is to be read.
    """
    asked: dict[Place, Queue] = {}
    for queue, offset in known.items():
        bound = bounds.get(queue)
        if bound is not None and bound.first < offset < bound.end:
            asked.setdefault(Place(*queue[:2]), queue)
    return {place: queue for place, queue in asked.items() if place in seen}


def places_made_anew(
    asked: Mapping[Place, Queue], first_stored: Mapping[Queue, int], seen: Mapping[Place, int]
) -> set[Place]:
    """The topics, by broker, whose first message is newer than all that was known of them."""
    return {place for place, queue in asked.items() if first_stored.get(queue, 0) > seen[place]}


def seen_now(
    seen: Mapping[Place, int], stored: Mapping[Queue, int], made_anew: Collection[Place]
) -> dict[Place, int]:
    """``seen``, brought up to when queues' last messages were ``stored``.

    It never goes back but for a topic that was made anew.
    """
    news = {place: time for place, time in seen.items() if place not in made_anew}
    for queue, time in stored.items():
        place = Place(*queue[:2])
        if time > news.get(place, 0):
            news[place] = time
    return news


def check_loss(losses: Collection[str], *, fail_on_data_loss: bool) -> None:
    """Raise DataLossError for ``losses`` where that is what ``fail_on_data_loss`` says."""
    if not losses or not fail_on_data_loss:
        return
    shown = [*losses][:_SHOWN]
    if len(losses) > _SHOWN:
        shown.append(f"and {len(losses) - _SHOWN} more")
    raise DataLossError(
        f"{'; '.join(shown)}. The messages were removed by the broker's retention, or the "
        "topic was deleted. Set failOnDataLoss=false to read on with what is there"
    )


_SHOWN: Final = 5


def nested(offsets: Mapping[Queue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """``offsets`` as JSON has them, by topic, broker name and queue id, sorted."""
    document: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, broker_name, queue_id), offset in sorted(offsets.items()):
        document.setdefault(topic, {}).setdefault(broker_name, {})[str(queue_id)] = offset
    return document


def flat(document: Mapping[str, Mapping[str, Mapping[str, int]]]) -> Offsets:
    """The offsets of what :func:`nested` makes.

    Raises ValueError, TypeError or AttributeError for anything else.
    """
    return dict(_queues_of(document))


def _queues_of(
    document: Mapping[str, Mapping[str, Mapping[str, int]]],
) -> Iterable[tuple[Queue, int]]:
    for topic, brokers in document.items():
        for broker_name, queues in brokers.items():
            for queue_id, offset in queues.items():
                if type(offset) is not int or int(queue_id) < 0:
                    raise ValueError(f"{queue_id!r}: {offset!r}")
                yield Queue(topic, broker_name, int(queue_id)), offset


def _places_of(document: Mapping[str, Mapping[str, int]]) -> Iterable[tuple[Place, int]]:
    for topic, brokers in document.items():
        for broker_name, stored in brokers.items():
            if type(stored) is not int:
                raise ValueError(f"{broker_name!r}: {stored!r}")
            yield Place(topic, broker_name), stored


def _short(document: Mapping[str, Any]) -> str:
    text = json.dumps(document)
    return text if len(text) <= 200 else f"{text[:200]}..."
