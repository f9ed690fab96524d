"""Where queues end."""

from __future__ import annotations

from collections.abc import Iterable

from orbitmq.codes import RequestCode
from orbitmq.errors import TopicNotFoundError
from orbitmq.message import MessageQueue
from orbitmq.net.blocking import CONNECTIONS, Access
from orbitmq.wire.headers import OffsetResponseHeader, TopicQueueRequestHeader


def queue_ends(
    address: str, queue: MessageQueue, numbers: Iterable[int], access: Access
) -> dict[int, int]:
    """Where the queues ``numbers`` of the topic of ``queue`` end on its broker, at ``address``."""
    topic, broker_name, _ = queue
    wanted = list(numbers)
    requests = [
        (RequestCode.GET_MAX_OFFSET, TopicQueueRequestHeader(topic, number, bname=broker_name))
        for number in wanted
    ]
    with CONNECTIONS.borrow(address, access) as connection:
        try:
            answers = connection.request_all(requests)
        except TopicNotFoundError:  # the first message will make it
            return dict.fromkeys(wanted, 0)
    offsets = [max(answer.header(OffsetResponseHeader).offset, 0) for answer in answers]
    return dict(zip(wanted, offsets, strict=True))
