"""The bound on what is sent and not done with yet, which keeps a fast sender's memory in check.

A message is under way from its send to its outcome, and a callback from then until it has been
called. Who finds no room stands in a line; every step of it costs the same however long it is.

The exception of a signal handler (Ctrl-C, a time limit) may end a send between any two steps. So
the books only look at a message: room whose message nobody has any more is found again. The
interpreter looks for signals after calls, so the books are kept by plain statements, and what hears
of a lost message is a function of C's, which none interrupts.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, TypeAlias
from weakref import ref

TurnHandler: TypeAlias = Callable[[bool], object]
"""Told True once there is room, which is taken then, and False when the wait was in vain."""


class _Place(NamedTuple):
    size: int
    since: float
    urgent: bool
    on_turn: TurnHandler


class InFlight:
    """Room for ``limit`` messages and callbacks and ``byte_limit`` bytes, given in turn.

    A message is anything hashable that stands for it, and lives as long as it is under way. All
    methods may be called from any thread. A message larger than all the bytes fits when it is
    alone.
    """

    __slots__ = (
        "_asked",
        "_byte_limit",
        "_bytes",
        "_called",
        "_held",
        "_limit",
        "_line",
        "_lock",
        "_lost",
        "_moved",
        "_moved_at",
        "_on_lost",
        "_sizes",
        "on_idle",
    )

    def __init__(self, limit: int, byte_limit: int) -> None:
        self.on_idle: Callable[[], object] | None = None
        """Called, by whoever ended the last, when no message is under way, and no callback."""
        self._limit = limit
        self._byte_limit = byte_limit
        self._lock = threading.Lock()
        self._held: dict[int, ref[Hashable]] = {}
        self._sizes: dict[int, int] = {}  # apart, for a pair is one more object to be collected
        self._lost: list[ref[Hashable]] = []
        self._on_lost = self._lost.append
        self._bytes = 0
        self._asked = 0
        self._called = 0
        self._line: OrderedDict[Hashable, _Place] = OrderedDict()
        self._moved = False
        self._moved_at = float("-inf")

    @property
    def messages(self) -> int:
        """The messages on their way."""
        with self._lock:
            self._find_lost()
            return len(self._held)

    @property
    def callbacks(self) -> int:
        """The callbacks asked for and not called yet."""
        return self._asked - self._called

    @property
    def waiting(self) -> int:
        """The messages in the line."""
        return len(self._line)

    def holders(self) -> list[Hashable]:
        """What stands for the messages on their way."""
        with self._lock:
            messages = [held() for held in self._held.values()]
        return [message for message in messages if message is not None]

    # Messages

    def try_enter(self, message: Hashable, size: int) -> bool:
        """Take room for a message of ``size`` bytes if there is some and nobody waits for it."""
        with self._lock:
            if self._lost:
                self._find_lost()
            held = self._held  # as _fits and _hold: each message comes by
            if (
                self._line
                or len(held) + self._asked - self._called >= self._limit
                or (self._bytes + size > self._byte_limit and held)
            ):
                return False
            entry, key = ref(message, self._on_lost), id(message)
            self._sizes[key] = size
            held[key] = entry
            self._bytes += size
            return True

    def enter(
        self,
        message: Hashable,
        size: int,
        on_turn: TurnHandler,
        now: float,
        *,
        urgent: bool = False,
    ) -> None:
        """Stand in the line at the time ``now``; ``on_turn`` is told once, maybe at once.

        ``urgent`` is for callbacks, which would wait for themselves: it goes to the front and
        needs no room for the callbacks.
        """
        with self._lock:
            self._line[message] = _Place(size, now, urgent, on_turn)
            if urgent:
                self._line.move_to_end(message, last=False)
            turns = self._admit()
        _tell(turns)

    def leave_line(self, message: Hashable) -> bool:
        """Give up the place in the line; whether it still was there. Then :meth:`move` it."""
        with self._lock:
            return self._line.pop(message, None) is not None

    def move(self) -> None:
        """Have the line move where there is room, after one has gone in another way than leaving.

        Not for a thread that a signal interrupts: others must be told of their turn.
        """
        with self._lock:
            turns = self._admit()
        _tell(turns)
        self._tell_idle()

    def has_room(self, message: Hashable) -> bool:
        """Whether room was taken for a message, and not given back."""
        return id(message) in self._held

    def leave(self, message: Hashable, *, arrived: bool = True) -> None:
        """Give back the room of a message, if it has any; ``arrived`` if it was acknowledged."""
        if self.has_room(message):
            self.settle([message], arrived=arrived)

    def settle(
        self, messages: Sequence[Hashable], *, callbacks: int = 0, arrived: bool = True
    ) -> None:
        """Give back the room of ``messages``, and make some for callbacks, which wait for none.

        ``arrived`` if any of the messages was acknowledged.
        """
        with self._lock:
            for message in messages:
                self._drop(message)
            self._asked += callbacks
            if self._lost:
                self._find_lost()
            turns = self._admit(arrived) if self._line else None
        if turns:
            _tell(turns)
        elif self.on_idle is not None:
            self._tell_idle()

    def abandon(self, message: Hashable) -> None:
        """Give back the room of a sender that was interrupted, if it has any; then :meth:`move`."""
        with self._lock:
            self._drop(message)

    def turn_away(self, now: float, patience: float) -> bool:
        """End the waits of ``patience`` seconds in which nothing was acknowledged.

        To be called now and then while anybody waits; says whether that is so.
        """
        self.move()
        turned: list[_Place] = []
        with self._lock:
            if self._moved:
                self._moved, self._moved_at = False, now
            while self._line:
                message, place = self._first()
                if now - max(place.since, self._moved_at) < patience:
                    break
                del self._line[message]
                turned.append(place)
            waiting = bool(self._line)
        for place in turned:
            place.on_turn(False)
        self._tell_idle()
        return waiting

    # Callbacks

    def callback_asked(self) -> None:
        """Make room for a callback, which waits for none."""
        with self._lock:
            self._asked += 1

    def callback_called(self) -> None:
        """Give it back; only the callback thread says so, and so needs no lock.

        Who enters the line looks at the count when it stands there.
        """
        self._called += 1
        if self._line:
            with self._lock:
                turns = self._admit(True)
            _tell(turns)
        if self.on_idle is not None:
            self._tell_idle()

    def _admit(self, moved: bool = False) -> list[TurnHandler]:
        """Give room to the first of the line while there is some; who must be told of it."""
        self._find_lost()
        turns = []
        while self._line:
            message, place = self._first()
            if not self._fits(place.size, urgent=place.urgent):
                break
            del self._line[message]
            self._hold(message, place.size)
            turns.append(place.on_turn)
        if moved:
            self._moved = True
        return turns

    def _tell_idle(self) -> None:
        on_idle = self.on_idle
        if on_idle is not None and (self._asked == self._called or not (self._held or self._line)):
            on_idle()

    def _hold(self, message: Hashable, size: int) -> None:
        entry, key = ref(message, self._on_lost), id(message)
        self._sizes[key] = size
        self._held[key] = entry
        self._bytes += size

    def _drop(self, message: Hashable) -> bool:
        key = id(message)
        if key not in self._held:
            return False
        self._bytes -= self._sizes[key]
        del self._held[key], self._sizes[key]
        return True

    def _find_lost(self) -> None:
        """Before its key is another's."""
        while self._lost:
            found = len(self._lost)
            for key, held in list(self._held.items()):
                if held() is None:
                    self._bytes -= self._sizes[key]
                    del self._held[key], self._sizes[key]
            del self._lost[:found]

    def _first(self) -> tuple[Hashable, _Place]:
        return next(iter(self._line.items()))

    def _fits(self, size: int, *, urgent: bool = False) -> bool:
        held = self._held
        count = len(held) if urgent else len(held) + self._asked - self._called
        return count < self._limit and (self._bytes + size <= self._byte_limit or not held)


def _tell(turns: list[TurnHandler]) -> None:
    for on_turn in turns:
        on_turn(True)
