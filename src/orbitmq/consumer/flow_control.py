"""Flow control: when a queue holds so much that it is not pulled for now.

A consumer slower than its brokers must not fill its memory, and one stuck message must not let
the queue run away from the offset that can be committed. The limits, and what is compared with
them, are those of pullMessage in DefaultMQPushConsumerImpl and of PullTaskImpl.run in
DefaultLitePullConsumerImpl; sizes count whole records, since those are what is held.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.message import MessageQueue

log = logging.getLogger("orbitmq.consumer.pull")

_MIB: Final = 1024 * 1024
_LOG_EVERY: Final = 1000


class FlowLimits(NamedTuple):
    """How much one queue may hold: messages, MiB, and last minus first offset (None: any)."""

    messages: int
    mib: int
    span: int | None


class FlowControlTimes(NamedTuple):
    """How often pulls waited because too much was cached: of all queues, of one, by its span."""

    of_all: int
    of_queue: int
    of_span: int


class FlowControl:
    """Judges the queues of one consumer by ``limits`` and counts how often it held a pull back."""

    def __init__(self, limits: FlowLimits) -> None:
        self.limits = limits
        self.held_back = 0
        self.held_back_by_span = 0

    def holds_back(self, queue: MessageQueue, held: ProcessQueue) -> bool:
        """Whether ``queue`` must not be pulled now. The caller holds the queue's lock."""
        limits = self.limits
        if held.count > limits.messages:
            limit = f"{limits.messages} messages"
        elif held.size // _MIB > limits.mib:
            limit = f"{limits.mib} MiB"
        elif limits.span is not None and held.max_span > limits.span:
            self.held_back_by_span += 1
            self._log(self.held_back_by_span, f"a span of {limits.span}", queue, held)
            return True
        else:
            return False
        self.held_back += 1
        self._log(self.held_back, limit, queue, held)
        return True

    def has_room(self, held: ProcessQueue, offsets: int, size: int) -> bool:
        """Whether more may be pulled although ``offsets`` offsets, ``size`` bytes, come first."""
        limits = self.limits
        return (
            held.count + offsets <= limits.messages
            and (held.size + size) // _MIB <= limits.mib
            and (limits.span is None or held.max_span + offsets <= limits.span)
        )

    def _log(self, times: int, limit: str, queue: MessageQueue, held: ProcessQueue) -> None:
        if times % _LOG_EVERY == 1:
            log.info(
                "%s holds more than %s (%d messages, %d bytes, a span of %d), so it is not pulled "
                "until some are consumed; this happened %d times",
                queue,
                limit,
                held.count,
                held.size,
                held.max_span,
                times,
            )
