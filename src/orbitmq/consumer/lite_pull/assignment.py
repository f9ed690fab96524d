"""What a lite pull consumer holds: its queues, how far each got, and the batches to poll.

Pulled messages wait here between the private loop, which puts them, and the user's thread or
loop, which takes them; so a poll that finds some costs no trip to the private loop. Follows
``AssignedMessageQueue`` and the consume request cache of ``DefaultLitePullConsumerImpl``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.message import MessageQueue

if TYPE_CHECKING:
    from orbitmq.wire.message_view import MessageView


class AssignedQueue:
    """One queue of a lite pull consumer.

    ``position`` is the offset after the last message that was polled, -1 before the first;
    ``settled`` the same for all polls but the last one, whose messages the user may be working on.
    """

    __slots__ = ("position", "process_queue", "queue", "settled")

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.queue = queue
        self.process_queue = process_queue
        self.position = -1
        self.settled = -1


class _Batch(NamedTuple):
    """The messages of one pull (Java's ConsumeRequest)."""

    assigned: AssignedQueue
    messages: list[MessageView]


class LitePullAssignment:
    """The queues assigned to a consumer and the batches cached of them, safe for all threads.

    No I/O and no clock: times are arguments, and a waiter is just a function to call. What was
    polled is to be committed every ``auto_commit_interval_ms``, None for never.
    """

    def __init__(self, auto_commit_interval_ms: int | None = None) -> None:
        self._lock = threading.Lock()
        self._queues: dict[MessageQueue, AssignedQueue] = {}
        self._announced: frozenset[MessageQueue] = frozenset()
        self._paused: set[MessageQueue] = set()
        self._auto_commit_interval_ms = auto_commit_interval_ms
        self._next_commit_ms = -1
        self._batches: deque[_Batch] = deque()
        self._taken = 0  # messages of the first batch that were taken one by one
        self._cached = 0
        self._unsettled: list[AssignedQueue] = []
        self._waiters: deque[Callable[[], None]] = deque()

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
            waiter = self._waiters.popleft() if self._waiters else None
        if waiter is not None:
            waiter()

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
                assigned.position = offset
                self._unsettled.append(assigned)

    def take(self, now_ms: int) -> tuple[AssignedQueue, list[MessageView]] | None:
        """The next batch, in the order they came, or what is left of it; it counts as polled."""
        with self._lock:
            self._skip_leaving()
            if not self._batches:
                return None
            assigned, messages = self._batches[0]
            if self._taken:
                messages = messages[self._taken :]
            self._finish_batch(now_ms)
            self._cached -= len(messages)
            return assigned, messages

    def take_one(self, now_ms: int) -> tuple[AssignedQueue, MessageView] | None:
        """The next message of the next batch; it alone counts as polled."""
        with self._lock:
            self._skip_leaving()
            if not self._batches:
                return None
            assigned, messages = self._batches[0]
            message = messages[self._taken]
            self._taken += 1
            self._cached -= 1
            if self._taken == len(messages):
                self._finish_batch(now_ms)
            else:
                assigned.position = messages[self._taken].queue_offset
                self._unsettled.append(assigned)
            return assigned, message

    def begin_poll(self, now_ms: int) -> dict[MessageQueue, int]:
        """The user is done with everything polled so far; what of it to commit, if it is time.

        Follows DefaultLitePullConsumerImpl.maybeAutoCommit.
        """
        if self._unsettled:
            with self._lock:
                for assigned in self._unsettled:
                    assigned.settled = assigned.position
                self._unsettled.clear()
        if self._auto_commit_interval_ms is None or now_ms < self._next_commit_ms:
            return {}
        self._next_commit_ms = now_ms + self._auto_commit_interval_ms
        return self.settled()

    def positions(self, queues: Iterable[MessageQueue] | None = None) -> dict[MessageQueue, int]:
        """How far each queue, or each of ``queues``, was polled; without those never polled."""
        with self._lock:
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

    def wait(self, waiter: Callable[[], None]) -> bool:
        """Have ``waiter`` called, from any thread, once there is a batch.

        False when there is one already; ``waiter`` is then not kept.
        """
        with self._lock:
            if self._batches:
                return False
            self._waiters.append(waiter)
            return True

    def give_up(self, waiter: Callable[[], None]) -> None:
        """``waiter`` waits no more; if it was called already, another one is."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                return
            other = self._waiters.popleft() if self._waiters and self._batches else None
        if other is not None:
            other()

    def wake_all(self) -> None:
        """Call all who wait, because the consumer ends."""
        with self._lock:
            waiters, self._waiters = self._waiters, deque()
        for waiter in waiters:
            waiter()

    def _forget_batches(self, assigned: AssignedQueue) -> None:
        if self._batches and self._batches[0].assigned is assigned:
            self._taken = 0
        kept = deque(batch for batch in self._batches if batch.assigned is not assigned)
        self._batches = kept
        self._cached = sum(len(batch.messages) for batch in kept) - self._taken

    def _skip_leaving(self) -> None:
        """Leave the messages of a queue that is being given up to its next owner."""
        while self._batches and self._batches[0].assigned.process_queue.leaving:
            self._forget_batches(self._batches[0].assigned)

    def _finish_batch(self, now_ms: int) -> None:
        """All messages of the first batch were taken."""
        assigned, messages = self._batches.popleft()
        self._taken = 0
        with assigned.process_queue.lock:
            position = assigned.process_queue.remove(messages, now_ms)
        if position >= 0:
            assigned.position = position
            self._unsettled.append(assigned)
