"""Trace data read back: what happened to a message, as tools show it. No I/O.

Follows TraceDataEncoder.decoderFromTraceDataString and TraceView of
``org.apache.rocketmq.client.trace``; :mod:`orbitmq.wire.trace` writes such records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final

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
        reader = _READERS.get(kind)
        if reader is None:
            continue
        try:
            yield reader(fields, client_host)
        except (IndexError, ValueError) as error:
            raise RecordError(f"a {kind} trace cannot be read: {record!r}") from error


def _pub(fields: list[str], client_host: str) -> TraceView:
    # Before 4.3 or so there was no offset message id.
    older = len(fields) == 12
    return TraceView(
        trace_type=TraceType.PUB,
        timestamp_ms=int(fields[0]),
        region_id=fields[1],
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tags=_text(fields[5]),
        keys=_text(fields[6]),
        store_host=fields[7],
        cost_time_ms=int(fields[9]),
        offset_message_id="" if older else fields[11],
        success=_truth(fields[11 if older else 12]),
        client_host=client_host,
    )


def _sub_before(fields: list[str], client_host: str) -> TraceView:
    return TraceView(
        trace_type=TraceType.SUB_BEFORE,
        timestamp_ms=int(fields[0]),
        region_id=fields[1],
        group=fields[2],
        request_id=fields[3],
        message_id=fields[4],
        retry_times=int(fields[5]),
        keys=_text(fields[6]),
        client_host=client_host,
    )


def _sub_after(fields: list[str], client_host: str) -> TraceView:
    told = len(fields) >= 8
    return TraceView(
        trace_type=TraceType.SUB_AFTER,
        request_id=fields[0],
        message_id=fields[1],
        cost_time_ms=int(fields[2]),
        success=_truth(fields[3]),
        keys=_text(fields[4]),
        timestamp_ms=int(fields[6]) if told else 0,
        group=fields[7] if told else "",
        client_host=client_host,
    )


def _end_transaction(fields: list[str], client_host: str) -> TraceView:
    return TraceView(
        trace_type=TraceType.END_TRANSACTION,
        timestamp_ms=int(fields[0]),
        region_id=fields[1],
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        tags=_text(fields[5]),
        keys=_text(fields[6]),
        store_host=fields[7],
        transaction_state=fields[10],
        from_transaction_check=_truth(fields[11]),
        client_host=client_host,
    )


def _recall(fields: list[str], client_host: str) -> TraceView:
    return TraceView(
        trace_type=TraceType.RECALL,
        timestamp_ms=int(fields[0]),
        region_id=fields[1],
        group=fields[2],
        topic=fields[3],
        message_id=fields[4],
        success=_truth(fields[5]),
        client_host=client_host,
    )


_READERS: Final[Mapping[str, Callable[[list[str], str], TraceView]]] = {
    TraceType.PUB: _pub,
    TraceType.SUB_BEFORE: _sub_before,
    TraceType.SUB_AFTER: _sub_after,
    TraceType.END_TRANSACTION: _end_transaction,
    TraceType.RECALL: _recall,
}


def _text(field: str) -> str:
    """Of a string that may be missing, which Java writes as ``null``."""
    return "" if field == "null" else field


def _truth(field: str) -> bool:
    return field.lower() == "true"
