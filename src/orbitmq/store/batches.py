"""Storing a batch: its body goes to records in one pass, or each message of it is looked at."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.errors import RecordError
from orbitmq.store.commit_log import CommitLog
from orbitmq.store.consume_queue import UNIT
from orbitmq.store.limits import Limits
from orbitmq.wire.batch_records import BatchRecords
from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import TAGS, find_property
from orbitmq.wire.record import Draft, decode_batch


class StagedBatch(NamedTuple):
    """Where a batch's records will be, their bytes in all, and their consume-queue entries."""

    offset: int
    size: int
    units: bytes


def stage_batch(
    log: CommitLog,
    limits: Limits,
    common: Draft,
    body: bytes,
    queue_offset: int | None,
    store_timestamp: int,
) -> StagedBatch:
    """Stage the messages in a batch's ``body``, all or none, for queue offsets from this one on.

    None: they enter no queue. Raises RecordError and InvalidMessageError.
    """
    if not body:
        raise RecordError("a batch without messages")
    records = BatchRecords(common, store_timestamp)
    if queue_offset is not None:
        position, limit = log.room
        encoded = records.encode_body(body, limits.most, queue_offset, position, limit)
        if encoded is not None:
            data, units = encoded
            log.stage_records(data)
            return StagedBatch(position, len(data), units)
    items = limits.checked(common, decode_batch(body))
    first, step = (queue_offset, 1) if queue_offset is not None else (0, 0)
    queue_offsets = [first + number * step for number in range(len(items))]
    offsets, sizes = log.stage_batch(records, items, queue_offsets)
    codes = [tags_code(find_property(properties, TAGS)) for _, _, properties in items]
    units = b"".join(map(UNIT.pack, offsets, sizes, codes))
    return StagedBatch(offsets[0], sum(sizes), units)
