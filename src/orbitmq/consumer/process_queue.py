"""ProcessQueue: what was pulled of one queue and is not consumed yet.

Everything a consumer must know to consume a queue without losing or skipping a message stands
here: which messages are cached, how far consumption may be committed, whether the queue still
belongs to this consumer and is locked for it. Behaviour follows Java's ``ProcessQueue``, which
keeps a tree of messages by offset; here a deque of offsets, which come sorted, and a dict do the
same for a fraction of the cost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Final, Protocol

from orbitmq.wire.running_info import ProcessQueueInfo

if TYPE_CHECKING:
    from orbitmq.wire.message_view import MessageView

LOCK_EXPIRES_MS: Final = 30_000
"""A broker's lock not renewed for so long is not relied on (rebalance.lockMaxLiveTime)."""
LOCK_INTERVAL_MS: Final = 20_000
"""How often the brokers' locks are renewed (rebalance.lockInterval)."""
PULL_EXPIRES_MS: Final = 120_000
"""A queue not pulled for so long is given up and taken anew (pull.pullMaxIdleTime)."""

_MIB: Final = 1024 * 1024

_offset_of = attrgetter("queue_offset")
_size_of = attrgetter("store_size")


class Held(Protocol):
    """A queue a consumer has; two of them are equal only when they are the same object."""

    @property
    def process_queue(self) -> ProcessQueue:
        """Whose it is, and what is cached of it."""
        ...


class ProcessQueue:
    """The cached messages of one queue, and whose the queue is.

    Pure state: the time comes as an argument, in ms of a clock that is never set. ``lock`` is for
    its users: one who shares the queue with another thread holds it around the calls that belong
    together, never while calling out.

    A queue that is ``leaving`` hands out no more messages but those before some that a listener
    has already, so that none of these comes again; what is being consumed may still count. Once it
    is ``dropped``, nothing counts any more, because it may belong to another
    consumer. ``passed`` is where the next pull begins: with nothing held, all before is done, be
    it consumed or not wanted. ``running`` counts the listeners at work on its messages;
    ``consuming`` says that somebody already works through the queue in order.
    ``try_unlock_times`` counts how often its lock could not be given back because of them.
    """

    __slots__ = (
        "_begun",
        "_consuming",
        "_max_offset",
        "_messages",
        "_order",
        "_size",
        "_waiting",
        "consuming",
        "dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "leaving",
        "lock",
        "locked",
        "passed",
        "running",
        "try_unlock_times",
    )

    def __init__(self, now_ms: int) -> None:
        self.lock = threading.Lock()
        self.leaving = False
        self.dropped = False
        self.locked = False
        self.consuming = False
        self.running = 0
        self.try_unlock_times = 0
        self.passed = -1
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.last_lock_ms = now_ms
        self._messages: dict[int, MessageView] = {}
        self._order: deque[int] = deque()  # offsets, sorted; some may be gone from _messages
        self._consuming: dict[int, MessageView] = {}
        self._max_offset = -1
        self._size = 0
        self._waiting: set[int] = set()  # first offsets of batches that no listener has yet
        self._begun = -1  # the largest of those that one had

    @property
    def count(self) -> int:
        """Messages held, those being consumed in order included."""
        return len(self._messages) + len(self._consuming)

    @property
    def size(self) -> int:
        """Bytes of the records held, those being consumed in order included."""
        return self._size

    @property
    def max_span(self) -> int:
        """Last minus first cached offset, 0 when there is none."""
        first = self.first_offset()
        if first is None:
            return 0
        order, messages = self._order, self._messages
        while order[-1] not in messages:
            order.pop()
        return order[-1] - first

    def first_offset(self) -> int | None:
        """The smallest cached offset."""
        order, messages = self._order, self._messages
        while order and order[0] not in messages:
            order.popleft()
        return order[0] if order else None

    def first_message(self) -> MessageView | None:
        """The cached message with the smallest offset."""
        first = self.first_offset()
        return None if first is None else self._messages[first]

    def put(self, messages: Sequence[MessageView]) -> bool:
        """Add pulled messages; those already held are ignored.

        Returns whether somebody has to start working through the queue in order: there are
        messages, and nobody does. ``consuming`` is then set for the one who will.
        """
        offsets = list(map(_offset_of, messages))
        if offsets:
            if not self.count:
                self._order.clear()
                self._max_offset = -1
            if offsets[0] <= self._max_offset or offsets != sorted(set(offsets)):
                messages = self._fresh(messages)
                offsets = list(map(_offset_of, messages))
            self._messages.update(zip(offsets, messages, strict=True))
            self._insert(offsets)
            self._size += sum(map(_size_of, messages))
        if not self._messages or self.consuming:
            return False
        self.consuming = True
        return True

    def contains(self, message: MessageView) -> bool:
        """Whether the message waits here still."""
        return message.queue_offset in self._messages

    def remove(self, messages: Iterable[MessageView], now_ms: int) -> int:
        """Forget consumed messages.

        Returns how far consumption may be committed: the first offset still held, else the one
        after the largest ever held, or ``passed``; -1 when there was nothing to remove from.
        """
        self.last_consume_ms = now_ms
        held = self._messages
        if not held:
            return -1
        size = 0
        pop = held.pop
        for message in messages:
            gone = pop(message.queue_offset, None)
            if gone is not None:
                size += gone.store_size
        self._size -= size
        first = self.first_offset()
        return max(self._max_offset + 1, self.passed) if first is None else first

    def restore(self, messages: Iterable[MessageView]) -> None:
        """Hold ``messages`` again, which were being removed; they are not consumed after all."""
        self._messages.update((message.queue_offset, message) for message in messages)
        self._order = deque(sorted(self._messages))
        if self._order:
            self._max_offset = max(self._max_offset, self._order[-1])
        held = [*self._messages.values(), *self._consuming.values()]
        self._size = sum(map(_size_of, held))

    def submitted(self, offsets: Iterable[int]) -> None:
        """Batches that begin at ``offsets`` wait for listeners."""
        self._waiting.update(offsets)

    def begin(self, offset: int | None = None) -> bool:
        """Somebody starts to consume the batch at ``offset``, or in order; False when none may.

        In a queue that is leaving only what lies before a batch that was begun earlier may.
        """
        begun = self._begun
        if offset is not None:
            self._waiting.discard(offset)
        if self.leaving and (self.dropped or offset is None or offset > begun):
            return False
        if offset is not None and offset > begun:
            self._begun = offset
        self.running += 1
        return True

    def end(self) -> bool:
        """They ended; whether a queue that is leaving is ``idle`` now."""
        self.running -= 1
        return self.leaving and self.idle

    @property
    def idle(self) -> bool:
        """Whether nobody consumes, nor will consume what lies before what was consumed."""
        return not self.running and all(offset > self._begun for offset in self._waiting)

    # Consuming in order

    def take(self, count: int, now_ms: int) -> list[MessageView]:
        """The next ``count`` messages at most; they are held as being consumed.

        When there is none, ``consuming`` ends: the next :meth:`put` finds somebody anew.
        """
        self.last_consume_ms = now_ms
        order, messages = self._order, self._messages
        taken: list[MessageView] = []
        while order and len(taken) < count:
            offset = order.popleft()
            message = messages.pop(offset, None)
            if message is not None:
                self._consuming[offset] = message
                taken.append(message)
        if not taken:
            self.consuming = False
        return taken

    def commit(self) -> int:
        """Forget what is being consumed; the offset after the last of it, -1 for nothing.

        With nothing held any more that is ``passed``, where it is larger.
        """
        if not self._consuming:
            return -1
        offset = max(self._consuming) + 1
        self._size -= sum(map(_size_of, self._consuming.values()))
        self._consuming.clear()
        return offset if self._messages else max(offset, self.passed)

    def rollback(self) -> None:
        """Put all that is being consumed back to the front."""
        self.consume_again(list(self._consuming.values()))

    def consume_again(self, messages: Iterable[MessageView]) -> None:
        """Put ``messages``, of those being consumed, back to the front."""
        back = {}
        for message in messages:
            if self._consuming.pop(message.queue_offset, None) is not None:
                back[message.queue_offset] = message
        self._messages.update(back)
        self._insert(sorted(back))

    def clear(self) -> None:
        """Forget everything held, as after a seek."""
        self._messages.clear()
        self._consuming.clear()
        self._order.clear()
        self._size = 0
        self._max_offset = self.passed = -1

    # Whose the queue is

    def drop(self) -> None:
        """The queue belongs to this consumer no more."""
        self.leaving = self.dropped = True

    def lock_granted(self, now_ms: int) -> None:
        """The broker locked the queue for this consumer."""
        self.locked = True
        self.last_lock_ms = now_ms

    def holds_lock(self, now_ms: int) -> bool:
        """Whether the broker's lock can be relied on: granted, and renewed in time."""
        return self.locked and now_ms - self.last_lock_ms <= LOCK_EXPIRES_MS

    def pull_expired(self, now_ms: int) -> bool:
        """Whether nobody pulled the queue for so long that something must be broken."""
        return now_ms - self.last_pull_ms > PULL_EXPIRES_MS

    def info(self, commit_offset: int, began_ms: int = 0) -> ProcessQueueInfo:
        """A picture of the present state, for operators (fillProcessQueueInfo).

        ``began_ms``: the time of day, ms since the epoch, when its clock was at 0.
        """
        return ProcessQueueInfo(
            commit_offset=commit_offset,
            cached_msg_min_offset=min(self._messages, default=0),
            cached_msg_max_offset=max(self._messages, default=0),
            cached_msg_count=len(self._messages),
            cached_msg_size_in_mib=self._size // _MIB,
            transaction_msg_min_offset=min(self._consuming, default=0),
            transaction_msg_max_offset=max(self._consuming, default=0),
            transaction_msg_count=len(self._consuming),
            locked=self.locked,
            try_unlock_times=self.try_unlock_times,
            last_lock_timestamp=began_ms + self.last_lock_ms,
            dropped=self.dropped,
            last_pull_timestamp=began_ms + self.last_pull_ms,
            last_consume_timestamp=began_ms + self.last_consume_ms,
        )

    def _fresh(self, messages: Iterable[MessageView]) -> list[MessageView]:
        """Those of ``messages`` that are not held yet, sorted, each offset once."""
        fresh = {message.queue_offset: message for message in messages}
        known = self._messages.keys() | self._consuming.keys()
        return [fresh[offset] for offset in sorted(fresh.keys() - known)]

    def _insert(self, offsets: list[int]) -> None:
        """Sort ``offsets``, themselves sorted, into the order; their messages are there."""
        if not offsets:
            return
        order = self._order
        if not order or order[-1] < offsets[0]:
            order.extend(offsets)
        elif offsets[-1] < order[0]:
            order.extendleft(reversed(offsets))
        else:
            self._order = deque(sorted(self._messages))
        self._max_offset = max(self._max_offset, offsets[-1])
