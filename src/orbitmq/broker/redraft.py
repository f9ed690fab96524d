"""A stored record as a draft again: for messages that are stored a second time.

The body stays as it is stored, compressed if it is, and so do the hosts.
"""

from __future__ import annotations

import struct
from typing import Final

from orbitmq.wire.ids import tags_code
from orbitmq.wire.properties import TAGS, find_property
from orbitmq.wire.record import LAYOUTS, Buffer, Draft, locate_record

_INT: Final = struct.Struct(">i")
_LONG: Final = struct.Struct(">q")


def redraft(record: Buffer) -> Draft:
    """The inverse of encode_record. Raises RecordError when ``record`` is not a whole record."""
    parts = locate_record(record, 0, len(record))
    layout = LAYOUTS[parts.sys_flag >> 4 & 3]
    properties = bytes(record[parts.properties : parts.end])
    return Draft(
        topic=str(record[parts.topic : parts.topic_end], "utf-8"),
        queue_id=_INT.unpack_from(record, layout.queue_id)[0],
        body=bytes(record[parts.body : parts.body_end]),
        properties=properties,
        tags_code=tags_code(find_property(properties, TAGS)),
        flag=_INT.unpack_from(record, layout.flag)[0],
        sys_flag=parts.sys_flag,
        born_timestamp=_LONG.unpack_from(record, layout.born_timestamp)[0],
        born_host=bytes(record[layout.born_host : layout.store_timestamp]),
        store_host=bytes(record[layout.store_host : layout.reconsume_times]),
        reconsume_times=_INT.unpack_from(record, layout.reconsume_times)[0],
        prepared_transaction_offset=_LONG.unpack_from(record, layout.prepared_transaction_offset)[
            0
        ],
    )


def store_timestamp(record: Buffer) -> int:
    """When ``record`` was stored, ms since the epoch."""
    (sys_flag,) = _INT.unpack_from(record, LAYOUTS[0].sys_flag)
    timestamp: int = _LONG.unpack_from(record, LAYOUTS[sys_flag >> 4 & 3].store_timestamp)[0]
    return timestamp


def queue_offset(record: Buffer) -> int:
    """Where ``record`` is in its queue."""
    (sys_flag,) = _INT.unpack_from(record, LAYOUTS[0].sys_flag)
    offset: int = _LONG.unpack_from(record, LAYOUTS[sys_flag >> 4 & 3].queue_offset)[0]
    return offset


def body_of(record: Buffer) -> bytes:
    """The body of ``record`` as it is stored. Raises RecordError when it is not a whole record."""
    parts = locate_record(record, 0, len(record))
    return bytes(record[parts.body : parts.body_end])
