"""Messages as a consumer gets them: views of records, made without a broker."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.wire.message_view import MessageView, decode_record, decode_records
from orbitmq.wire.properties import encode_properties
from orbitmq.wire.record import Draft, encode_record, host_bytes

HOST = host_bytes("127.0.0.1", 10911)


def record(
    queue_offset: int,
    body: bytes = b"body",
    *,
    topic: str = "orders",
    queue_id: int = 0,
    properties: dict[str, str] | None = None,
    reconsume_times: int = 0,
) -> bytes:
    draft = Draft(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=encode_properties(properties or {}),
        tags_code=0,
        flag=0,
        sys_flag=0,
        born_timestamp=1,
        born_host=HOST,
        store_host=HOST,
        reconsume_times=reconsume_times,
    )
    return encode_record(draft, queue_offset, 1000 + queue_offset, 2)


def message(queue_offset: int, body: bytes = b"body") -> MessageView:
    return decode_record(record(queue_offset, body), 0, "broker-a")


def messages(offsets: Iterable[int]) -> list[MessageView]:
    return decode_records(b"".join(record(offset) for offset in offsets), "broker-a")


def offsets(views: Iterable[MessageView]) -> list[int]:
    return [view.queue_offset for view in views]
