"""Who is connected: the members of groups, and what a consumer says of itself when asked."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from orbitmq import codes
from orbitmq.admin.asker import Asker, merge_queues
from orbitmq.client.namespace import Namespace
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, for_code
from orbitmq.names import retry_topic
from orbitmq.wire.admin_bodies import Connection, ConsumerConnection, ProducerConnection
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.headers import (
    ConsumeMessageDirectlyResultRequestHeader,
    ConsumerGroupRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ProducerGroupRequestHeader,
)
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.operator_bodies import ProducerInfo, ProducerTableInfo
from orbitmq.wire.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo


async def consumer_connection(
    ask: Asker, group: str, *, broker: str | None = None
) -> ConsumerConnection:
    """The consumers of ``group`` that are online, and what it subscribes to.

    As all its brokers know them, or ``broker`` alone. Raises BrokerError with CONSUMER_NOT_ONLINE
    (206) where nobody is; PartialFailureError. (examineConsumerConnectionInfo)
    """
    wire_group = ask.namespace.wrap(group)
    header = ConsumerGroupRequestHeader(consumer_group=wire_group)

    async def connection_at(address: str) -> ConsumerConnection:
        try:
            answer = await ask.ask(address, RequestCode.GET_CONSUMER_CONNECTION_LIST, header)
        except BrokerError as error:
            if error.code != codes.CONSUMER_NOT_ONLINE:
                raise
            return ConsumerConnection()
        return ConsumerConnection.decode(answer.body)

    if broker is None:
        addresses = list(await ask.brokers_of(retry_topic(wire_group)))
    else:
        addresses = [await ask.broker(broker)]
    answers = await ask.each(addresses, connection_at)
    found = [one for one in answers.by_address.values() if one.connection_set]
    if not found and not answers.failures:
        raise for_code(codes.CONSUMER_NOT_ONLINE, f"no consumer of group {group} is online")
    first = found[0] if found else ConsumerConnection()
    return answers.complete(
        msgspec.structs.replace(
            first,
            connection_set=_members([one.connection_set for one in found]),
            subscription_table={
                data.topic: data
                for one in found
                for data in _subscriptions(ask.namespace, one.subscription_table.values())
            },
        )
    )


async def producer_connection(ask: Asker, group: str, topic: str) -> ProducerConnection:
    """The producers of ``group`` that are online at the brokers of ``topic``.

    Raises BrokerError where none is; PartialFailureError. (examineProducerConnectionInfo)
    """
    header = ProducerGroupRequestHeader(producer_group=ask.namespace.wrap(group))

    async def connection_at(address: str) -> ProducerConnection:
        answer = await ask.ask(address, RequestCode.GET_PRODUCER_CONNECTION_LIST, header)
        return ProducerConnection.decode(answer.body)

    answers = await ask.each(await ask.brokers_of(ask.namespace.wrap(topic)), connection_at)
    return answers.complete(
        ProducerConnection(_members([one.connection_set for one in answers.by_address.values()]))
    )


async def producers(ask: Asker, broker: str) -> dict[str, list[ProducerInfo]]:
    """All producers that ``broker`` (its name, or host:port) knows, by group (getAllProducerInfo).

    Those that have sent a heartbeat: of 5.x from 5.0 on.
    """
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_ALL_PRODUCER_INFO)
    data = ProducerTableInfo.decode(answer.body).data
    return {ask.namespace.unwrap(group): data[group] for group in sorted(data)}


async def consumer_running_info(
    ask: Asker, group: str, client_id: str, *, jstack: bool = False
) -> ConsumerRunningInfo:
    """What a consumer says of itself: its settings, queues and figures (getConsumerRunningInfo).

    ``jstack``: with the stacks of all its threads. It is asked through a broker that it is
    connected to; BrokerError where it is not online.
    """
    wire_group = ask.namespace.wrap(group)
    header = GetConsumerRunningInfoRequestHeader(
        consumer_group=wire_group, client_id=client_id, jstack_enable=jstack
    )
    address = next(iter(await ask.brokers_of(retry_topic(wire_group))))
    answer = await ask.ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
    info = ConsumerRunningInfo.decode(answer.body)
    if ask.namespace.name is None:
        return info
    return msgspec.structs.replace(
        info,
        subscription_set=_subscriptions(ask.namespace, info.subscription_set),
        mq_table=merge_queues(ask.namespace, [info.mq_table]),
        mq_pop_table=merge_queues(ask.namespace, [info.mq_pop_table]),
        status_table={
            ask.namespace.unwrap(topic): status for topic, status in info.status_table.items()
        },
    )


async def consume_message_directly(
    ask: Asker, group: str, client_id: str, message: MessageView
) -> ConsumeMessageDirectlyResult:
    """Have the consumer ``client_id`` of ``group`` consume ``message`` once more, now.

    Its listener gets the message wherever the group's offset is, and that stays. Waits for the
    listener. (consumeMessageDirectly)
    """
    header = ConsumeMessageDirectlyResultRequestHeader(
        consumer_group=ask.namespace.wrap(group),
        client_id=client_id,
        topic=ask.namespace.wrap(message.topic),
        msg_id=message.offset_message_id,
        broker_name=message.broker_name or None,
    )
    answer = await ask.ask(message.store_host, RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
    return ConsumeMessageDirectlyResult.decode(answer.body)


def _members(sets: list[list[Connection]]) -> list[Connection]:
    """The clients several brokers know, each once, by id."""
    clients = {client.client_id: client for found in sets for client in found}
    return [clients[client_id] for client_id in sorted(clients)]


def _subscriptions(
    namespace: Namespace, found: Iterable[SubscriptionData]
) -> list[SubscriptionData]:
    return [msgspec.structs.replace(data, topic=namespace.unwrap(data.topic)) for data in found]
