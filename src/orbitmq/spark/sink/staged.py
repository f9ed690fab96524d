"""Batches of rows that are on a broker already, and in no topic yet.

A staged batch is one message of STAGING_TOPIC, whose body is that of the batch as it goes to
its queue later: so it costs a broker little, and nothing is done for each row when it is delivered.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from orbitmq.spark.sink.frames import Frames, parts_of
from orbitmq.spark.sink.lanes import Batch, Part
from orbitmq.spark.sink.unique_ids import UniqueIds
from orbitmq.wire.properties import UNIQ_KEY, find_property

ATTEMPT_DIGITS: Final = 20
"""So many of an id's first digits are those of all ids that an attempt makes."""
STAGED: Final = np.dtype(
    [("row", "<i8"), ("log_offset", "<i8"), ("count", "<i4"), ("kind", "<i4"), ("queue", "<i4")]
)
"""A staged batch: its first row, where it is in the broker's log, how many messages it has, their
kind, and the queue they are for."""
StagedBatches: TypeAlias = npt.NDArray[Any]

_ID_LENGTH: Final = 32


class HalfMessage(msgspec.Struct, frozen=True):
    """Where a half message is in the log, and among the half messages of its broker."""

    log_offset: int
    half_offset: int


class StagedList(msgspec.Struct, frozen=True):
    """Batches for one topic, in the form of STAGED, and the half message that stands for them."""

    topic: str
    half: HalfMessage
    batches: bytes

    @property
    def staged(self) -> StagedBatches:
        """The batches; those of a queue are in their order."""
        return np.frombuffer(self.batches, STAGED)


class AttemptIds:
    """Unique ids for the rows of one attempt, which all begin with ``tag``."""

    def __init__(self) -> None:
        self._ids = UniqueIds()
        self.tag = bytes(self._ids.take(1)[0, :ATTEMPT_DIGITS]).decode()

    def of(self, rows: Any) -> npt.NDArray[np.uint8]:
        """An id for each row."""
        return self._ids.take(rows.count)


class StagedBatch(Batch):
    """A batch whose ``body`` is there as a whole, its first row having the number ``row``."""

    __slots__ = ()

    def __init__(self, body: memoryview | bytes, count: int, kind: int, row: int) -> None:
        super().__init__()
        whole = _frames(body, [0, len(body)], kind, row, [bytes(_ID_LENGTH)])
        self.kind = kind
        self.placed = True
        self.take(Part(whole, 0, 1))
        self.count = count

    def halves(self) -> tuple[Batch, Batch]:
        """As of any batch."""
        return self._opened().halves()

    def ids(self) -> list[bytes]:
        """As of any batch."""
        return self._opened().ids()

    def without(self, present: Collection[bytes]) -> Batch:
        """Those of its messages whose ids are not ``present``."""
        batch = self._opened()
        wanted = [one not in present for one in batch.ids()]
        return self if all(wanted) else batch.only(wanted)

    def _opened(self) -> Batch:
        """The same with its messages apart."""
        (whole, _, _) = self.parts[0]
        offsets = [0]
        while offsets[-1] < len(whole.data):
            size = int.from_bytes(whole.data[offsets[-1] : offsets[-1] + 4], "big")
            offsets.append(offsets[-1] + size)
        ids = []
        for begin, end in pairwise(offsets):
            unique = find_property(parts_of(whole.data[begin:end]).properties, UNIQ_KEY) or ""
            ids.append(unique.encode().ljust(_ID_LENGTH)[:_ID_LENGTH])
        frames = _frames(whole.data, offsets, self.kind, int(whole.rows[0]), ids)
        opened = Batch()
        opened.kind, opened.placed, opened.patience = self.kind, self.placed, self.patience
        opened.take(Part(frames, 0, len(frames)))
        return opened


def _frames(
    data: memoryview | bytes, offsets: list[int], kind: int, row: int, ids: list[bytes]
) -> Frames:
    count = len(ids)
    return Frames(
        memoryview(data),
        np.array(offsets, np.int64),
        np.full(count, kind),
        np.arange(row, row + count),
        np.frombuffer(b"".join(ids), np.uint8).reshape(count, _ID_LENGTH),
    )
