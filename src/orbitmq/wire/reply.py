"""A reply as a broker pushes it to whoever asked: PUSH_REPLY_MESSAGE_TO_CLIENT (326). No I/O.

Follows ReplyMessageRequestHeader, and ClientRemotingProcessor.receiveReplyMessage for how a message
is made of it.
"""

from __future__ import annotations

from orbitmq.wire.command import Header
from orbitmq.wire.headers import Int, Long
from orbitmq.wire.ids import host_bytes
from orbitmq.wire.message_view import MessageView, decode_record
from orbitmq.wire.properties import ARRIVE_TIME, decode_properties, encode_properties
from orbitmq.wire.record import Draft, encode_record


class ReplyMessageRequestHeader(Header):
    """PUSH_REPLY_MESSAGE_TO_CLIENT (326): the replier's request, and from where it came.

    Hosts are ``ip:port``, times in ms since the epoch.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    born_host: str
    store_host: str
    store_timestamp: Long
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    bname: str | None = None


def reply_message(header: ReplyMessageRequestHeader, body: bytes, arrived_ms: int) -> MessageView:
    """The message that was pushed; when it arrived is its property ARRIVE_TIME.

    Raises WireError for hosts that are none, and for properties that are too long.
    """
    properties = decode_properties((header.properties or "").encode())
    properties[ARRIVE_TIME] = str(arrived_ms)
    draft = Draft(
        header.topic,
        header.queue_id,
        body,
        encode_properties(properties),
        0,
        header.flag,
        header.sys_flag,
        header.born_timestamp,
        _host(header.born_host),
        _host(header.store_host),
        header.reconsume_times or 0,
    )
    return decode_record(encode_record(draft, 0, 0, header.store_timestamp), 0, header.bname or "")


def _host(text: str) -> bytes:
    """Of ``ip:port``; Java writes an IPv6 address without brackets."""
    ip, _, port = text.rpartition(":")
    return host_bytes(ip.strip("/[]"), int(port) if port.isdecimal() else -1)
