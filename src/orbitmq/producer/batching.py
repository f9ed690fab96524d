"""Automatic batching: messages wait a little for others, go as one batch, and each has its result.

The thin shell around an Accumulator. Lives on the private loop, except where a method says
otherwise. Follows ProduceAccumulator of 5.x and DefaultMQProducer.sendByAccumulator.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from typing import TypeAlias

from orbitmq.errors import OrbitMQError
from orbitmq.message import MessageQueue, SendResult
from orbitmq.producer.accumulator import Accumulator
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.outgoing import Member, Outgoing, join_batch
from orbitmq.producer.sender import Deadline, Sender, Sink
from orbitmq.producer.sending import Sending

_Key: TypeAlias = tuple[str, MessageQueue | None, str | None, str | None, str, int]
"""Topic, queue, sharding key, tags, whether to wait for the store, attempts."""


class Held:
    """One message that waits for others; ``member`` is what it is in a batch."""

    __slots__ = (
        "__weakref__",
        "_batching",
        "_finished",
        "deadline",
        "member",
        "outgoing",
        "queue",
        "retries",
        "sink",
        "size",
    )

    def __init__(
        self,
        batching: Batching,
        outgoing: Outgoing,
        member: Member,
        sink: Sink,
        *,
        queue: MessageQueue | None,
        deadline: Deadline,
        retries: int,
    ) -> None:
        self.size = len(outgoing.body)
        """The bytes of its body."""
        self.deadline = deadline
        """When it must have its outcome."""
        self.outgoing = outgoing
        self.member = member
        self.sink = sink
        self.queue = queue
        self.retries = retries
        self._batching = batching
        self._finished = False

    @property
    def key(self) -> _Key:
        """What it has in common with those it may go with."""
        outgoing, member = self.outgoing, self.member
        sharding_key = None if self.queue is not None else outgoing.sharding_key
        return outgoing.topic, self.queue, sharding_key, member.tags, member.wait, self.retries

    def start(self) -> None:
        """Begin to wait."""
        self._batching.add(self)

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome."""
        self.set_exception(copy.copy(error))

    def set_result(self, result: SendResult) -> None:
        """It was sent."""
        if self._end(arrived=True):
            self.sink.set_result(result)

    def set_exception(self, error: BaseException) -> None:
        """It was not, or it is not known."""
        if self._end(arrived=False):
            self.sink.set_exception(error)

    def _end(self, *, arrived: bool) -> bool:
        """Whether it had no outcome yet."""
        if self._finished:
            return False
        self._finished = True
        self._batching.ended(self, arrived=arrived)
        return True


class Batching:
    """What one producer holds back."""

    def __init__(self, sender: Sender, config: ProducerConfig) -> None:
        self._sender = sender
        self._max_bytes = config.total_batch_max_bytes
        self._accumulator: Accumulator[_Key, Held] = Accumulator(
            config.batch_max_delay_ms / 1000, config.batch_max_bytes, config.max_message_size
        )
        self._held_bytes = 0
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def has_room(self) -> bool:
        """Whether one more may be held back, or else goes by itself; asked from any thread."""
        return self._held_bytes < self._max_bytes

    def add(self, held: Held) -> None:
        """Hold a message back until its batch leaves."""
        sender = self._sender
        sender.pending.add(held)
        self._held_bytes += held.size
        if sender.abandoned is not None:
            held.abandon(sender.abandoned)
            return
        now = sender.instance.clock.monotonic()
        for batch in self._accumulator.add(held.key, held, held.member.batch_size, now):
            self._send(batch)
        if self._closing:
            self.flush()
        elif self._timer is None:
            self._wait(now)

    def flush(self) -> None:
        """Send all that is held back, and from now on at once what still comes."""
        self._closing = True
        for batch in self._accumulator.drain():
            self._send(batch)

    def ended(self, held: Held, *, arrived: bool) -> None:
        """A message has its outcome."""
        self._held_bytes -= held.size
        self._sender.ended(held, arrived)

    def _wait(self, now: float) -> None:
        due = self._accumulator.next_due
        if due is not None:
            self._timer = self._sender.loop.call_later(max(0.0, due - now), self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        for batch in self._accumulator.due(self._sender.instance.clock.monotonic()):
            self._send(batch)
        self._wait(self._sender.instance.clock.monotonic())

    def _send(self, batch: Sequence[Held]) -> None:
        """As one batch; a message that found no other goes as it is."""
        first = batch[0]
        sink: Sink = first
        outgoing = first.outgoing
        if len(batch) > 1:
            try:
                outgoing = join_batch([(held.outgoing, held.member) for held in batch])
            except OrbitMQError as error:
                for held in batch:
                    held.set_exception(copy.copy(error))
                return
            sink = _Shared(batch)
        deadline = min(held.deadline for held in batch)
        Sending(self._sender, outgoing, sink, first.queue, deadline, first.retries).start()


class _Shared:
    """Gives the outcome of a batch to each of its messages."""

    __slots__ = ("_batch",)

    def __init__(self, batch: Sequence[Held]) -> None:
        self._batch = batch

    def set_result(self, result: SendResult) -> None:
        """Each has its own id and offset (MessageAccumulation.splitSendResults)."""
        batch = self._batch
        offset_ids = result.offset_message_id.split(",")
        if len(offset_ids) != len(batch):  # stored as one, where the topic keeps batches
            offset_ids = [result.offset_message_id] * len(batch)
        for number, (held, offset_id) in enumerate(zip(batch, offset_ids, strict=True)):
            held.set_result(
                result._replace(
                    message_id=held.outgoing.message_id,
                    offset_message_id=offset_id,
                    queue_offset=result.queue_offset + number,
                )
            )

    def set_exception(self, error: BaseException) -> None:
        """The same for each, in an exception of its own."""
        for held in self._batch:
            held.set_exception(copy.copy(error))
