"""Messages looked up: by id, by key, by place in a queue, by time.

Follows MQAdminImpl (viewMessage, queryMessage) and mqadmin's queryMsgByOffset and printMsg.
"""

from __future__ import annotations

from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.admin.asker import Asker, select_address
from orbitmq.admin.offsets import search_offset
from orbitmq.client.routes import subscribe_queues
from orbitmq.codes import RequestCode
from orbitmq.consumer.hooks import FilterHooks
from orbitmq.consumer.pull_request import STATUS_OF, SUBSCRIPTION, pull_header, read_messages
from orbitmq.errors import BrokerError, ConfigError, QueryNotFoundError, WireError
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.filters.tags import SUB_ALL
from orbitmq.message import MessageQueue, PullStatus
from orbitmq.names import TOOLS_GROUP
from orbitmq.wire.admin_bodies import QueryConsumeQueueResponseBody
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.headers import (
    PullMessageResponseHeader,
    QueryConsumeQueueRequestHeader,
    QueryMessageRequestHeader,
    RecallMessageRequestHeader,
    RecallMessageResponseHeader,
    ViewMessageRequestHeader,
)
from orbitmq.wire.ids import decode_offset_message_id
from orbitmq.wire.message_view import MessageView, decode_records
from orbitmq.wire.operator_headers import (
    ResumeCheckHalfMessageRequestHeader,
)

MAX_TIME_MS: Final = (1 << 63) - 1
"""A time after all others (Long.MAX_VALUE)."""
_PULL_BATCH: Final = 32
_RECENT_MS: Final = 3 * 24 * 3_600_000
"""How far back a message is looked for by its unique key (MQAdminImpl.queryMessageByUniqKey)."""


async def view_message(ask: Asker, topic: str, message_id: str) -> MessageView:
    """The message with this id: the one its producer gave it, or an offset message id.

    By the first it is found for three days; :meth:`query_by_unique_key` looks further back.
    Raises QueryNotFoundError, TopicNotFoundError. (DefaultMQAdminExtImpl.viewMessage)
    """
    try:
        ip, port, offset = decode_offset_message_id(message_id)
    except WireError:
        pass
    else:
        address = f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"
        # A unique key has the same form: it would name an address where no broker is.
        if address in await ask.masters_and_slaves():
            return await _view_at(ask, address, topic, offset)
    begin_ms = ask.instance.clock.now_ms() - _RECENT_MS
    found = await query_by_unique_key(ask, topic, message_id, begin_ms=begin_ms)
    if not found:
        raise QueryNotFoundError(
            codes.NO_MESSAGE, f"no message of topic {topic} has the id {message_id}"
        )
    return found[0]


async def query_messages(
    ask: Asker,
    topic: str,
    key: str,
    *,
    max_num: int = 64,
    begin_ms: int = 0,
    end_ms: int = MAX_TIME_MS,
    cluster: str | None = None,
) -> list[MessageView]:
    """The messages of ``topic`` with ``key`` among their keys, in the order they were stored.

    Up to ``max_num`` of each broker (of ``cluster``), the newest, stored from ``begin_ms`` to
    ``end_ms``. Raises TopicNotFoundError; PartialFailureError where a broker does not tell.
    (queryMessage)
    """
    header = QueryMessageRequestHeader(
        topic=ask.namespace.wrap(topic),
        key=key,
        max_num=max_num,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
    )
    return await _query(ask, header, cluster)


async def query_by_unique_key(
    ask: Asker,
    topic: str,
    message_id: str,
    *,
    max_num: int = 32,
    begin_ms: int = 0,
    end_ms: int = MAX_TIME_MS,
    cluster: str | None = None,
) -> list[MessageView]:
    """As :meth:`query_messages` by the id the producer gave (queryMessageByUniqKey).

    Several have the same where a message was sent again.
    """
    header = QueryMessageRequestHeader(
        topic=ask.namespace.wrap(topic),
        key=message_id,
        max_num=max_num,
        begin_timestamp=begin_ms,
        end_timestamp=end_ms,
        unique_key_query="true",
    )
    return await _query(ask, header, cluster)


async def message_at(ask: Asker, queue: MessageQueue, offset: int) -> MessageView:
    """The message with this offset in ``queue``. QueryNotFoundError (mqadmin queryMsgByOffset)."""
    found = await messages_from(ask, queue, offset, max_num=1)
    if not found or found[0].queue_offset != offset:
        raise QueryNotFoundError(codes.NO_MESSAGE, f"there is no message {offset} in {queue}")
    return found[0]


async def messages_from(
    ask: Asker,
    queue: MessageQueue,
    offset: int,
    *,
    max_num: int = 64,
    expression: Expression = SUB_ALL,
    end_ms: int = MAX_TIME_MS,
) -> list[MessageView]:
    """Up to ``max_num`` messages of ``queue`` from ``offset`` on, as ``expression`` chooses them.

    Those stored after ``end_ms`` are not among them. Nobody's offsets change.
    (mqadmin printMsgByQueue)
    """
    if offset < 0:
        raise ConfigError("offset", offset, "0 or more")
    queue = ask.namespace.wrap_queue(queue)
    found = await _pull_until(ask, queue, offset, max_num, expression, end_ms)
    ask.namespace.unwrap_messages(queue, found)
    return found


async def messages_by_time(
    ask: Asker,
    topic: str,
    begin_ms: int,
    end_ms: int = MAX_TIME_MS,
    *,
    max_num: int = 64,
    expression: Expression = SUB_ALL,
) -> list[MessageView]:
    """The messages of ``topic`` stored from ``begin_ms`` to ``end_ms``, in that order.

    The first ``max_num`` of them that ``expression`` chooses; ms since the epoch. Raises
    PartialFailureError where a broker does not tell. (mqadmin printMsg)
    """
    route = await ask.route(ask.namespace.wrap(topic))

    async def messages_of(queue: MessageQueue) -> list[MessageView]:
        offset = await search_offset(ask, queue, begin_ms)
        return await messages_from(
            ask, queue, offset, max_num=max_num, expression=expression, end_ms=end_ms
        )

    queues = {str(queue): queue for queue in subscribe_queues(topic, route)}
    answers = await ask.each(queues, lambda name: messages_of(queues[name]))
    found = [
        message
        for messages in answers.by_address.values()
        for message in messages
        if message.store_timestamp >= begin_ms  # 4.9 finds the nearer one
    ]
    found.sort(key=lambda message: message.store_timestamp)
    return answers.complete(found[:max_num])


async def query_consume_queue(
    ask: Asker,
    queue: MessageQueue,
    index: int,
    count: int = 10,
    *,
    group: str | None = None,
    broker: str | None = None,
) -> QueryConsumeQueueResponseBody:
    """``count`` entries of a consume queue from ``index`` on, at ``broker`` or the queue's own.

    ``group``: with what its filter makes of each. (queryConsumeQueue)
    """
    queue = ask.namespace.wrap_queue(queue)
    header = QueryConsumeQueueRequestHeader(
        topic=queue.topic,
        queue_id=queue.queue_id,
        index=index,
        count=count,
        consumer_group=group and ask.namespace.wrap(group),
    )
    address = await ask.broker_of(queue) if broker is None else await ask.broker(broker)
    answer = await ask.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
    return QueryConsumeQueueResponseBody.decode(answer.body)


async def resume_check_half_message(ask: Asker, topic: str, message: MessageView) -> None:
    """Have the broker check a half message again that it has given up (resumeCheckHalfMessage)."""
    header = ResumeCheckHalfMessageRequestHeader(
        topic=ask.namespace.wrap(topic), msg_id=message.offset_message_id
    )
    await ask.ask(message.store_host, RequestCode.RESUME_CHECK_HALF_MESSAGE, header)


async def recall_message(ask: Asker, topic: str, recall_handle: str, broker: str) -> str:
    """Have a timed message not be delivered; returns its message id (RECALL_MESSAGE).

    ``recall_handle`` is what its SendResult had, ``broker`` the one it was sent to.
    """
    header = RecallMessageRequestHeader(
        topic=ask.namespace.wrap(topic), recall_handle=recall_handle, bname=broker
    )
    answer = await ask.ask(await ask.broker(broker), RequestCode.RECALL_MESSAGE, header)
    return answer.header(RecallMessageResponseHeader).msg_id


async def _view_at(ask: Asker, address: str, topic: str, offset: int) -> MessageView:
    header = ViewMessageRequestHeader(offset=offset, topic=ask.namespace.wrap(topic))
    try:
        answer = await ask.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
    except BrokerError as error:
        if error.code != codes.SYSTEM_ERROR:
            raise
        raise QueryNotFoundError(codes.NO_MESSAGE, error.remark, address) from error
    return _unwrapped(ask, decode_records(answer.body))[0]


async def _query(
    ask: Asker, header: QueryMessageRequestHeader, cluster: str | None
) -> list[MessageView]:
    if header.max_num < 1:
        raise ConfigError("max_num", header.max_num, "1 or more")
    route = await ask.route(header.topic)
    names = {
        address: data.broker_name
        for data in route.broker_datas
        if cluster in (None, data.cluster) and (address := select_address(data))
    }
    timeout_ms = 3 * ask.config.api_timeout_ms

    async def query_at(address: str) -> list[MessageView]:
        try:
            answer = await ask.ask(
                address, RequestCode.QUERY_MESSAGE, header, timeout_ms=timeout_ms
            )
        except QueryNotFoundError:
            return []
        return decode_records(answer.body, names[address])

    answers = await ask.each(names, query_at)
    # The index compares hash codes only.
    found = [
        message
        for messages in answers.by_address.values()
        for message in messages
        if _matches(message, header)
    ]
    found.sort(key=lambda message: message.store_timestamp)
    return answers.complete(_unwrapped(ask, found))


def _matches(message: MessageView, header: QueryMessageRequestHeader) -> bool:
    if header.unique_key_query:
        return message.message_id == header.key
    return message.topic == header.topic and header.key in (message.keys or "").split()


async def _pull_until(
    ask: Asker,
    queue: MessageQueue,
    offset: int,
    max_num: int,
    expression: Expression,
    end_ms: int,
) -> list[MessageView]:
    address = await ask.broker_of(queue)
    subscription = build_subscription(
        queue.topic, expression, sub_version=ask.instance.clock.now_ms()
    )
    found: list[MessageView] = []
    while len(found) < max_num:
        wanted = min(_PULL_BATCH, max_num - len(found))
        begin = offset
        status, offset, messages = await _pull(ask, address, queue, subscription, begin, wanted)
        for message in messages:
            if message.store_timestamp > end_ms:
                return found
            found.append(message)
        # An illegal offset may be one of messages deleted meanwhile: what is left lies behind.
        if status is PullStatus.NO_NEW_MESSAGE or offset <= begin:
            break
    return found


async def _pull(
    ask: Asker,
    address: str,
    queue: MessageQueue,
    subscription: SubscriptionData,
    offset: int,
    wanted: int,
) -> tuple[PullStatus, int, list[MessageView]]:
    """One pull that waits for nothing: its status, where the next begins, and messages."""
    header = pull_header(
        TOOLS_GROUP,
        queue,
        subscription,
        max_messages=wanted,
        max_bytes=None,
        suspend_ms=0,
        send_subscription=True,
        tags_versioned=False,
    )
    header = msgspec.structs.replace(header, queue_offset=offset, sys_flag=SUBSCRIPTION)
    timeout_ms = ask.config.api_timeout_ms
    answer = await ask.instance.invoke(
        address, RequestCode.PULL_MESSAGE, header, timeout_ms=timeout_ms
    )
    status = STATUS_OF.get(answer.code)
    if status is None:
        raise ask.instance.error_of(answer, address)
    told = answer.header(PullMessageResponseHeader)
    messages: list[MessageView] = []
    if status is PullStatus.FOUND:
        messages = read_messages(answer.body, queue, told, subscription, FilterHooks(TOOLS_GROUP))
    return status, told.next_begin_offset, messages


def _unwrapped(ask: Asker, messages: list[MessageView]) -> list[MessageView]:
    if ask.namespace.name is not None:
        for message in messages:
            message.topic = ask.namespace.unwrap(message.topic)
    return messages
