"""Typed headers of what only operators' tools ask of brokers and name servers, as in headers.py."""

from __future__ import annotations

import msgspec

from orbitmq.wire.command import Header
from orbitmq.wire.headers import Int, Long


class UpdateGroupForbiddenRequestHeader(Header):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353); without ``readable`` nothing is changed."""

    group: str
    topic: str
    readable: bool | None = None


class QueryConsumeTimeSpanRequestHeader(Header):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class QueryMessageRequestHeader(Header):
    """QUERY_MESSAGE (12): messages with ``key`` stored between two times (ms since the epoch)."""

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    unique_key_query: bool | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")


class QueryMessageResponseHeader(Header):
    """The answer to 12: how far the index has come."""

    index_last_update_timestamp: Long = 0
    index_last_update_phyoffset: Long = 0


class QueryConsumeQueueRequestHeader(Header):
    """QUERY_CONSUME_QUEUE (321): ``count`` entries from ``index`` on."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None


class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE (323); ``msg_id`` is an offset message id."""

    topic: str | None = None
    msg_id: str | None = None


class RecallMessageRequestHeader(Header):
    """RECALL_MESSAGE (370)."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    bname: str | None = None


class RecallMessageResponseHeader(Header):
    """The answer to 370: the unique key of the message that will not come."""

    msg_id: str


class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317): of groups that consume in order, or the others."""

    is_order: bool
