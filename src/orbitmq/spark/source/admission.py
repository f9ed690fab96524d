"""How much one micro-batch takes of what there is: pure functions and one small state."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from orbitmq.spark.source.offsets import Offsets, Queue
from orbitmq.spark.source.options import Admission


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


class Admittance:
    """Applies an Admission to one batch after the other."""

    def __init__(self, limits: Admission) -> None:
        self._limits = limits
        self._last_batch: float | None = None

    def admit(
        self,
        begins: Mapping[Queue, int],
        ends: Mapping[Queue, int],
        *,
        now: float,
        record_bytes: Callable[[Queue], float],
        may_delay: bool,
    ) -> Offsets:
        """The ends of the next batch: ``begins`` where it waits for more.

        ``now`` is in seconds; ``record_bytes`` says how large the next messages of a queue are and
        is asked only where a limit in bytes needs it.
        """
        limits = self._limits
        backlog = {queue: ends[queue] - begin for queue, begin in begins.items()}
        total = sum(backlog.values())
        if not total:
            return dict(ends)
        most, enough = limits.max_offsets or total, total >= (limits.min_offsets or 0)
        if limits.min_bytes is not None or limits.max_bytes is not None:
            each = record_bytes(max(backlog, key=lambda queue: backlog[queue]))
            enough = enough and total * each >= (limits.min_bytes or 0)
            if limits.max_bytes is not None:
                most = min(most, max(1, int(limits.max_bytes / each)))
        if self._last_batch is None:
            self._last_batch = now - limits.max_delay_ms / 1000  # the first one does not wait
        waited_ms = (now - self._last_batch) * 1000
        if may_delay and not enough and waited_ms < limits.max_delay_ms:
            return dict(begins)
        self._last_batch = now
        return limit_ends(begins, ends, most)
