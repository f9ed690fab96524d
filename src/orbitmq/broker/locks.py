"""Which client of a group holds which queue: the locks orderly consumers ask for.

A lock lives for 60 s unless its holder asks again, which renews it. A state machine: the time is
an argument. Follows RebalanceLockManager.
"""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.message import MessageQueue

LOCK_LIFETIME_MS = 60_000


class QueueLocks:
    """The locks of all groups. ``lifetime_ms`` is how long one lives without being renewed."""

    def __init__(self, lifetime_ms: int = LOCK_LIFETIME_MS) -> None:
        self._lifetime_ms = lifetime_ms
        self._groups: dict[str, dict[MessageQueue, tuple[str, int]]] = {}

    def lock(
        self, group: str, queues: Iterable[MessageQueue], client_id: str, now_ms: int
    ) -> list[MessageQueue]:
        """Lock what no other client holds; returns the queues ``client_id`` now holds."""
        held = self._groups.setdefault(group, {})
        granted = []
        for queue in queues:
            holder, renewed_ms = held.get(queue, (client_id, now_ms))
            if holder == client_id or self._expired(renewed_ms, now_ms):
                held[queue] = (client_id, now_ms)
                granted.append(queue)
        return granted

    def unlock(self, group: str, queues: Iterable[MessageQueue], client_id: str) -> None:
        """Give up the locks ``client_id`` holds on ``queues``; others stay."""
        held = self._groups.get(group, {})
        for queue in queues:
            if queue in held and held[queue][0] == client_id:
                del held[queue]

    def any_held(self, group: str, now_ms: int) -> bool:
        """Whether a lock of ``group`` is alive, which shows that it consumes in order."""
        locks = self._groups.get(group, {}).values()
        return any(not self._expired(renewed_ms, now_ms) for _, renewed_ms in locks)

    def forget_expired(self, now_ms: int) -> None:
        """Drop the locks that have run out."""
        for group, held in list(self._groups.items()):
            for queue, (_, renewed_ms) in list(held.items()):
                if self._expired(renewed_ms, now_ms):
                    del held[queue]
            if not held:
                del self._groups[group]

    def _expired(self, renewed_ms: int, now_ms: int) -> bool:
        return now_ms - renewed_ms > self._lifetime_ms
