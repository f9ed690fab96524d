"""Offsets: the ends of queues, how far groups are in them, and how they are moved."""

from __future__ import annotations

from typing import Literal

import msgspec

from orbitmq import codes
from orbitmq.admin.asker import Asker, merge_queues, select_address
from orbitmq.admin.connections import consumer_connection
from orbitmq.client.timeouts import in_ms
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, OrbitMQError, QueryNotFoundError, for_code
from orbitmq.message import MessageQueue
from orbitmq.names import retry_topic
from orbitmq.wire.admin_bodies import (
    ConsumeStats,
    GetConsumerStatusBody,
    OffsetWrapper,
    ResetOffsetBody,
)
from orbitmq.wire.bodies import MessageModel, TopicStatsTable
from orbitmq.wire.command import Header
from orbitmq.wire.headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumerStatusRequestHeader,
    GetConsumeStatsRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    TopicQueueRequestHeader,
    TopicRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from orbitmq.wire.operator_bodies import QueryConsumeTimeSpanBody, QueueTimeSpan
from orbitmq.wire.operator_headers import QueryConsumeTimeSpanRequestHeader

END_MS = -1
"""As a time to reset to: the end of the queues."""


class RollbackStats(msgspec.Struct, frozen=True):
    """What became of a queue whose offset was to be moved to a time.

    ``broker_offset`` is its end, ``consumer_offset`` where the group was, ``timestamp_offset``
    where that time lies, ``rollback_offset`` where the group is now.
    """

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    rollback_offset: int


# The ends of a queue


async def max_offset(ask: Asker, queue: MessageQueue) -> int:
    """The offset the next message of ``queue`` gets."""
    queue = ask.namespace.wrap_queue(queue)
    return await _max_offset(ask, await ask.broker_of(queue), queue)


async def min_offset(ask: Asker, queue: MessageQueue) -> int:
    """The offset of the oldest message of ``queue`` still kept."""
    queue = ask.namespace.wrap_queue(queue)
    address = await ask.broker_of(queue)
    answer = await ask.ask(address, RequestCode.GET_MIN_OFFSET, _queue_header(queue))
    return answer.header(OffsetResponseHeader).offset


async def search_offset(
    ask: Asker,
    queue: MessageQueue,
    timestamp_ms: int,
    boundary: Literal["LOWER", "UPPER"] = "LOWER",
) -> int:
    """The offset of the first message stored at that time (ms since the epoch) or later.

    Of several stored at the time, ``UPPER`` gives the last (brokers of 5.x).
    """
    queue = ask.namespace.wrap_queue(queue)
    return await _offset_at(ask, await ask.broker_of(queue), queue, timestamp_ms, boundary)


async def earliest_message_store_time(ask: Asker, queue: MessageQueue) -> int:
    """When the oldest message of ``queue`` was stored, ms since the epoch; -1 without one."""
    queue = ask.namespace.wrap_queue(queue)
    address = await ask.broker_of(queue)
    answer = await ask.ask(address, RequestCode.GET_EARLIEST_MSG_STORETIME, _queue_header(queue))
    return answer.header(TimestampResponseHeader).timestamp


# How far a group is


async def consume_stats(
    ask: Asker,
    group: str,
    topic: str | None = None,
    *,
    broker: str | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> ConsumeStats:
    """How far ``group`` is in the queues of ``topic``, or of all its topics.

    At all its brokers, or at ``broker`` alone. Each may take ``timeout`` seconds (three times
    ``api_timeout_ms``). Raises BrokerError with CONSUMER_NOT_ONLINE (206)
    where it has consumed nothing and nobody is online, BROADCAST_CONSUMPTION (213) where each
    consumer keeps its own offsets; PartialFailureError where a broker does not tell.
    (examineConsumeStats)
    """
    wire_group = ask.namespace.wrap(group)
    wire_topic = topic and ask.namespace.wrap(topic)
    header = GetConsumeStatsRequestHeader(consumer_group=wire_group, topic=wire_topic)
    timeout_ms = 3 * ask.config.api_timeout_ms if timeout is None else in_ms(timeout)

    async def stats_at(address: str) -> ConsumeStats:
        code = RequestCode.GET_CONSUME_STATS
        answer = await ask.ask(address, code, header, timeout_ms=timeout_ms)
        return ConsumeStats.decode(answer.body)

    if broker is None:
        topics = [retry_topic(wire_group), *([wire_topic] if wire_topic else [])]
        addresses = list(await ask.brokers_of(*topics))
    else:
        addresses = [await ask.broker(broker)]
    answers = await ask.each(addresses, stats_at)
    found = answers.by_address.values()
    table = merge_queues(ask.namespace, (stats.offset_table for stats in found))
    if not table and not answers.failures and broker is None:
        await _check_consumes(ask, group)
    return answers.complete(ConsumeStats(table, sum(stats.consume_tps for stats in found)))


async def consume_offset(ask: Asker, group: str, queue: MessageQueue) -> int | None:
    """The offset ``group`` has of ``queue``, None where it has none (QUERY_CONSUMER_OFFSET)."""
    queue = ask.namespace.wrap_queue(queue)
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=ask.namespace.wrap(group),
        topic=queue.topic,
        queue_id=queue.queue_id,
        set_zero_if_not_found=False,
        bname=queue.broker_name,
    )
    code = RequestCode.QUERY_CONSUMER_OFFSET
    try:
        answer = await ask.ask(await ask.broker_of(queue), code, header)
    except QueryNotFoundError:
        return None
    return answer.header(OffsetResponseHeader).offset


async def consume_status(
    ask: Asker, topic: str, group: str, client_id: str | None = None
) -> dict[str, dict[MessageQueue, int]]:
    """What the consumers of ``group`` themselves say they have consumed of ``topic``, by client id.

    ``client_id`` asks one of them. (getConsumeStatus)
    """
    wire_topic = ask.namespace.wrap(topic)
    header = GetConsumerStatusRequestHeader(
        topic=wire_topic, group=ask.namespace.wrap(group), client_addr=client_id or ""
    )

    async def status_at(address: str) -> dict[str, dict[MessageQueue, int]]:
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        answer = await ask.ask(address, code, header)
        return GetConsumerStatusBody.decode(answer.body).consumer_table

    address = next(iter(await ask.brokers_of(wire_topic)))
    found = await status_at(address)
    return {client: merge_queues(ask.namespace, [found[client]]) for client in sorted(found)}


async def consume_time_span(ask: Asker, topic: str, group: str) -> list[QueueTimeSpan]:
    """How old the messages of ``topic`` are, and how far behind ``group`` is in time, by queue.

    (queryConsumeTimeSpan)
    """
    wire_topic = ask.namespace.wrap(topic)
    header = QueryConsumeTimeSpanRequestHeader(topic=wire_topic, group=ask.namespace.wrap(group))

    async def spans_at(address: str) -> list[QueueTimeSpan]:
        answer = await ask.ask(address, RequestCode.QUERY_CONSUME_TIME_SPAN, header)
        return QueryConsumeTimeSpanBody.decode(answer.body).consume_time_span_set

    answers = await ask.each(await ask.brokers_of(wire_topic), spans_at)
    return answers.complete(
        [
            msgspec.structs.replace(
                span, message_queue=ask.namespace.unwrap_queue(span.message_queue)
            )
            for spans in answers.by_address.values()
            for span in sorted(spans, key=lambda span: span.message_queue)
        ]
    )


# Moving offsets


async def reset_offset_by_time(
    ask: Asker, topic: str, group: str, timestamp_ms: int, *, force: bool = True
) -> dict[MessageQueue, int]:
    """Have ``group`` go on in ``topic`` with what was stored from ``timestamp_ms`` on.

    Consumers that are online are moved too. ``timestamp_ms`` is ms since the epoch, -1 the end of
    the queues; without ``force`` no queue moves forward. Returns where each queue is now. The
    brokers do it at once (5.x), or tell the consumers, who must be online
    (4.9; else BrokerError with CONSUMER_NOT_ONLINE). (resetOffsetByTimestamp)
    """
    wire_topic = ask.namespace.wrap(topic)
    header = ResetOffsetRequestHeader(
        topic=wire_topic, group=ask.namespace.wrap(group), timestamp=timestamp_ms, is_force=force
    )
    answers = await ask.each(
        await ask.brokers_of(wire_topic), lambda address: _reset(ask, address, header)
    )
    return answers.complete(merge_queues(ask.namespace, answers.by_address.values()))


async def reset_offset_by_time_old(
    ask: Asker, topic: str, group: str, timestamp_ms: int, *, force: bool = True
) -> list[RollbackStats]:
    """As :meth:`reset_offset_by_time`, by finding the offsets and committing them from here.

    For groups that are offline; consumers that are online go on where they are and overwrite it.
    (resetOffsetByTimestampOld)
    """
    wire_topic = ask.namespace.wrap(topic)
    wire_group = ask.namespace.wrap(group)
    route = await ask.route(wire_topic)
    read_queues = {data.broker_name: data.read_queue_nums for data in route.queue_datas}
    names = {
        address: data.broker_name
        for data in route.broker_datas
        if (address := select_address(data)) is not None
    }

    async def roll_back_at(address: str) -> list[RollbackStats]:
        name = names[address]
        queues = [MessageQueue(wire_topic, name, n) for n in range(read_queues.get(name, 0))]
        table = await _queues_to_move(ask, address, wire_group, wire_topic, queues)
        return [
            await _roll_back(ask, address, wire_group, queue, table[queue], timestamp_ms, force)
            for queue in sorted(table)
        ]

    answers = await ask.each(names, roll_back_at)
    return answers.complete(
        [
            msgspec.structs.replace(stats, queue=ask.namespace.unwrap_queue(stats.queue))
            for found in answers.by_address.values()
            for stats in found
        ]
    )


async def reset_offset(
    ask: Asker, topic: str, group: str, timestamp_ms: int
) -> dict[MessageQueue, int]:
    """:meth:`reset_offset_by_time`, or where the group is not online the old way (resetOffsetNew).

    Returns where each queue is now. ``timestamp_ms`` -1 skips all that has piled up
    (``mqadmin skipAccumulatedMessage``).
    """
    try:
        return await reset_offset_by_time(ask, topic, group, timestamp_ms)
    except BrokerError as error:
        if error.code != codes.CONSUMER_NOT_ONLINE:
            raise
    found = await reset_offset_by_time_old(ask, topic, group, timestamp_ms)
    return {stats.queue: stats.rollback_offset for stats in found}


async def reset_offset_of_queue(ask: Asker, group: str, queue: MessageQueue, offset: int) -> None:
    """Have ``group`` go on with ``offset`` in ``queue``; its consumer is moved too (5.x).

    (resetOffsetByQueueId)
    """
    await update_consume_offset(ask, group, queue, offset)
    wire_queue = ask.namespace.wrap_queue(queue)
    header = ResetOffsetRequestHeader(
        topic=wire_queue.topic,
        group=ask.namespace.wrap(group),
        timestamp=0,
        is_force=True,
        queue_id=wire_queue.queue_id,
        offset=offset,
    )
    await _reset(ask, await ask.broker_of(wire_queue), header)


async def update_consume_offset(ask: Asker, group: str, queue: MessageQueue, offset: int) -> None:
    """Commit ``offset`` of ``queue`` in the name of ``group`` (updateConsumeOffset).

    A consumer that is online goes on where it is, and commits over it.
    """
    queue = ask.namespace.wrap_queue(queue)
    await _commit(ask, await ask.broker_of(queue), ask.namespace.wrap(group), queue, offset)


async def clone_group_offset(
    ask: Asker, source: str, target: str, topic: str | None = None, *, offline: bool = False
) -> None:
    """Have ``target`` go on where ``source`` is, in ``topic`` or in all its topics.

    ``offline``: also in topics that the consumers of ``source`` do not subscribe to any more.
    (cloneGroupOffset)
    """
    wire_source = ask.namespace.wrap(source)
    header = CloneGroupOffsetRequestHeader(
        src_group=wire_source,
        dest_group=ask.namespace.wrap(target),
        topic=topic and ask.namespace.wrap(topic),
        offline=offline,
    )
    answers = await ask.each(
        await ask.brokers_of(retry_topic(wire_source)),
        lambda address: ask.ask(address, RequestCode.CLONE_GROUP_OFFSET, header),
    )
    answers.complete(None)


def _queue_header(queue: MessageQueue) -> Header:
    return TopicQueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )


async def _max_offset(ask: Asker, address: str, queue: MessageQueue) -> int:
    header = TopicQueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, committed=True, bname=queue.broker_name
    )
    answer = await ask.ask(address, RequestCode.GET_MAX_OFFSET, header)
    return answer.header(OffsetResponseHeader).offset


async def _offset_at(
    ask: Asker, address: str, queue: MessageQueue, timestamp_ms: int, boundary: str = "LOWER"
) -> int:
    header = SearchOffsetRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        boundary_type=boundary,
        bname=queue.broker_name,
    )
    answer = await ask.ask(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return answer.header(OffsetResponseHeader).offset


async def _commit(
    ask: Asker, address: str, wire_group: str, wire_queue: MessageQueue, offset: int
) -> None:
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=wire_group,
        topic=wire_queue.topic,
        queue_id=wire_queue.queue_id,
        commit_offset=offset,
        bname=wire_queue.broker_name,
    )
    await ask.ask(address, RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def _reset(
    ask: Asker, address: str, header: ResetOffsetRequestHeader
) -> dict[MessageQueue, int]:
    answer = await ask.ask(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
    return ResetOffsetBody.decode(answer.body).offset_table if answer.body else {}


async def _queues_to_move(
    ask: Asker, address: str, wire_group: str, wire_topic: str, queues: list[MessageQueue]
) -> dict[MessageQueue, OffsetWrapper]:
    """The queues a group has offsets of, or all where it has consumed nothing yet."""
    header = GetConsumeStatsRequestHeader(consumer_group=wire_group)
    answer = await ask.ask(address, RequestCode.GET_CONSUME_STATS, header)
    table = ConsumeStats.decode(answer.body).offset_table
    consumed = {queue: ends for queue, ends in table.items() if queue.topic == wire_topic}
    if consumed:
        return consumed
    code = RequestCode.GET_TOPIC_STATS_INFO
    answer = await ask.ask(address, code, TopicRequestHeader(topic=wire_topic))
    offsets = TopicStatsTable.decode(answer.body).offset_table
    return {
        queue: OffsetWrapper(
            broker_offset=offsets[queue].max_offset, consumer_offset=offsets[queue].min_offset
        )
        for queue in queues
        if queue in offsets
    }


async def _roll_back(
    ask: Asker,
    address: str,
    wire_group: str,
    queue: MessageQueue,
    ends: OffsetWrapper,
    timestamp_ms: int,
    force: bool,
) -> RollbackStats:
    if timestamp_ms == END_MS:
        found = await _max_offset(ask, address, queue)
    else:
        found = await _offset_at(ask, address, queue, timestamp_ms)
    moved = force or found <= ends.consumer_offset
    if moved:
        await _commit(ask, address, wire_group, queue, found)
    now_at = found if moved else ends.consumer_offset
    return RollbackStats(queue, ends.broker_offset, ends.consumer_offset, found, now_at)


async def _check_consumes(ask: Asker, group: str) -> None:
    """Say why there are no offsets, as examineConsumeStats does."""
    try:
        model = (await consumer_connection(ask, group)).message_model
    except OrbitMQError as error:
        raise for_code(
            codes.CONSUMER_NOT_ONLINE,
            f"group {group} has no offsets, and none of its consumers is online",
        ) from error
    if model is MessageModel.BROADCASTING:
        raise for_code(
            codes.BROADCAST_CONSUMPTION,
            f"group {group} consumes by broadcasting: each consumer keeps its own offsets",
        )
