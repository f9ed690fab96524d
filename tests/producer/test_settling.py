"""What a turn of the loop ended is settled once, at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from orbitmq.client.loop import Call
from orbitmq.producer.in_flight import InFlight
from orbitmq.producer.settling import Settling


class Sent:
    """Stands for a message."""


def test_a_turn_gives_back_all_its_room_at_once_and_hands_callbacks_over_together() -> None:
    room = InFlight(3, 100)
    handed: list[Sequence[Call]] = []
    entered: list[bool] = []
    sent = [Sent() for _ in range(3)]
    waiting = Sent()

    async def turns() -> None:
        settling = Settling(room, handed.append)
        for message in sent:
            assert room.try_enter(message, 1)
        room.enter(waiting, 1, entered.append, 0.0)
        for number, message in enumerate(sent):
            settling.ended(message, True)
            settling.call_back(print, (number,))
        settling.ended(Sent(), True)  # had no room, as a blocking send
        assert (room.messages, handed) == (3, [])
        await asyncio.sleep(0)
        assert handed == [[(print, (number,)) for number in range(3)]]
        assert (room.messages, room.callbacks, entered) == (0, 3, []), "callbacks take the room"
        room.callback_called()
        assert entered == [True]
        settling.ended(waiting, False)
        await asyncio.sleep(0)
        assert (room.messages, len(handed)) == (0, 1)

    asyncio.run(turns())


def test_after_the_end_of_the_loop_it_is_settled_at_once() -> None:
    room = InFlight(1, 100)
    handed: list[Sequence[Call]] = []
    settling = Settling(room, handed.append)
    messages = [Sent() for _ in range(3000)]

    def on_turn(_: bool) -> None:  # there is no loop to hand it to
        ended.append(next(left))
        settling.ended(ended[-1], False)
        settling.call_back(print, ())

    left = iter(messages)
    ended = [next(left)]
    assert room.try_enter(ended[0], 1)
    for message in messages[1:]:
        room.enter(message, 1, on_turn, 0.0)
    settling.ended(ended[0], False)
    while room.callbacks:
        room.callback_called()
    assert (room.messages, room.waiting, ended) == (0, 0, messages)
    assert sum(map(len, handed)) == 2999
