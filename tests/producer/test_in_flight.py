"""Room for what is under way: in turn, callbacks too, at one cost however long the line."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

from orbitmq.producer.in_flight import InFlight


def line_up(room: InFlight, name: str, size: int, told: list[str], **how: Any) -> None:
    def on_turn(entered: bool) -> None:
        told.append(name if entered else f"no {name}")

    room.enter(name, size, on_turn, how.pop("now", 0.0), **how)


def test_room_is_given_in_turn() -> None:
    room = InFlight(2, 10)
    told: list[str] = []
    assert room.try_enter("first", 6)
    line_up(room, "large", 6, told)
    assert not room.try_enter("passer-by", 1), "nobody passes those who wait"
    line_up(room, "small", 1, told)
    line_up(room, "late", 1, told)
    room.leave("first")
    assert told == ["large", "small"]
    assert not room.leave_line("small"), "it has its room already"
    assert room.leave_line("late")
    room.leave("large")
    room.leave("small")
    room.leave("small")  # has none any more
    assert (room.messages, room.waiting) == (0, 0)
    line_up(room, "at once", 1, told)
    assert told == ["large", "small", "at once"]


def test_who_leaves_the_head_of_the_line_lets_the_next_in() -> None:
    room = InFlight(9, 10)
    told: list[str] = []
    assert room.try_enter("first", 6)
    line_up(room, "large", 6, told)
    line_up(room, "small", 1, told)
    room.leave_line("large")
    assert told == ["small"]


def test_a_callback_not_called_yet_takes_room() -> None:
    room = InFlight(2, 10)
    told: list[str] = []
    for _ in range(2):
        room.callback_asked()
    assert not room.try_enter("next", 1)
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
    assert room.try_enter("first", 1)
    for name in "abc":
        line_up(room, name, 1, told)
    line_up(room, "late", 1, told, now=9.0)
    assert room.turn_away(9.0, patience=10.0)
    room.leave("first")  # something moves
    assert room.turn_away(12.0, patience=10.0)
    assert told == ["a"]
    room.leave("a", arrived=False)  # but a failure is no progress
    assert room.turn_away(21.9, patience=10.0)
    assert told == ["a", "b"]
    assert not room.turn_away(22.0, patience=10.0)
    assert told == ["a", "b", "no c", "no late"]


@pytest.mark.parametrize("entered", [True, False])
def test_an_interrupted_sender_leaves_no_room_taken(entered: bool) -> None:
    room = InFlight(2, 10)
    room.try_enter("other", 4)
    if entered:
        room.try_enter("interrupted", 6)
    else:
        room._bytes += 6  # the signal came in between
    room.abandon("interrupted")
    assert room.messages == 1
    assert room.try_enter("next", 6)


def test_it_says_when_nothing_is_under_way_any_more() -> None:
    said: list[tuple[int, int]] = []
    room = InFlight(1, 10)
    room.on_idle = lambda: said.append((room.messages, room.callbacks))
    room.try_enter("a", 1)
    line_up(room, "b", 1, [])
    room.leave("a")
    room.callback_asked()
    assert not said
    room.leave("b")
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
    count = 3000
    room = InFlight(1, 10)
    room._line = CountedLine()
    CountedLine.looks = 0
    room.try_enter(-1, 1)
    for number in range(count):
        room.enter(number, 1, bool, 0.0)
    if way == "leave":
        for number in range(-1, count):
            room.leave(number)
    elif way == "turn_away":
        room.turn_away(1.0, 1.0)
    else:
        numbers = range(count)
        for number in reversed(numbers) if "back" in way else numbers:
            assert room.leave_line(number)
    assert room.waiting == 0
    assert count <= CountedLine.looks <= 4 * count
