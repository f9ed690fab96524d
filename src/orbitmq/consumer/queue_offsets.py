"""What a broker knows of a queue's offsets: the ends of the queue, and where a time lies in it.

Follows MQAdminImpl.maxOffset, minOffset, searchOffset and earliestMsgStoreTime.
"""

from __future__ import annotations

from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.message import MessageQueue
from orbitmq.wire.command import Header, RemotingCommand
from orbitmq.wire.headers import (
    OffsetResponseHeader,
    SearchOffsetRequestHeader,
    TimestampResponseHeader,
    TopicQueueRequestHeader,
)


async def max_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """The offset the next message of ``queue`` gets. Raises NetworkError or BrokerError."""
    header = TopicQueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, committed=True, bname=queue.broker_name
    )
    return _offset(await _ask(instance, queue, RequestCode.GET_MAX_OFFSET, header))


async def min_offset(instance: ClientInstance, queue: MessageQueue) -> int:
    """The offset of the oldest message of ``queue`` still kept. Errors as :func:`max_offset`."""
    header = TopicQueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    return _offset(await _ask(instance, queue, RequestCode.GET_MIN_OFFSET, header))


async def earliest_message_store_time(instance: ClientInstance, queue: MessageQueue) -> int:
    """When the oldest message of ``queue`` was stored, ms since the epoch; -1 where it is empty.

    Errors as :func:`max_offset`.
    """
    header = TopicQueueRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, bname=queue.broker_name
    )
    answer = await _ask(instance, queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    return answer.header(TimestampResponseHeader).timestamp


async def offset_for_timestamp(
    instance: ClientInstance, queue: MessageQueue, timestamp_ms: int
) -> int:
    """The offset of the first message stored at ``timestamp_ms`` (since the epoch) or later.

    Where there is none, what the broker makes of it: the end of the queue, or one before
    (4.9). Errors as :func:`max_offset`.
    """
    header = SearchOffsetRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        timestamp=timestamp_ms,
        bname=queue.broker_name,
    )
    return _offset(await _ask(instance, queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header))


async def _ask(
    instance: ClientInstance, queue: MessageQueue, code: RequestCode, header: Header
) -> RemotingCommand:
    address = await instance.broker_address(queue.broker_name, topic=queue.topic)
    return await instance.request(address, code, header)


def _offset(answer: RemotingCommand) -> int:
    return answer.header(OffsetResponseHeader).offset
