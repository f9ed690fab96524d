"""Topics: made, changed, listed and deleted, and what is in their queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from orbitmq.admin.asker import Asker, merge_queues
from orbitmq.client.namespace import Namespace
from orbitmq.codes import RequestCode
from orbitmq.names import (
    DLQ_PREFIX,
    ORDER_TOPIC_CONFIG,
    RETRY_PREFIX,
    check_topic,
    is_system_topic,
)
from orbitmq.wire.bodies import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.wire.headers import (
    ClusterRequestHeader,
    CreateTopicRequestHeader,
    TopicRequestHeader,
)
from orbitmq.wire.namesrv_bodies import KVConfigRequestHeader
from orbitmq.wire.registration import TopicList
from orbitmq.wire.topic_bodies import CreateTopicListRequestBody

Attributes = Mapping[str, str | None]


async def create_topic(
    ask: Asker,
    topic: str,
    queue_nums: int = 8,
    *,
    perm: int = 6,
    order: bool = False,
    attributes: Attributes | None = None,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[str]:
    """Make ``topic``, or change the one there is; returns the addresses of its brokers.

    It gets ``queue_nums`` queues at every master of ``cluster``, at ``broker`` (its name, or
    host:port) alone, or at every master there is. ``perm`` adds up 4 (read) and 2 (write);
    ``order`` says that its messages are ordered. ``attributes`` are those of 5.x, such as
    ``{"message.type": "FIFO"}``; None as a value takes one away. (MQAdminImpl.createTopic)

    Raises IllegalNameError; PartialFailureError where some of the brokers did not do it.
    """
    config = TopicConfig(
        topic,
        read_queue_nums=queue_nums,
        write_queue_nums=queue_nums,
        perm=perm,
        order=order,
        attributes=_changes(attributes or {}),
    )
    return await update_topic(ask, config, cluster=cluster, broker=broker)


async def update_topic(
    ask: Asker, config: TopicConfig, *, cluster: str | None = None, broker: str | None = None
) -> list[str]:
    """Make a topic, or change it, as ``config`` says; where and errors as :meth:`create_topic`.

    Attributes have ``+`` before a name to be set, ``-`` before one to be taken away.
    (createAndUpdateTopicConfig)
    """
    check_topic(config.topic_name)
    header = CreateTopicRequestHeader(
        topic=ask.namespace.wrap(config.topic_name),
        default_topic=ask.config.create_topic_key,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=config.perm,
        topic_filter_type=config.topic_filter_type,
        topic_sys_flag=config.topic_sys_flag,
        order=config.order,
        attributes=",".join(
            f"{name}={value}" if value else name for name, value in config.attributes.items()
        ),
    )
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header),
    )
    return answers.complete(list(answers.by_address))


async def update_topics(
    ask: Asker,
    configs: Iterable[TopicConfig],
    *,
    cluster: str | None = None,
    broker: str | None = None,
) -> list[str]:
    """As :meth:`update_topic` for several topics in one request a broker, for brokers of 5.3 on.

    (createAndUpdateTopicConfigList)
    """
    wanted = list(configs)
    for config in wanted:
        check_topic(config.topic_name)
    body = CreateTopicListRequestBody(
        [_renamed(config, ask.namespace.wrap(config.topic_name)) for config in wanted]
    ).encode()
    answers = await ask.each(
        await ask.masters(cluster, broker),
        lambda address: ask.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, None, body),
    )
    return answers.complete(list(answers.by_address))


async def delete_topic(ask: Asker, topic: str, *, cluster: str | None = None) -> None:
    """Delete ``topic`` at all brokers of ``cluster`` (all there are), masters and slaves.

    Then at the name servers, with its order configuration. Its messages are gone at once, their
    room on disk with the next clean-up. (DefaultMQAdminExtImpl.deleteTopic)

    Raises PartialFailureError; what was not deleted may be tried again.
    """
    await delete_topic_in_broker(ask, topic, cluster=cluster)
    await delete_topic_in_name_server(ask, topic, cluster=cluster)
    header = KVConfigRequestHeader(namespace=ORDER_TOPIC_CONFIG, key=ask.namespace.wrap(topic))
    answers = await ask.each_name_server(RequestCode.DELETE_KV_CONFIG, header)
    answers.complete(None)


async def delete_topic_in_broker(
    ask: Asker, topic: str, *, cluster: str | None = None, broker: str | None = None
) -> None:
    """Delete ``topic`` at the brokers of ``cluster``, at ``broker`` alone, or at all.

    The name servers give its old route until the brokers register again.
    """
    header = TopicRequestHeader(topic=ask.namespace.wrap(topic))
    if broker is None:
        addresses = await ask.masters_and_slaves(cluster)
    else:
        addresses = [await ask.broker(broker)]
    answers = await ask.each(
        addresses, lambda address: ask.ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
    )
    answers.complete(None)


async def delete_topic_in_name_server(
    ask: Asker, topic: str, *, cluster: str | None = None
) -> None:
    """Delete the route of ``topic``, to the brokers of ``cluster`` alone where it is given."""
    header = TopicRequestHeader(topic=ask.namespace.wrap(topic), cluster_name=cluster)
    answers = await ask.each_name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
    answers.complete(None)


# Lists


async def list_topics(ask: Asker) -> list[str]:
    """All topics a name server knows, those of RocketMQ's own too, sorted (fetchAllTopicList)."""
    return await _list(ask, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


async def topics_of_cluster(ask: Asker, cluster: str) -> list[str]:
    """The topics with queues in ``cluster`` (fetchTopicsByCLuster)."""
    answer = await ask.name_server(
        RequestCode.GET_TOPICS_BY_CLUSTER, ClusterRequestHeader(cluster=cluster)
    )
    return _names(TopicList.decode(answer.body), ask.namespace)


async def system_topics(ask: Asker) -> list[str]:
    """RocketMQ's own topics: as a name server knows them, and a broker (getSystemTopicList).

    Among them are topics named after clusters and brokers.
    """
    answer = await ask.name_server(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    found = TopicList.decode(answer.body)
    names = set(found.topic_list)
    if found.broker_addr:
        names |= await _system_topics_of(ask, found.broker_addr)
    return sorted(names)


async def unit_topics(ask: Asker) -> list[str]:
    """The topics that belong to a unit of a divided deployment (getUnitTopicList)."""
    return await _list(ask, RequestCode.GET_UNIT_TOPIC_LIST)


async def topics_with_unit_subscriptions(ask: Asker, *, in_no_unit: bool = False) -> list[str]:
    """The topics that groups of a unit subscribe to (getHasUnitSubTopicList).

    ``in_no_unit``: only those that are of no unit themselves (getHasUnitSubUnUnitTopicList).
    """
    if in_no_unit:
        return await _list(ask, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    return await _list(ask, RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)


# Settings


async def topic_config(ask: Asker, topic: str, broker: str) -> TopicConfig:
    """The settings of ``topic`` at ``broker`` (its name, or host:port).

    Raises TopicNotFoundError. (examineTopicConfig)
    """
    header = TopicRequestHeader(topic=ask.namespace.wrap(topic))
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_TOPIC_CONFIG, header)
    return _renamed(TopicConfig.decode(answer.body), topic)


async def topic_configs(ask: Asker, broker: str) -> dict[str, TopicConfig]:
    """The settings of all topics of ``broker``, by topic (getAllTopicConfig)."""
    answer = await ask.ask(await ask.broker(broker), RequestCode.GET_ALL_TOPIC_CONFIG)
    table = TopicConfigSerializeWrapper.decode(answer.body).topic_config_table
    names = {name: ask.namespace.unwrap(name) for name in sorted(table)}
    return {mine: _renamed(table[name], mine) for name, mine in names.items()}


async def user_topic_configs(
    ask: Asker, broker: str, *, special_topics: bool = False
) -> dict[str, TopicConfig]:
    """As :meth:`topic_configs` without RocketMQ's own topics (getUserTopicConfig).

    ``special_topics``: with the retry and dead-letter topics of groups.
    """
    address = await ask.broker(broker)
    own = await _system_topics_of(ask, address)
    return {
        name: config
        for name, config in (await topic_configs(ask, address)).items()
        if name not in own
        and not is_system_topic(name)
        and (special_topics or not name.startswith((RETRY_PREFIX, DLQ_PREFIX)))
        and 0 <= config.perm < 8
    }


# What is in them


async def topic_route(ask: Asker, topic: str) -> TopicRouteData:
    """Where the queues of ``topic`` are; TopicNotFoundError (examineTopicRouteInfo)."""
    return await ask.route(ask.namespace.wrap(topic))


async def topic_clusters(ask: Asker, topic: str) -> list[str]:
    """The clusters that have queues of ``topic`` (getTopicClusterList)."""
    route = await topic_route(ask, topic)
    names = {broker.broker_name for broker in route.broker_datas}
    clusters = (await ask.cluster_info()).cluster_addr_table
    return sorted(cluster for cluster, members in clusters.items() if members & names)


async def topic_stats(ask: Asker, topic: str, *, broker: str | None = None) -> TopicStatsTable:
    """The first and last offsets of each queue of ``topic``, and when it was last written.

    At all its brokers, or at ``broker`` alone. Raises TopicNotFoundError, or PartialFailureError
    where a broker does not tell. (examineTopicStats)
    """
    wire_topic = ask.namespace.wrap(topic)
    header = TopicRequestHeader(topic=wire_topic)

    async def stats_at(address: str) -> TopicStatsTable:
        answer = await ask.ask(address, RequestCode.GET_TOPIC_STATS_INFO, header)
        return TopicStatsTable.decode(answer.body)

    addresses = (
        list(await ask.brokers_of(wire_topic)) if broker is None else [await ask.broker(broker)]
    )
    answers = await ask.each(addresses, stats_at)
    tables = answers.by_address.values()
    return answers.complete(
        TopicStatsTable(
            merge_queues(ask.namespace, (stats.offset_table for stats in tables)),
            sum(stats.topic_put_tps for stats in tables),
        )
    )


async def _list(ask: Asker, code: RequestCode) -> list[str]:
    return _names(TopicList.decode((await ask.name_server(code)).body), ask.namespace)


def _names(found: TopicList, namespace: Namespace) -> list[str]:
    return sorted(map(namespace.unwrap, found.topic_list))


async def _system_topics_of(ask: Asker, address: str) -> frozenset[str]:
    answer = await ask.ask(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    return TopicList.decode(answer.body).topic_list


def _renamed(config: TopicConfig, name: str) -> TopicConfig:
    return config if config.topic_name == name else msgspec.structs.replace(config, topic_name=name)


def _changes(attributes: Attributes) -> dict[str, str]:
    """Attributes as requests have them (AttributeParser)."""
    return {
        (f"-{name}" if value is None else f"+{name}"): value or ""
        for name, value in attributes.items()
    }
