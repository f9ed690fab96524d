"""Dead letters: what groups have given up, looked at and given to them again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from orbitmq import codes
from orbitmq.admin.asker import Asker
from orbitmq.admin.messages import MAX_TIME_MS, messages_by_time
from orbitmq.client.routes import publish_queues
from orbitmq.codes import RequestCode
from orbitmq.errors import InvalidMessageError, NoPermissionError
from orbitmq.message import MessageQueue
from orbitmq.names import AUTO_CREATE_TOPIC, dlq_topic, retry_topic
from orbitmq.wire import properties as property_names
from orbitmq.wire.headers import SendMessageRequestHeaderV2, SendMessageResponseHeader
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import encode_properties

_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_ENOUGH: Final = 16
"""Retries that whoever re-sends allows, so that a group without any gets the message once."""
_LEFT_BEHIND: Final = (
    property_names.DLQ_ORIGIN_TOPIC,
    property_names.DLQ_ORIGIN_MESSAGE_ID,
    property_names.DELAY,
    property_names.TRANSACTION_PREPARED,
    property_names.MIN_OFFSET,
    property_names.MAX_OFFSET,
)
"""What belongs to the dead letter, not to the message that it was."""


async def list_dead_letters(
    ask: Asker,
    group: str,
    *,
    begin_ms: int = 0,
    end_ms: int = MAX_TIME_MS,
    max_num: int = 64,
) -> list[MessageView]:
    """The messages that ``group`` has given up, those given up first first.

    Up to ``max_num``, given up from ``begin_ms`` to ``end_ms`` (ms since the epoch). The property
    ``RETRY_TOPIC`` is the topic each came from, ``ORIGIN_MESSAGE_ID`` its offset message id there.
    Raises TopicNotFoundError where the group has never given one up.
    """
    return await messages_by_time(ask, dlq_topic(group), begin_ms, end_ms, max_num=max_num)


async def resend_dead_letters(ask: Asker, group: str, messages: Iterable[MessageView]) -> list[str]:
    """Give dead letters to ``group`` again: to it alone, once more from the first try on.

    Each is stored anew in the group's retry topic, at the broker that has the dead letter, and is
    consumed as the message it was, now or when the group is next online. Groups that have consumed
    it meanwhile do not get it again. The dead letter stays where it is until its time is over, so
    keep what this returns: the new offset message ids. Raises InvalidMessageError for what is no
    dead letter of the group, before any is sent; what was sent before another error stays sent.
    """
    wanted = list(messages)
    stored = ask.namespace.wrap(dlq_topic(group))
    for message in wanted:
        if message.stored_topic != stored:
            raise InvalidMessageError(
                f"{message.message_id} lies in {message.stored_topic}, not in {stored}: it is no "
                f"dead letter of group {group}"
            )
    if not wanted:
        return []
    topic = retry_topic(ask.namespace.wrap(group))
    queues = publish_queues(topic, await ask.route(topic))
    return [await _resend(ask, message, _queue_for(message, queues, topic)) for message in wanted]


def _queue_for(message: MessageView, queues: list[MessageQueue], topic: str) -> MessageQueue:
    """A writable queue of the retry topic, at the message's own broker where that has one."""
    if not queues:
        raise NoPermissionError(codes.NO_PERMISSION, f"no broker has a writable queue of {topic}")
    mine = [queue for queue in queues if queue.broker_name == message.broker_name]
    return (mine or queues)[0]


async def _resend(ask: Asker, message: MessageView, queue: MessageQueue) -> str:
    properties = {
        name: value for name, value in message.properties.items() if name not in _LEFT_BEHIND
    }
    origin = message.property(property_names.DLQ_ORIGIN_TOPIC)
    if origin is not None:
        properties.setdefault(property_names.RETRY_TOPIC, origin)
    properties.setdefault(property_names.ORIGIN_MESSAGE_ID, message.message_id)
    header = SendMessageRequestHeaderV2(
        producer_group=_PRODUCER_GROUP,
        topic=queue.topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue.queue_id,
        sys_flag=0,
        born_timestamp=message.born_timestamp,
        flag=message.flag,
        properties=encode_properties(properties).decode(),
        reconsume_times=0,
        unit_mode=ask.config.unit_mode,
        max_reconsume_times=_ENOUGH,
        batch=False,
        bname=queue.broker_name,
    )
    answer = await ask.ask(
        await ask.broker_of(queue), RequestCode.SEND_MESSAGE_V2, header, message.body
    )
    return answer.header(SendMessageResponseHeader).msg_id
