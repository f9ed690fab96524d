"""Traces read back: what we and Java's clients of any age write."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.errors import RecordError
from orbitmq.wire.trace import FIELD_END, RECORD_END, SentMessage, recalled
from orbitmq.wire.trace_view import TraceType, TraceView, decode_traces

SENT = SentMessage("orders", "ID", None, "k1 k2", "10.0.0.1:10911", 0)


def record(*fields: str) -> str:
    return FIELD_END.join(fields) + RECORD_END


def test_what_a_producer_wrote_is_read_back() -> None:
    text = SENT.published(
        "makers", "Region", 17, 3, body_length=5, offset_message_id="OFF", success=True
    )
    text += SENT.transaction_ended(
        "makers", "Region", 18, transaction_id=None, state="COMMIT_MESSAGE", from_check=True
    )
    text += recalled("makers", "Region", 19, "orders", "ID", success=False)
    same: dict[str, Any] = {
        "region_id": "Region",
        "group": "makers",
        "topic": "orders",
        "message_id": "ID",
    }
    message = {**same, "keys": "k1 k2", "store_host": "10.0.0.1:10911", "client_host": "10.0.0.9"}
    assert list(decode_traces(text, "10.0.0.9")) == [
        TraceView(
            trace_type=TraceType.PUB,
            timestamp_ms=17,
            cost_time_ms=3,
            offset_message_id="OFF",
            success=True,
            **message,
        ),
        TraceView(
            trace_type=TraceType.END_TRANSACTION,
            timestamp_ms=18,
            transaction_state="COMMIT_MESSAGE",
            from_transaction_check=True,
            **message,
        ),
        TraceView(
            trace_type=TraceType.RECALL,
            timestamp_ms=19,
            success=False,
            client_host="10.0.0.9",
            **same,
        ),
    ]


def test_a_producer_before_4_3_said_nothing_of_where_the_message_is() -> None:
    fields = ["Pub", "17", "R", "makers", "orders", "ID", "t", "k", "host", "5", "3", "0", "true"]
    (trace,) = decode_traces(record(*fields))
    assert (trace.offset_message_id, trace.success, trace.cost_time_ms) == ("", True, 3)
    assert (trace.tags, trace.keys, trace.store_host) == ("t", "k", "host")


def test_what_a_consumer_said_before_and_after() -> None:
    before = record("SubBefore", "17", "R", "readers", "REQUEST", "ID", "2", "null")
    after = record("SubAfter", "REQUEST", "ID", "9", "TRUE", "k", "0")
    newer = record("SubAfter", "REQUEST", "ID", "9", "false", "k", "0", "18", "readers")
    assert list(decode_traces(before + after + newer)) == [
        TraceView(
            trace_type=TraceType.SUB_BEFORE,
            timestamp_ms=17,
            region_id="R",
            group="readers",
            request_id="REQUEST",
            message_id="ID",
            retry_times=2,
        ),
        TraceView(
            trace_type=TraceType.SUB_AFTER,
            request_id="REQUEST",
            message_id="ID",
            cost_time_ms=9,
            success=True,
            keys="k",
        ),
        TraceView(
            trace_type=TraceType.SUB_AFTER,
            request_id="REQUEST",
            message_id="ID",
            cost_time_ms=9,
            success=False,
            keys="k",
            timestamp_ms=18,
            group="readers",
        ),
    ]


def test_kinds_to_come_are_left_out() -> None:
    assert list(decode_traces(record("PopBefore", "1") + record("Pub2"))) == []


@pytest.mark.parametrize(
    "cut",
    ["Pub", "Pub 17 R g t ID", "SubBefore x R g r ID 0 k", "SubAfter r ID 9 true", "Recall 1"],
)
def test_a_record_that_is_cut_is_told(cut: str) -> None:
    with pytest.raises(RecordError, match=f"a {cut.split(maxsplit=1)[0]} trace cannot be read"):
        list(decode_traces(record(*cut.split())))
