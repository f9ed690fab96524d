"""The bound on what is sent and not answered yet, which keeps a fast sender's memory in check."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable


class InFlight:
    """Room for a number of messages and of bytes, given to those who wait in turn.

    All methods may be called from any thread. A message larger than all the bytes fits when it
    is alone.
    """

    __slots__ = ("_byte_limit", "_bytes", "_count", "_limit", "_lock", "_waiting")

    def __init__(self, limit: int, byte_limit: int) -> None:
        self._limit = limit
        self._byte_limit = byte_limit
        self._count = 0
        self._bytes = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def count(self) -> int:
        """The messages on their way."""
        return self._count

    def try_enter(self, size: int) -> bool:
        """Take room for a message of ``size`` bytes if there is some and nobody waits for it."""
        with self._lock:
            return self._take(size)

    def enter(self, size: int, on_entered: Callable[[], None]) -> Callable[[], bool]:
        """Call ``on_entered`` once there is room for ``size`` bytes, which is taken then.

        It is called at once, or by whoever leaves. The function returned gives up the place in
        the line, and says whether it still was there.
        """
        place = (size, on_entered)
        with self._lock:
            entered = self._take(size)
            if not entered:
                self._waiting.append(place)
        if entered:
            on_entered()
        return lambda: self._give_up(place)

    def leave(self, size: int) -> None:
        """Give back the room of a message."""
        entered = []
        with self._lock:
            self._count -= 1
            self._bytes -= size
            waiting = self._waiting
            while waiting and self._fits(waiting[0][0]):
                size, on_entered = waiting.popleft()
                self._count += 1
                self._bytes += size
                entered.append(on_entered)
        for on_entered in entered:
            on_entered()

    def _take(self, size: int) -> bool:
        if self._waiting or not self._fits(size):
            return False
        self._count += 1
        self._bytes += size
        return True

    def _fits(self, size: int) -> bool:
        return self._count < self._limit and (
            self._bytes + size <= self._byte_limit or not self._count
        )

    def _give_up(self, place: tuple[int, Callable[[], None]]) -> bool:
        with self._lock:
            for index, other in enumerate(self._waiting):
                if other is place:
                    del self._waiting[index]
                    return True
        return False
