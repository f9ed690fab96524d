"""Asking a broker whether it can filter as a consumer wants, before messages are missed.

A broker takes every heartbeat, and refuses what it cannot filter by only when it is pulled. So a
subscription by SQL92 is shown to one broker of its topic first, when the consumer starts; those by
tag need no question. Follows MQClientInstance.checkClientInBroker. Where Java's start fails because
the broker cannot be reached, ours goes on, as it does with tags: the pulls will tell.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, for_code
from orbitmq.filters.subscription import TAG
from orbitmq.wire.bodies import CheckClientRequestBody, SubscriptionData

log = logging.getLogger("orbitmq.consumer")

_REMEDIES = {
    codes.SYSTEM_ERROR: "set enablePropertyFilter=true in the broker's configuration",
    codes.SUBSCRIPTION_PARSE_FAILED: "correct the expression, or write it as this broker knows it",
}


async def check_subscriptions(
    instance: ClientInstance, group: str, subscriptions: Collection[SubscriptionData]
) -> None:
    """Raise BrokerError when a broker cannot filter as one of ``subscriptions`` asks.

    A topic without a broker that answers is left out.
    """
    for subscription in list(subscriptions):
        if subscription.expression_type != TAG:
            await _check(instance, group, subscription)


async def log_refused(
    instance: ClientInstance, group: str, subscriptions: Collection[SubscriptionData]
) -> None:
    """As :func:`check_subscriptions`, for a consumer that runs: what is refused is logged."""
    try:
        await check_subscriptions(instance, group, subscriptions)
    except BrokerError as error:
        log.warning("consumer %s gets no messages by a subscription: %s", group, error)


async def _check(instance: ClientInstance, group: str, subscription: SubscriptionData) -> None:
    address = await _broker_of(instance, subscription.topic)
    if address is None:
        return
    body = CheckClientRequestBody(instance.client_id, group, subscription).encode()
    try:
        await instance.request(address, RequestCode.CHECK_CLIENT_CONFIG, body=body)
    except NetworkError as error:
        log.warning("the subscription to %s is not checked: %s", subscription.topic, error)
    except BrokerError as error:
        what = f"the subscription to {subscription.topic} by {subscription.sub_string!r} is refused"
        reason = f"{what}: {error.remark}".rstrip(" .:")
        remedy = _REMEDIES.get(error.code)
        remark = f"{reason}; {remedy}" if remedy else reason
        raise for_code(error.code, remark, address, instance.config.access_key) from error


async def _broker_of(instance: ClientInstance, topic: str) -> str | None:
    try:
        await instance.topic_route(topic)
    except (NetworkError, BrokerError) as error:
        log.debug("the subscription to %s is not checked: %s", topic, error)
    return instance.routes.address_for_topic(topic)
