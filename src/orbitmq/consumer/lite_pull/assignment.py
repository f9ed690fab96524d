"""What a lite pull consumer holds: its queues, how far each got, and the batches to poll.

Pulled messages wait here between the private loop, which puts them, and the user's thread or
loop, which takes them; so a poll that finds some costs no trip to the private loop. Follows
``AssignedMessageQueue`` and the consume request cache of ``DefaultLitePullConsumerImpl``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.message import MessageQueue

if TYPE_CHECKING:
    from orbitmq.wire.message_view import MessageView


class AssignedQueue:
    """One queue of a lite pull consumer.

    ``position`` is the offset after the last message that was polled, -1 before the first.
    ``settled`` is how far the user is done with them: said by a later poll, or by a commit.
    ``seeks`` counts how often the position was set.
    """

    __slots__ = ("position", "process_queue", "queue", "seeks", "settled")

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.position = -1
        self.settled = -1
        self.seeks = 0


Tell: TypeAlias = "Callable[[AssignedQueue, list[MessageView]], object]"
"""Hears of what a poll is about to give."""


class _Batch:
    """The messages of one pull (Java's ConsumeRequest), the first ``taken`` of them polled."""

    __slots__ = ("assigned", "messages", "seeks", "taken")

    def __init__(self, assigned: AssignedQueue, messages: list[MessageView]) -> None:
        self.assigned = assigned
        self.messages = messages
        self.seeks = assigned.seeks
        self.taken = 0

    @property
    def left(self) -> int:
        """Messages not polled yet."""
        return len(self.messages) - self.taken


_Before: TypeAlias = tuple[int, int, int, bool]
"""What a poll changes, as it was before: the batch's ``taken``, the queue's ``position`` and
``settled``, and whether it was unsettled. No class: it is made for each message."""


def _tell_nobody(_: AssignedQueue, __: list[MessageView]) -> None:
    """Nobody wants to hear of it."""


class LitePullAssignment:
    """The queues assigned to a consumer and the batches cached of them, safe for all threads.

    No I/O and no clock: times are arguments, and a waiter is just a function to call. What is
    settled is to be committed every ``auto_commit_seconds``, None for never.
    """

    def __init__(self, auto_commit_seconds: float | None = None) -> None:
        self._lock = threading.Lock()
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._announced: frozenset[MessageQueue] = frozenset()
        self._paused: set[MessageQueue] = set()
        self._auto_commit_seconds = auto_commit_seconds
        self._next_commit = 0.0
        self._batches: deque[_Batch] = deque()
        self._cached = 0
        self._unsettled: set[AssignedQueue] = set()  # whose position moved since the last poll
        self._waiters: deque[Callable[[], None]] = deque()
        self._ended = False

    @property
    def cached(self) -> int:
        """Messages waiting to be polled."""
        return self._cached

    def queues(self) -> set[MessageQueue]:
        """The queues assigned now."""
        with self._lock:
            return set(self._queues)

    @property
    def announced(self) -> frozenset[MessageQueue]:
        """The queues the user assigned last, held already or soon."""
        return self._announced

    def announce(self, queues: frozenset[MessageQueue]) -> None:
        """These are the queues that will be assigned from now on; they may be paused already."""
        with self._lock:
            self._announced = queues
            self._paused &= queues

    def get(self, queue: MessageQueue) -> AssignedQueue | None:
        """The state of ``queue`` where it is assigned."""
        return self._queues.get(queue)

    def add(self, queue: MessageQueue, process_queue: ProcessQueue) -> AssignedQueue:
        """Take on ``queue``."""
        assigned = AssignedQueue(queue, process_queue)
        with self._lock:
            self._queues[queue] = assigned
        return assigned

    def remove(self, queue: MessageQueue) -> AssignedQueue | None:
        """Give ``queue`` up: what is cached of it will not be polled, nor its position move."""
        with self._lock:
            assigned = self._queues.pop(queue, None)
            if assigned is not None:
                with assigned.process_queue.lock:
                    assigned.process_queue.drop()
                self._forget_batches(assigned)
            if queue not in self._announced:
                self._paused.discard(queue)
        return assigned

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more, of those assigned; what is cached of them is still polled."""
        with self._lock:
            self._paused.update(
                queue for queue in queues if queue in self._queues or queue in self._announced
            )

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        with self._lock:
            self._paused.difference_update(queues)

    def is_paused(self, queue: MessageQueue) -> bool:
        """Whether ``queue`` is paused."""
        return queue in self._paused

    def paused(self) -> set[MessageQueue]:
        """The queues that are paused."""
        with self._lock:
            return set(self._paused)

    def seek(self, assigned: AssignedQueue, offset: int) -> None:
        """Forget what is cached of a queue; the next message polled has ``offset`` or more."""
        with self._lock:
            with assigned.process_queue.lock:
                assigned.process_queue.clear()
            self._forget_batches(assigned)
            assigned.position = assigned.settled = offset
            assigned.seeks += 1

    def put(self, assigned: AssignedQueue, messages: list[MessageView], next_offset: int) -> None:
        """Cache a pull's messages and wake one who waits for them.

        ``next_offset`` is where the next pull begins: there is none between them and that.
        """
        with self._lock:
            process_queue = assigned.process_queue
            with process_queue.lock:
                if process_queue.leaving:
                    return
                process_queue.put(messages)
                process_queue.passed = next_offset
            self._batches.append(_Batch(assigned, messages))
            self._cached += len(messages)
        self._wake_one()

    def advance(self, assigned: AssignedQueue, offset: int) -> None:
        """Nothing before ``offset`` is left to pull: with nothing cached, the position is there.

        So the position of a queue whose messages are not wanted, or that has none yet, moves too.
        """
        with self._lock:
            process_queue = assigned.process_queue
            with process_queue.lock:
                process_queue.passed = offset
                empty = not process_queue.count
            if empty and offset > assigned.position:
                if assigned.settled == assigned.position:  # the user has nothing of it in hand
                    assigned.settled = offset
                else:
                    self._unsettled.add(assigned)
                assigned.position = offset

    # Polling

    def begin_poll(self, now: float) -> dict[MessageQueue, int]:
        """The user is done with everything polled so far; what of it to commit, if it is time.

        ``now`` in seconds, of a clock that never goes back. Follows
        DefaultLitePullConsumerImpl.maybeAutoCommit.
        """
        if self._unsettled:
            with self._lock:
                for assigned in self._unsettled:
                    assigned.settled = assigned.position
                self._unsettled.clear()
        if self._auto_commit_seconds is None or now < self._next_commit:
            return {}
        self._next_commit = now + self._auto_commit_seconds
        return self.settled()

    def take(self, now_ms: int, tell: Tell = _tell_nobody) -> list[MessageView] | None:
        """The next batch, in the order they came, or what is left of it; it counts as polled.

        ``tell`` hears of it first. Where an exception such as Ctrl-C's ends this, or ``tell``,
        the messages are polled again.
        """
        return self._take(now_ms, None, tell)

    def take_one(self, now_ms: int, tell: Tell = _tell_nobody) -> MessageView | None:
        """As :meth:`take`, the next message alone."""
        taken = self._take(now_ms, 1, tell)
        return taken[0] if taken else None

    def _take(self, now_ms: int, count: int | None, tell: Tell) -> list[MessageView] | None:
        batch: _Batch | None = None
        before: _Before = (0, 0, 0, False)
        try:
            with self._lock:
                self._skip_leaving()
                if not self._batches:
                    return None
                first = self._batches[0]
                assigned, taken = first.assigned, first.taken
                unsettled = assigned in self._unsettled
                before = (taken, assigned.position, assigned.settled, unsettled)
                batch = first  # from here on there may be something to put back
                end = len(batch.messages) if count is None else taken + count
                messages = batch.messages[taken:end]
                self._hand_out(batch, end, now_ms)
            tell(assigned, messages)
            return messages
        except BaseException:
            if batch is not None:
                self._put_back(batch, *before)
            raise

    def _hand_out(self, batch: _Batch, end: int, now_ms: int) -> None:
        """The messages of the first batch up to ``end`` are polled."""
        assigned, messages = batch.assigned, batch.messages
        self._cached -= end - batch.taken
        batch.taken = end
        if end < len(messages):
            assigned.position = messages[end].queue_offset
        else:
            self._batches.popleft()
            with assigned.process_queue.lock:
                position = assigned.process_queue.remove(messages, now_ms)
            if position < 0:
                return
            assigned.position = position
        self._unsettled.add(assigned)

    def _put_back(
        self, batch: _Batch, taken: int, position: int, settled: int, unsettled: bool
    ) -> None:
        """Have all as it was, wherever the poll was interrupted; others may have polled since."""
        with self._lock:
            assigned = batch.assigned
            if self._queues.get(assigned.queue) is assigned and batch.seeks == assigned.seeks:
                batch.taken = taken
                if batch not in self._batches:
                    self._batches.appendleft(batch)
                with assigned.process_queue.lock:
                    assigned.process_queue.restore(batch.messages[taken:])
                assigned.position = min(assigned.position, position)
                assigned.settled = min(assigned.settled, settled)
                if not unsettled:
                    self._unsettled.discard(assigned)
            self._count_cached()
        self._wake_one()

    # How far each queue is

    def commit(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """The user is done with what was polled of all queues, or of ``queues``; how far that is.

        Without those never polled.
        """
        with self._lock:
            positions = self._positions(queues)
            for queue, position in positions.items():
                self._queues[queue].settled = position
            return positions

    def commit_at(self, offsets: Mapping[MessageQueue, int]) -> dict[MessageQueue, int]:
        """The user is done with these queues up to these offsets; those of them that are held."""
        with self._lock:
            held = {queue: at for queue, at in offsets.items() if queue in self._queues}
            for queue, offset in held.items():
                self._queues[queue].settled = offset
            return held

    def positions(self) -> dict[MessageQueue, int]:
        """How far each queue was polled; without those never polled."""
        with self._lock:
            return self._positions(None)

    def _positions(self, queues: Iterable[MessageQueue] | None) -> dict[MessageQueue, int]:
        wanted = self._queues if queues is None else queues
        known = ((queue, self._queues.get(queue)) for queue in wanted)
        return {
            queue: assigned.position
            for queue, assigned in known
            if assigned is not None and assigned.position >= 0
        }

    def settled(self) -> dict[MessageQueue, int]:
        """How far each queue is settled; without those where nothing is."""
        with self._lock:
            return {
                queue: assigned.settled
                for queue, assigned in self._queues.items()
                if assigned.settled >= 0
            }

    # Waiting

    def wait(self, waiter: Callable[[], None]) -> bool:
        """Have ``waiter`` called, from any thread, once there is a batch.

        False when there is one already, or the consumer ended; ``waiter`` is then not kept.
        """
        with self._lock:
            if self._batches or self._ended:
                return False
            self._waiters.append(waiter)
            return True

    def give_up(self, waiter: Callable[[], None]) -> None:
        """``waiter`` waits no more; if it was called already, another one is."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return
        self._wake_one()

    def end(self) -> None:
        """Call all who wait, and let nobody wait any more, because the consumer ends."""
        with self._lock:
            self._ended = True
            waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter()

    def _wake_one(self) -> None:
        """Call one who waits, where there is something to poll."""
        with self._lock:
            waiter = self._waiters.popleft() if self._waiters and self._batches else None
        if waiter is not None:
            waiter()

    # The cache

    def _forget_batches(self, assigned: AssignedQueue) -> None:
        self._batches = deque(batch for batch in self._batches if batch.assigned is not assigned)
        self._count_cached()

    def _count_cached(self) -> None:
        self._cached = sum(batch.left for batch in self._batches)

    def _skip_leaving(self) -> None:
        """Leave the messages of a queue that is being given up to its next owner."""
        while self._batches and self._batches[0].assigned.process_queue.leaving:
            self._forget_batches(self._batches[0].assigned)
