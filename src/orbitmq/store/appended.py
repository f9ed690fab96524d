"""What the store tells of messages: the places they get, and what a write brought."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from orbitmq.store.consume_queue import UNIT, UNIT_SIZE, ConsumeQueue

_OFFSET: Final = f"q{UNIT_SIZE - 8}x"
"""What struct is to take of a unit: where its record is."""


class Appended(msgspec.Struct, frozen=True, gc=False):
    """One message, or the messages of a batch, and the places they get.

    They are there when write() has returned. ``queue_offset`` and ``physical_offset`` are the
    first one's, ``size`` is that of all their records, in bytes, and ``store_timestamp`` is in
    each, ms. ``queue`` is where they go, None: nowhere (AppendMessageResult). ``units`` are their
    entries there.
    """

    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp: int
    queue: ConsumeQueue | None
    units: bytes

    @property
    def physical_offsets(self) -> list[int]:
        """Where in the commit log each of the messages is."""
        return list(struct.unpack(">" + _OFFSET * (len(self.units) // UNIT_SIZE), self.units))


Arrival: TypeAlias = tuple[int, int, int]
"""Of a message in a queue: the queue offset after it, its tags code, and where its record is."""


def arrivals(appended: Iterable[Appended]) -> Iterator[Arrival]:
    """The messages of a queue one by one, in their order."""
    for run in appended:
        offset = run.queue_offset
        for place, _, code in UNIT.iter_unpack(run.units):
            offset += 1
            yield offset, code, place


class Written(msgspec.Struct, frozen=True, gc=False):
    """What one write() brought: ``messages`` in number.

    ``appended`` is all of it, ``by_queue`` what entered a queue. In the log, the messages of a run
    may lie between those of others; the last one's last is the last. Whoever is told may keep it,
    and must not change it.
    """

    appended: Sequence[Appended]
    by_queue: Mapping[ConsumeQueue, Sequence[Appended]]
    messages: int


WriteListener: TypeAlias = Callable[[Written], None]
"""Called with what one write() brought."""
