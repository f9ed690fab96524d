"""Taking back a message whose time has not come. Follows DefaultMQProducerImpl.recallMessage."""

from __future__ import annotations

from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import ConnectError, InvalidMessageError, WireError
from orbitmq.names import DLQ_PREFIX, RETRY_PREFIX, check_topic
from orbitmq.wire.headers import RecallMessageRequestHeader, RecallMessageResponseHeader
from orbitmq.wire.recall_handle import RecallHandle, decode_recall_handle


def check_recall(topic: object, handle: object) -> RecallHandle:
    """What ``handle`` says.

    Raises IllegalNameError for the topic, InvalidMessageError for what is no handle.
    """
    if not isinstance(topic, str) or not isinstance(handle, str):
        raise InvalidMessageError(
            f"recall({topic!r}, {handle!r}): give a topic, and the SendResult.recall_handle of a "
            "message sent to it; only brokers of RocketMQ 5 and OrbitMQ give one"
        )
    check_topic(topic)
    if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
        raise InvalidMessageError(f"no message to {topic!r} can be recalled")
    try:
        return decode_recall_handle(handle)
    except WireError as error:
        raise InvalidMessageError(f"{error}: give SendResult.recall_handle as it was") from error


async def recall(
    instance: ClientInstance, group: str, topic: str, handle_text: str, timeout_ms: int
) -> str:
    """Have the broker that has a message drop it; its unique key."""
    handle = check_recall(topic, handle_text)
    try:
        address = await instance.broker_address(handle.broker_name, topic=topic)
    except ConnectError:
        any_address = instance.routes.address_for_topic(topic)  # a proxy stands for all brokers
        if any_address is None:
            raise
        address = any_address
    header = RecallMessageRequestHeader(
        topic=topic,
        recall_handle=handle_text,
        producer_group=group,
        bname=handle.broker_name,
    )
    answer = await instance.request(
        address, RequestCode.RECALL_MESSAGE, header, timeout_ms=timeout_ms
    )
    return answer.header(RecallMessageResponseHeader).msg_id
