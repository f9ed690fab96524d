"""Room for what is under way: in turn, callbacks too, at one cost however long the line."""

from __future__ import annotations

from collections import OrderedDict
from functools import cache
from typing import Any

import pytest

from orbitmq.producer.in_flight import InFlight


class Sent:
    """Stands for a message."""


@cache
def message(_: str) -> Sent:
    """The message of that name, for as long as the tests run."""
    return Sent()


def line_up(room: InFlight, name: str, size: int, told: list[str], **how: Any) -> None:
    def on_turn(entered: bool) -> None:
        told.append(name if entered else f"no {name}")

    room.enter(message(name), size, on_turn, how.pop("now", 0.0), **how)


def test_room_is_given_in_turn() -> None:
    room = InFlight(2, 10)
    told: list[str] = []
    assert room.try_enter(message("first"), 6)
    line_up(room, "large", 6, told)
    assert not room.try_enter(message("passer-by"), 1), "nobody passes those who wait"
    line_up(room, "small", 1, told)
    line_up(room, "late", 1, told)
    room.leave(message("first"))
    assert told == ["large", "small"]
    assert not room.leave_line(message("small")), "it has its room already"
    assert room.leave_line(message("late"))
    room.leave(message("large"))
    room.leave(message("small"))
    room.leave(message("small"))  # has none any more
    assert (room.messages, room.waiting) == (0, 0)
    line_up(room, "at once", 1, told)
    assert told == ["large", "small", "at once"]


def test_who_leaves_the_head_of_the_line_lets_the_next_in() -> None:
    room = InFlight(9, 10)
    told: list[str] = []
    assert room.try_enter(message("first"), 6)
    line_up(room, "large", 6, told)
    line_up(room, "small", 1, told)
    room.leave_line(message("large"))
    room.move()
    assert told == ["small"]


def test_a_callback_not_called_yet_takes_room() -> None:
    room = InFlight(2, 10)
    told: list[str] = []
    for _ in range(2):
        room.callback_asked()
    assert not room.try_enter(message("next"), 1)
    line_up(room, "next", 1, told)
    line_up(room, "of the callback", 1, told, urgent=True)
    assert told == ["of the callback"], "it would wait for itself"
    room.callback_called()
    assert told == ["of the callback"]
    room.callback_called()
    assert told == ["of the callback", "next"]


def test_those_who_waited_while_nothing_was_acknowledged_are_turned_away() -> None:
    room = InFlight(1, 10)
    told: list[str] = []
    assert room.try_enter(message("first"), 1)
    for name in "abc":
        line_up(room, name, 1, told)
    line_up(room, "late", 1, told, now=9.0)
    assert room.turn_away(9.0, patience=10.0)
    room.leave(message("first"))  # something moves
    assert room.turn_away(12.0, patience=10.0)
    assert told == ["a"]
    room.leave(message("a"), arrived=False)  # but a failure is no progress
    assert room.turn_away(21.9, patience=10.0)
    assert told == ["a", "b"]
    assert not room.turn_away(22.0, patience=10.0)
    assert told == ["a", "b", "no c", "no late"]


def test_an_interrupted_sender_leaves_no_room_taken() -> None:
    room = InFlight(2, 10)
    told: list[str] = []
    room.try_enter(message("other"), 4)
    room.abandon(message("interrupted"))  # before it had any
    room.try_enter(message("interrupted"), 6)
    line_up(room, "next", 6, told)
    room.abandon(message("interrupted"))
    room.move()
    assert (told, room.messages) == (["next"], 2)


def test_room_of_a_message_that_nobody_has_any_more_is_found() -> None:
    room = InFlight(2, 10)
    told: list[str] = []
    lost = [Sent(), Sent()]  # an exception came before they were handed over, and again after that
    for sent in lost:
        room.try_enter(sent, 5)
    line_up(room, "first", 8, told)
    line_up(room, "second", 2, told)
    del sent, lost[0]
    assert room.turn_away(1.0, patience=10.0), "the first does not fit in the bytes"
    assert (room.messages, told) == (1, [])
    lost.clear()
    assert not room.turn_away(2.0, patience=10.0)
    assert told == ["first", "second"]
    gone = Sent()
    for name in "first", "second":
        room.leave(message(name))
    room.try_enter(gone, 10)
    del gone
    assert room.try_enter(message("next"), 10)
    assert room.messages == 1


def test_it_says_when_nothing_is_under_way_any_more() -> None:
    said: list[tuple[int, int]] = []
    room = InFlight(1, 10)
    room.on_idle = lambda: said.append((room.messages, room.callbacks))
    room.try_enter(message("a"), 1)
    line_up(room, "b", 1, [])
    room.leave(message("a"))
    room.callback_asked()
    assert not said
    room.leave(message("b"))
    assert said == [(0, 1)]
    room.callback_called()
    assert said == [(0, 1), (0, 0)]


class CountedLine(OrderedDict[Any, Any]):
    """Counts what is looked at."""

    looks = 0

    def items(self) -> Any:
        for item in super().items():
            type(self).looks += 1
            yield item


@pytest.mark.parametrize("way", ["leave", "leave_line", "leave_line backwards", "turn_away"])
def test_a_step_looks_at_no_more_of_a_longer_line(way: str) -> None:
    sent = [Sent() for _ in range(3000)]
    first = Sent()
    room = InFlight(1, 10)
    room._line = CountedLine()
    CountedLine.looks = 0
    room.try_enter(first, 1)
    for each in sent:
        room.enter(each, 1, bool, 0.0)
    if way == "leave":
        for each in [first, *sent]:
            room.leave(each)
    elif way == "turn_away":
        room.turn_away(1.0, 1.0)
    else:
        for each in reversed(sent) if "back" in way else sent:
            assert room.leave_line(each)
            room.move()
    assert room.waiting == 0
    assert len(sent) <= CountedLine.looks <= 4 * len(sent)
