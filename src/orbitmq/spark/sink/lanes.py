"""What a task has for each queue: the batch being filled, and whether another is under way."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from orbitmq.message import MessageQueue
from orbitmq.spark.patience import Patience
from orbitmq.spark.sink.frames import ALONE, Frames

BATCH_MESSAGES: Final = 2000
BATCH_BYTES: Final = 256 * 1024


class Part(NamedTuple):
    """Some of ``frames``, from number ``begin`` to before ``end``."""

    frames: Frames
    begin: int
    end: int


class Batch:
    """Messages of one kind that travel together.

    ``placed`` ones belong to their queue, whatever happens to it.
    """

    __slots__ = ("count", "kind", "parts", "patience", "placed", "size", "suspect")

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self.count = 0
        self.size = 0
        self.kind = 0
        self.placed = False
        self.patience: Patience | None = None  # once it has failed
        self.suspect = False  # it may have been stored, and that matters

    @property
    def sys_flag(self) -> int:
        """That of each of its messages."""
        return self.kind & ~ALONE

    @property
    def body(self) -> memoryview | bytes:
        """All messages, one behind the other."""
        pieces = [frames.bytes_of(begin, end) for frames, begin, end in self.parts]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def first_row(self) -> int:
        """The least number of a row that is in it."""
        return min(int(frames.rows[begin]) for frames, begin, _ in self.parts)

    def fill(self, frames: Frames, begin: int, *, placed: bool) -> int:
        """Take messages from number ``begin`` on as far as there is room; where to go on."""
        kind = int(frames.kinds[begin])
        if self.count and (kind != self.kind or kind & ALONE):
            return begin
        most = 1 if kind & ALONE else BATCH_MESSAGES - self.count
        most = min(most, frames.run_end(begin) - begin)
        end = frames.cut(begin, most, BATCH_BYTES - self.size)
        if end == begin and not self.count:
            end = begin + 1  # longer than a batch is otherwise
        if end > begin:
            self.kind = kind
            self.placed |= placed
            self.take(Part(frames, begin, end))
        return end

    def halves(self) -> tuple[Batch, Batch]:
        """Its first messages and the others, to find out which of them is not taken."""
        halves = Batch(), Batch()
        left = self.count // 2
        for frames, begin, end in self.parts:
            middle = min(end, begin + left)
            left -= middle - begin
            for half, part in zip(
                halves, (Part(frames, begin, middle), Part(frames, middle, end)), strict=True
            ):
                if part.end > part.begin:
                    half.kind, half.placed = self.kind, self.placed
                    half.take(part)
        return halves

    def ids(self) -> list[bytes]:
        """The unique id of each message."""
        return [bytes(row) for frames, begin, end in self.parts for row in frames.ids[begin:end]]

    def only(self, wanted: Sequence[bool]) -> Batch:
        """The messages for which ``wanted`` is true."""
        rest = Batch()
        rest.kind, rest.placed, rest.patience = self.kind, self.placed, self.patience
        at = 0
        for frames, begin, end in self.parts:
            chosen = np.flatnonzero(wanted[at : at + end - begin])
            at += end - begin
            if len(chosen):
                rest.take(Part(frames.only(begin + chosen), 0, len(chosen)))
        return rest

    def take(self, part: Part) -> None:
        """Add ``part``."""
        self.parts.append(part)
        self.count += part.end - part.begin
        self.size += int(part.frames.offsets[part.end] - part.frames.offsets[part.begin])


class Lane:
    """One queue of a topic, at the master's ``address``."""

    __slots__ = ("address", "backlog", "busy", "filling", "next_offset", "queue")

    def __init__(self, queue: MessageQueue, address: str) -> None:
        self.queue = queue
        self.address = address
        self.filling = Batch()
        self.backlog: deque[Batch] = deque()  # what goes before the batch being filled
        self.busy = False
        self.next_offset = 0
        """Of what was acknowledged here nothing is at this offset or behind it."""


class Lanes:
    """The queues of one topic; the first of them that takes messages without a key is random."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self.all = lanes
        self.queues = [lane.queue for lane in lanes]
        self._turn = random.randrange(len(lanes))  # noqa: S311 - not a secret

    @property
    def current(self) -> Lane:
        """The lane whose turn it is."""
        return self.all[self._turn]

    def turn(self) -> None:
        """It is the next lane's turn."""
        self._turn = (self._turn + 1) % len(self.all)
