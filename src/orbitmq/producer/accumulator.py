"""Which messages wait for others to make a batch with, and for how long.

A state machine of batches by key; the time is an argument, in seconds of a clock that is never set
back. Follows ProduceAccumulator of 5.x, but that a batch leaves on time instead of at the next look
of a thread, and never grows beyond what a message may have.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_KeyT = TypeVar("_KeyT", bound=Hashable)
_ItemT = TypeVar("_ItemT")


class _Batch(Generic[_ItemT]):
    """What waits together."""

    __slots__ = ("due", "items", "size")

    def __init__(self, due: float) -> None:
        self.due = due
        self.size = 0
        self.items: list[_ItemT] = []


class Accumulator(Generic[_KeyT, _ItemT]):
    """Holds items of one key for ``max_delay`` seconds, or until they have over ``max_bytes``.

    No batch has more than ``limit`` bytes, unless one item alone has. Items of a key leave in the
    order they came.
    """

    def __init__(self, max_delay: float, max_bytes: int, limit: int) -> None:
        self._max_delay = max_delay
        self._max_bytes = max_bytes
        self._limit = limit
        self._batches: dict[_KeyT, _Batch[_ItemT]] = {}  # the first is due first

    def add(self, key: _KeyT, item: _ItemT, size: int, now: float) -> list[list[_ItemT]]:
        """Take an item of ``size`` bytes; returns the batches that leave now, in order."""
        ready: list[list[_ItemT]] = []
        batch = self._batches.get(key)
        if batch is not None and batch.size + size > self._limit:
            ready.append(self._batches.pop(key).items)
            batch = None
        if batch is None:
            batch = self._batches[key] = _Batch(now + self._max_delay)
        batch.items.append(item)
        batch.size += size
        if batch.size > self._max_bytes:
            ready.append(self._batches.pop(key).items)
        return ready

    @property
    def next_due(self) -> float | None:
        """When the next batch leaves unless it is full before; None while nothing waits."""
        first = next(iter(self._batches.values()), None)
        return None if first is None else first.due

    def due(self, now: float) -> list[list[_ItemT]]:
        """The batches whose time has come."""
        keys = []
        for key, batch in self._batches.items():
            if batch.due > now:
                break
            keys.append(key)
        return [self._batches.pop(key).items for key in keys]

    def drain(self) -> list[list[_ItemT]]:
        """All that waits."""
        batches, self._batches = self._batches, {}
        return [batch.items for batch in batches.values()]
