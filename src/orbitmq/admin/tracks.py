"""What became of a message: which groups have consumed it, and what clients traced of it."""

from __future__ import annotations

import asyncio
from enum import StrEnum

import msgspec

from orbitmq import codes
from orbitmq.admin.asker import Asker
from orbitmq.admin.connections import consumer_connection
from orbitmq.admin.groups import groups_of_topic
from orbitmq.admin.messages import MAX_TIME_MS, query_messages
from orbitmq.admin.offsets import consume_stats
from orbitmq.errors import BrokerError, OrbitMQError
from orbitmq.filters.tags import SUB_ALL
from orbitmq.wire.admin_bodies import ConsumerConnection
from orbitmq.wire.bodies import ConsumeType, MessageModel
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.trace_view import TraceView, decode_traces


class TrackType(StrEnum):
    """What a group has done with a message (Java's ``TrackType``)."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, frozen=True):
    """What ``group`` has done with a message; ``failure`` is why that is not known."""

    group: str
    track_type: TrackType
    failure: str | None = None


async def message_track(ask: Asker, message: MessageView) -> list[MessageTrack]:
    """What each group that consumes the topic of ``message`` has done with it.

    By its offset: a group that has passed it has consumed it, or filtered it out by its tag.
    Consumers that poll (PULL) are not looked at further. (messageTrackDetail)
    """
    groups = await groups_of_topic(ask, message.topic)
    return list(await asyncio.gather(*(_track(ask, message, group) for group in groups)))


async def message_trace(
    ask: Asker,
    message_id: str,
    *,
    trace_topic: str | None = None,
    max_num: int = 64,
    begin_ms: int = 0,
    end_ms: int = MAX_TIME_MS,
) -> list[TraceView]:
    """What clients traced of the message with this id, in the order of time.

    From ``trace_topic``, ``AdminConfig.trace_topic`` by default. (mqadmin queryMsgTraceById)
    """
    topic = trace_topic or ask.config.trace_topic
    found = await query_messages(
        ask, topic, message_id, max_num=max_num, begin_ms=begin_ms, end_ms=end_ms
    )
    traces = [
        trace
        for message in found
        for trace in decode_traces(message.body.decode(), message.born_host.rpartition(":")[0])
        if trace.message_id == message_id
    ]
    return sorted(traces, key=lambda trace: trace.timestamp_ms)


async def _track(ask: Asker, message: MessageView, group: str) -> MessageTrack:
    try:
        online = await consumer_connection(ask, group)
        if online.consume_type is ConsumeType.CONSUME_ACTIVELY:
            return MessageTrack(group, TrackType.PULL)
        if online.message_model is MessageModel.BROADCASTING:
            return MessageTrack(group, TrackType.CONSUME_BROADCASTING)
        if not await _passed(ask, message, group):
            return MessageTrack(group, TrackType.NOT_CONSUME_YET)
    except OrbitMQError as error:
        not_online = isinstance(error, BrokerError) and error.code == codes.CONSUMER_NOT_ONLINE
        kind = TrackType.NOT_ONLINE if not_online else TrackType.UNKNOWN
        return MessageTrack(group, kind, str(error))
    if _wants(online, message):
        return MessageTrack(group, TrackType.CONSUMED)
    return MessageTrack(group, TrackType.CONSUMED_BUT_FILTERED)


async def _passed(ask: Asker, message: MessageView, group: str) -> bool:
    """Whether the group's offset is behind the message, at the broker that has it (consumed)."""
    stats = await consume_stats(ask, group, message.topic)
    brokers = (await ask.cluster_info()).broker_addr_table
    return any(
        ends.consumer_offset > message.queue_offset
        for queue, ends in stats.offset_table.items()
        if (queue.topic, queue.queue_id) == (message.topic, message.queue_id)
        and (data := brokers.get(queue.broker_name)) is not None
        and data.master_address == message.store_host
    )


def _wants(online: ConsumerConnection, message: MessageView) -> bool:
    data = online.subscription_table.get(message.topic)
    return (
        data is None
        or not data.tags_set
        or SUB_ALL in data.tags_set
        or (message.tags or "") in data.tags_set
    )
