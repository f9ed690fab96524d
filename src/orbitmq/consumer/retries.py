"""Failed messages: how a consumer gives them back to be consumed again, and takes them again.

The broker stores a message given back (CONSUMER_SEND_MSG_BACK) in ``%RETRY%group`` after a delay,
or in ``%DLQ%group`` once it failed too often. Follows DefaultMQPushConsumerImpl.sendMessageBack
and resetRetryAndNamespace, and ConsumeMessageOrderlyService.sendMessageBack.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespace import NO_NAMESPACE, Namespace
from orbitmq.client.routes import publish_queues
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ConnectError,
    NetworkError,
    OrbitMQError,
    TopicNotFoundError,
)
from orbitmq.message import MessageQueue
from orbitmq.names import AUTO_CREATE_TOPIC, RETRY_PREFIX, retry_topic
from orbitmq.wire import properties as property_names
from orbitmq.wire.headers import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeaderV2
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import encode_properties

log = logging.getLogger("orbitmq.consumer.consume")

_TIMEOUT_MS: Final = 5_000
_FIRST_RETRY_LEVEL: Final = 3
_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
_ATTEMPTS: Final = 3


def unwrap_retries(queue: MessageQueue, messages: Iterable[MessageView]) -> None:
    """Give messages of a retry topic the topic they had at first."""
    if queue.topic.startswith(RETRY_PREFIX):
        for message in messages:
            topic = message.property(property_names.RETRY_TOPIC)
            if topic:
                message.topic = topic


class SendBack:
    """Gives messages of ``group`` back; all on the private loop.

    A message that failed ``max_reconsume_times`` times goes to the dead-letter queue.
    """

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        max_reconsume_times: int,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self._namespace = namespace
        self._instance = instance
        self._group = group
        self._max_reconsume_times = max_reconsume_times

    async def send(
        self, message: MessageView, delay_level: int, broker_name: str | None = None
    ) -> None:
        """Have the message's broker store it anew, or any broker where that one does not.

        ``broker_name`` says which one has it (the one it was pulled from), ``delay_level`` is as
        ConsumeConcurrentlyContext says. Raises OrbitMQError when no broker took it.
        """
        instance = self._instance
        broker_name = broker_name or message.broker_name
        header = ConsumerSendMsgBackRequestHeader(
            offset=message.physical_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.message_id,
            origin_topic=self._namespace.wrap(message.topic),
            max_reconsume_times=self._max_reconsume_times,
            bname=broker_name,
        )
        address = instance.routes.master_address(broker_name)
        try:
            if address is None:
                raise ConnectError(f"broker {broker_name} has no master", "")
            await instance.request(
                address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_ms=_TIMEOUT_MS
            )
        except (NetworkError, BrokerError) as error:
            log.warning("%r is sent to the retry topic instead of back: %s", message, error)
            await self.send_as_new(message)

    async def send_as_new(self, message: MessageView) -> None:
        """Send the message to the group's retry topic; errors as :meth:`send`.

        The broker it goes to counts how often it was consumed, and knows the dead-letter queue.
        """
        topic = retry_topic(self._group)
        queues = publish_queues(topic, await self._instance.topic_route(topic))
        brokers = list({queue.broker_name: queue for queue in queues}.values())
        error: OrbitMQError = TopicNotFoundError(
            codes.TOPIC_NOT_EXIST, f"no broker has a writable queue of {topic}"
        )
        for queue in (brokers * _ATTEMPTS)[:_ATTEMPTS]:
            try:
                await self._send_to(queue, message)
            except (NetworkError, BrokerError) as failure:
                error = failure
            else:
                return
        raise error

    async def _send_to(self, queue: MessageQueue, message: MessageView) -> None:
        instance = self._instance
        address = instance.routes.master_address(queue.broker_name)
        if address is None:
            raise ConnectError(f"broker {queue.broker_name} has no master", "")
        times = message.reconsume_times
        properties = dict(message.properties)
        origin = properties.get(property_names.ORIGIN_MESSAGE_ID) or message.message_id
        properties[property_names.ORIGIN_MESSAGE_ID] = origin
        properties[property_names.RETRY_TOPIC] = self._namespace.wrap(message.topic)
        properties[property_names.DELAY] = str(_FIRST_RETRY_LEVEL + times)
        properties.pop(property_names.TRANSACTION_PREPARED, None)
        header = SendMessageRequestHeaderV2(
            producer_group=_INNER_PRODUCER_GROUP,
            topic=queue.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=instance.clock.now_ms(),
            flag=message.flag,
            properties=encode_properties(properties).decode(),
            reconsume_times=times + 1,
            unit_mode=False,
            max_reconsume_times=self._max_reconsume_times,
            batch=False,
            bname=queue.broker_name,
        )
        await instance.request(
            address, RequestCode.SEND_MESSAGE_V2, header, message.body, timeout_ms=_TIMEOUT_MS
        )
