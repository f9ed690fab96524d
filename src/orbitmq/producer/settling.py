"""What a turn of the loop ended, settled at its end: room is given back, callbacks are handed over.

One read of a connection brings the answers to many messages. Together they take one look at the
books, wake the callback thread once, and let as many into the line as there is room for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from orbitmq.client.loop import Call
from orbitmq.producer.in_flight import InFlight


class Settling:
    """The outcomes of the current turn, of one producer; ``hand_over`` gets its callbacks.

    Lives on the private loop.
    """

    __slots__ = ("_arrived", "_callbacks", "_ended", "_hand_over", "_in_flight", "_is_planned")

    def __init__(self, in_flight: InFlight, hand_over: Callable[[Sequence[Call]], object]) -> None:
        self._in_flight = in_flight
        self._hand_over = hand_over
        self._ended: list[Hashable] = []
        self._callbacks: list[Call] = []
        self._arrived = False
        self._is_planned = False

    def ended(self, message: Hashable, arrived: bool) -> None:
        """A message has its outcome; ``arrived`` if it was acknowledged."""
        if self._in_flight.has_room(message):
            self._ended.append(message)
            self._arrived |= arrived
            if not self._is_planned:
                self._plan()

    def call_back(self, function: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Have ``function(*args)`` called, which is in flight until then."""
        self._callbacks.append((function, args))
        if not self._is_planned:
            self._plan()

    def _plan(self) -> None:
        self._is_planned = True
        try:
            asyncio.get_running_loop().call_soon(self._settle)
        except RuntimeError:  # the loop has ended, and has no turns any more
            self._settle()

    def _settle(self) -> None:
        while self._ended or self._callbacks:
            ended, callbacks, arrived = self._ended, self._callbacks, self._arrived
            self._ended, self._callbacks, self._arrived = [], [], False
            self._in_flight.settle(ended, callbacks=len(callbacks), arrived=arrived)
            if callbacks:
                self._hand_over(callbacks)
        self._is_planned = False
