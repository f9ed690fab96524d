"""Consumer groups: made, changed, listed and deleted, and what they subscribe to."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from orbitmq.admin.asker import Asker
from orbitmq.codes import RequestCode
from orbitmq.names import check_group, is_system_group, retry_topic
from orbitmq.wire.admin_bodies import (
    GroupList,
    QuerySubscriptionResponseBody,
    SubscriptionGroupList,
)
from orbitmq.wire.bodies import (
    SubscriptionData,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from orbitmq.wire.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GroupRequestHeader,
    TopicRequestHeader,
)
from orbitmq.wire.registration import TopicList
from orbitmq.wire.topic_bodies import (
    GroupForbidden,
    SetMessageRequestModeBody,
    UpdateGroupForbiddenRequestHeader,
)


async def update_group(
    ask: Asker,
    config: SubscriptionGroupConfig,
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[str]:
    """Make a consumer group, or change it, as ``config`` says; returns its brokers' addresses.

    At every master of ``cluster``, at ``broker`` (its name, or host:port) alone, or at every
    master there is. Raises IllegalNameError; PartialFailureError where some of them did not do it.
    (createAndUpdateSubscriptionGroupConfig)
    """
    check_group(config.group_name)
    body = _renamed(config, ask.namespace.wrap(config.group_name)).encode()
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(
            address, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body
        ),
    )
    return answers.complete(list(answers.by_address))


async def update_groups(
    ask: Asker,
    configs: Iterable[SubscriptionGroupConfig],
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[str]:
    """As :meth:`update_group` for several groups in one request a broker, for brokers of 5.3 on.

    (createAndUpdateSubscriptionGroupConfigList)
    """
    wanted = list(configs)
    for config in wanted:
        check_group(config.group_name)
    body = SubscriptionGroupList(
        [_renamed(config, ask.namespace.wrap(config.group_name)) for config in wanted]
    ).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
    answers = await ask.each(
        await ask.masters(cluster, broker), lambda address: ask.ask(address, code, None, body)
    )
    return answers.complete(list(answers.by_address))


async def delete_group(
    ask: Asker,
    group: str,
    *,
    remove_offset: bool = False,
    cluster: str | None = None,
    broker: str | None = None,
) -> None:
    """Delete ``group`` at the masters of ``cluster``, at ``broker`` alone, or at all.

    ``remove_offset``: what it has consumed is forgotten too. Its retry and dead-letter topics
    stay; :meth:`delete_topic` takes ``"%RETRY%" + group`` and ``"%DLQ%" + group``. A consumer of it
    that still runs makes it again where brokers make groups by themselves.
    (deleteSubscriptionGroup)
    """
    header = DeleteSubscriptionGroupRequestHeader(
        group_name=ask.namespace.wrap(group), clean_offset=remove_offset
    )
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header),
    )
    answers.complete(None)


async def group_config(ask: Asker, group: str, broker: str) -> SubscriptionGroupConfig | None:
    """The settings of ``group`` at ``broker``, None where there is no such group.

    (examineSubscriptionGroupConfig)
    """
    return (await group_configs(ask, broker)).get(group)


async def group_configs(ask: Asker, broker: str) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all groups of ``broker``, by group (getAllSubscriptionGroup)."""
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    table = SubscriptionGroupWrapper.decode(answer.body).subscription_group_table
    names = {name: ask.namespace.unwrap(name) for name in sorted(table)}
    return {mine: _renamed(table[name], mine) for name, mine in names.items()}


async def user_group_configs(ask: Asker, broker: str) -> dict[str, SubscriptionGroupConfig]:
    """As :meth:`group_configs` without RocketMQ's own groups (getUserSubscriptionGroup)."""
    found = await group_configs(ask, broker)
    return {group: config for group, config in found.items() if not is_system_group(group)}


async def read_forbidden(
    ask: Asker, group: str, topic: str, broker: str, *, readable: bool | None = None
) -> GroupForbidden:
    """Whether ``group`` may read ``topic`` at ``broker``, after ``readable`` was set if given.

    (updateAndGetGroupReadForbidden)
    """
    header = UpdateGroupForbiddenRequestHeader(
        group=ask.namespace.wrap(group), topic=ask.namespace.wrap(topic), readable=readable
    )
    code = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    answer = await ask.ask(await ask.broker(broker), code, header)
    return GroupForbidden(topic, group, GroupForbidden.decode(answer.body).readable)


async def set_message_request_mode(
    ask: Asker,
    topic: str,
    group: str,
    mode: str,
    *,
    pop_share_queue_num: int = 0,
    cluster: str | None = None,
    broker: str | None = None,
) -> None:
    """Have consumers of ``group`` get the messages of ``topic`` by ``PULL`` or ``POP``.

    At the masters of ``cluster``, at ``broker`` alone, or at all. (setMessageRequestMode)
    """
    body = SetMessageRequestModeBody(
        ask.namespace.wrap(topic), ask.namespace.wrap(group), mode, pop_share_queue_num
    ).encode()
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(address, RequestCode.SET_MESSAGE_REQUEST_MODE, None, body),
    )
    answers.complete(None)


# Who subscribes to what


async def groups_of_topic(ask: Asker, topic: str) -> list[str]:
    """The groups that consume ``topic``, at any of its brokers, sorted (queryTopicConsumeByWho).

    Those that are online, and those that have offsets of it.
    """
    wire_topic = ask.namespace.wrap(topic)
    header = TopicRequestHeader(topic=wire_topic)

    async def groups_at(address: str) -> frozenset[str]:
        answer = await ask.ask(address, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, header)
        return GroupList.decode(answer.body).group_list

    answers = await ask.each(await ask.brokers_of(wire_topic), groups_at)
    groups = frozenset().union(*answers.by_address.values())
    return answers.complete(sorted(map(ask.namespace.unwrap, groups)))


async def topics_of_group(ask: Asker, group: str) -> list[str]:
    """The topics that ``group`` has offsets of, at any broker, sorted (queryTopicsByConsumer)."""
    wire_group = ask.namespace.wrap(group)
    header = GroupRequestHeader(group=wire_group)

    async def topics_at(address: str) -> frozenset[str]:
        answer = await ask.ask(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, header)
        return TopicList.decode(answer.body).topic_list

    answers = await ask.each(await ask.brokers_of(retry_topic(wire_group)), topics_at)
    topics = frozenset().union(*answers.by_address.values())
    return answers.complete(sorted(map(ask.namespace.unwrap, topics)))


async def subscription(ask: Asker, group: str, topic: str) -> SubscriptionData | None:
    """What ``group`` subscribes to in ``topic``, None if it does not or nobody is online.

    As any broker of the topic knows it. (querySubscription)
    """
    wire_topic = ask.namespace.wrap(topic)
    header = GroupRequestHeader(group=ask.namespace.wrap(group), topic=wire_topic)

    async def subscription_at(address: str) -> SubscriptionData | None:
        answer = await ask.ask(address, RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, header)
        return QuerySubscriptionResponseBody.decode(answer.body).subscription_data

    answers = await ask.each(await ask.brokers_of(wire_topic), subscription_at)
    found = next((data for data in answers.by_address.values() if data is not None), None)
    if found is None:
        return answers.complete(None)
    return msgspec.structs.replace(found, topic=topic)


def _renamed(config: SubscriptionGroupConfig, name: str) -> SubscriptionGroupConfig:
    return config if config.group_name == name else msgspec.structs.replace(config, group_name=name)
