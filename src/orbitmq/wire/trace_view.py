"""Trace data read back: what happened to a message, as tools show it. No I/O.

Follows TraceDataEncoder.decoderFromTraceDataString and TraceView of
``org.apache.rocketmq.client.trace``; :mod:`orbitmq.wire.trace` writes such records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from orbitmq.errors import RecordError
from orbitmq.wire.trace import FIELD_END, RECORD_END


class TraceType(StrEnum):
    """What a trace is of."""

    PUB = "Pub"
    SUB_BEFORE = "SubBefore"
    SUB_AFTER = "SubAfter"
    END_TRANSACTION = "EndTransaction"
    RECALL = "Recall"


class TraceView(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a message.

    ``timestamp_ms`` is when it began (ms since the epoch; 0: not told), ``cost_time_ms`` how long
    it took. ``request_id`` joins what a consumer says before and after. ``success`` is None where
    there is nothing to succeed. ``client_host`` is who told, as the broker saw it.
    """

    trace_type: TraceType
    message_id: str
    timestamp_ms: int = 0
    group: str = ""
    topic: str = ""
    tags: str = ""
    keys: str = ""
    store_host: str = ""
    client_host: str = ""
    cost_time_ms: int = 0
    success: bool | None = None
    offset_message_id: str = ""
    request_id: str = ""
    region_id: str = ""
    retry_times: int = 0
    transaction_state: str = ""
    from_transaction_check: bool = False


def decode_traces(text: str, client_host: str = "") -> Iterator[TraceView]:
    """The records in ``text``; those of an unknown kind are left out, as Java does.

    Raises RecordError for one that is cut.
    """
    for record in text.split(RECORD_END):
        if not record:
            continue
        kind, *fields = record.split(FIELD_END)
        layout = _layout(kind, len(fields))
        if not layout:
            continue
        try:
            values: dict[str, Any] = {
                name: _READERS.get(name, str)(fields[index])
                for index, name in enumerate(layout)
                if name != "-"
            }
        except (IndexError, ValueError) as error:
            raise RecordError(f"a {kind} trace cannot be read: {record!r}") from error
        yield TraceView(trace_type=TraceType(kind), client_host=client_host, **values)


def _layout(kind: str, count: int) -> list[str]:
    """The fields of a record of this ``kind`` with ``count`` of them; none of an unknown kind."""
    layout = _LAYOUTS.get(kind, [])
    if kind == TraceType.PUB and count == _FIELDS_OF_OLD_PUB:
        return [name for name in layout if name != "offset_message_id"]
    if kind == TraceType.SUB_AFTER and count < len(layout):
        return layout[:_FIELDS_OF_OLD_SUB_AFTER]
    return layout


def _text(field: str) -> str:
    """Of a string that may be missing, which Java writes as ``null``."""
    return "" if field == "null" else field


def _truth(field: str) -> bool:
    return field.lower() == "true"


_BEGIN: Final = "timestamp_ms region_id group topic message_id"
_MESSAGE: Final = f"{_BEGIN} tags keys store_host -"
_LAYOUTS: Final[Mapping[str, list[str]]] = {
    TraceType.PUB: f"{_MESSAGE} cost_time_ms - offset_message_id success".split(),
    TraceType.SUB_BEFORE: (
        "timestamp_ms region_id group request_id message_id retry_times keys".split()
    ),
    TraceType.SUB_AFTER: (
        "request_id message_id cost_time_ms success keys - timestamp_ms group".split()
    ),
    TraceType.END_TRANSACTION: f"{_MESSAGE} - transaction_state from_transaction_check".split(),
    TraceType.RECALL: f"{_BEGIN} success".split(),
}
"""The fields of a TraceView in the order they are written; ``-`` is not read."""

_FIELDS_OF_OLD_PUB: Final = 12
"""Before 4.3 or so there was no offset message id."""
_FIELDS_OF_OLD_SUB_AFTER: Final = 5

_READERS: Final[Mapping[str, Callable[[str], object]]] = {
    "timestamp_ms": int,
    "cost_time_ms": int,
    "retry_times": int,
    "tags": _text,
    "keys": _text,
    "success": _truth,
    "from_transaction_check": _truth,
}
