"""Typed headers of what only operators' tools ask of brokers and name servers, as in headers.py."""

from __future__ import annotations

import msgspec

from orbitmq.wire.command import Header


class QueryConsumeTimeSpanRequestHeader(Header):
    """QUERY_CONSUME_TIME_SPAN (303)."""

    topic: str
    group: str


class ResumeCheckHalfMessageRequestHeader(Header):
    """RESUME_CHECK_HALF_MESSAGE (323); ``msg_id`` is an offset message id."""

    topic: str | None = None
    msg_id: str | None = None


class ViewBrokerStatsDataRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315)."""

    stats_name: str
    stats_key: str


class GetConsumeStatsInBrokerHeader(Header):
    """GET_BROKER_CONSUME_STATS (317): of groups that consume in order, or the others."""

    is_order: bool


class ReadAheadRequestHeader(Header):
    """SET_COMMITLOG_READ_MODE (2004): 0 reads ahead, 1 does not."""

    mode: str = msgspec.field(name="READ_AHEAD_MODE")
