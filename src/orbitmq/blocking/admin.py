"""The synchronous admin client: a table of what there is to ask, each call delegated as it is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, Unpack

from orbitmq.admin import (
    clean_up,
    cluster,
    connections,
    dead_letters,
    groups,
    kv,
    messages,
    offsets,
    progress,
    replicas,
    settings,
    statistics,
    topics,
    tracks,
)
from orbitmq.admin.asker import Asker
from orbitmq.admin.config import AdminSettings
from orbitmq.admin.core import AdminCore
from orbitmq.blocking.face import Face
from orbitmq.client.loop import loop_thread

_P = ParamSpec("_P")
_T = TypeVar("_T")


def _call(
    question: Callable[Concatenate[Asker, _P], Coroutine[Any, Any, _T]],
) -> Callable[Concatenate[Admin, _P], _T]:
    """A method that asks ``question`` and waits for the answer."""

    @wraps(question)
    def ask(self: Admin, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        asker = self._core.running_asker()
        return loop_thread().run(question(asker, *args, **kwargs))

    return ask


class Admin(Face[AdminCore]):
    """Asks and tells brokers and name servers what operators want to know and have done.

        with Admin(name_server="127.0.0.1:9876") as admin:
            admin.create_topic("flights", 8)
            print(admin.consumer_progress("mailers").lag)

    As Java's ``DefaultMQAdminExt`` and the ``mqadmin`` that stands on it, with answers that are
    values. Where several brokers are concerned all are asked at once; one that fails makes the call
    raise :class:`orbitmq.PartialFailureError`, which has the others' answers. A broker is given by
    its name or by ``host:port``. Settings are the fields of
    :class:`orbitmq.admin.config.AdminConfig`, checked here (ConfigError); an answer that does not
    come within ``api_timeout_ms`` is a RequestTimeoutError, another failure of the network a
    NetworkError, a refusal a BrokerError.
    """

    def __init__(self, **settings: Unpack[AdminSettings]) -> None:
        super().__init__(AdminCore(settings))

    # Topics

    create_topic = _call(topics.create_topic)
    update_topic = _call(topics.update_topic)
    update_topics = _call(topics.update_topics)
    delete_topic = _call(topics.delete_topic)
    delete_topic_in_broker = _call(topics.delete_topic_in_broker)
    delete_topic_in_name_server = _call(topics.delete_topic_in_name_server)
    list_topics = _call(topics.list_topics)
    topics_of_cluster = _call(topics.topics_of_cluster)
    system_topics = _call(topics.system_topics)
    unit_topics = _call(topics.unit_topics)
    topics_with_unit_subscriptions = _call(topics.topics_with_unit_subscriptions)
    topic_config = _call(topics.topic_config)
    topic_configs = _call(topics.topic_configs)
    user_topic_configs = _call(topics.user_topic_configs)
    topic_route = _call(topics.topic_route)
    topic_clusters = _call(topics.topic_clusters)
    topic_stats = _call(topics.topic_stats)

    # Consumer groups

    update_group = _call(groups.update_group)
    update_groups = _call(groups.update_groups)
    delete_group = _call(groups.delete_group)
    group_config = _call(groups.group_config)
    group_configs = _call(groups.group_configs)
    user_group_configs = _call(groups.user_group_configs)
    read_forbidden = _call(groups.read_forbidden)
    set_message_request_mode = _call(groups.set_message_request_mode)
    groups_of_topic = _call(groups.groups_of_topic)
    topics_of_group = _call(groups.topics_of_group)
    subscription = _call(groups.subscription)

    # The cluster

    cluster_info = _call(cluster.cluster_info)
    name_servers = _call(cluster.name_servers)
    wipe_write_perm = _call(cluster.wipe_write_perm)
    add_write_perm = _call(cluster.add_write_perm)

    # What name servers keep

    put_kv = _call(kv.put_kv)
    get_kv = _call(kv.get_kv)
    delete_kv = _call(kv.delete_kv)
    kv_list = _call(kv.kv_list)
    order_conf = _call(kv.order_conf)
    update_order_conf = _call(kv.update_order_conf)
    delete_order_conf = _call(kv.delete_order_conf)

    # Who is connected

    consumer_connection = _call(connections.consumer_connection)
    producer_connection = _call(connections.producer_connection)
    producers = _call(connections.producers)
    consumer_running_info = _call(connections.consumer_running_info)
    consume_message_directly = _call(connections.consume_message_directly)

    # Offsets

    max_offset = _call(offsets.max_offset)
    min_offset = _call(offsets.min_offset)
    search_offset = _call(offsets.search_offset)
    earliest_message_store_time = _call(offsets.earliest_message_store_time)
    consume_stats = _call(offsets.consume_stats)
    consume_offset = _call(offsets.consume_offset)
    consume_status = _call(offsets.consume_status)
    consume_time_span = _call(offsets.consume_time_span)
    reset_offset = _call(offsets.reset_offset)
    reset_offset_by_time = _call(offsets.reset_offset_by_time)
    reset_offset_by_time_old = _call(offsets.reset_offset_by_time_old)
    reset_offset_of_queue = _call(offsets.reset_offset_of_queue)
    update_consume_offset = _call(offsets.update_consume_offset)
    clone_group_offset = _call(offsets.clone_group_offset)

    # How far groups are behind

    consumer_progress = _call(progress.consumer_progress)
    groups_progress = _call(progress.groups_progress)

    # Messages

    view_message = _call(messages.view_message)
    query_messages = _call(messages.query_messages)
    query_by_unique_key = _call(messages.query_by_unique_key)
    message_at = _call(messages.message_at)
    messages_from = _call(messages.messages_from)
    messages_by_time = _call(messages.messages_by_time)
    query_consume_queue = _call(messages.query_consume_queue)
    resume_check_half_message = _call(messages.resume_check_half_message)
    recall_message = _call(messages.recall_message)

    # What became of a message

    message_track = _call(tracks.message_track)
    message_trace = _call(tracks.message_trace)

    # Dead letters

    list_dead_letters = _call(dead_letters.list_dead_letters)
    resend_dead_letters = _call(dead_letters.resend_dead_letters)

    # Settings of servers

    broker_config = _call(settings.broker_config)
    update_broker_config = _call(settings.update_broker_config)
    name_server_config = _call(settings.name_server_config)
    update_name_server_config = _call(settings.update_name_server_config)

    # Statistics

    broker_runtime_info = _call(statistics.broker_runtime_info)
    broker_stats = _call(statistics.broker_stats)
    consume_stats_in_broker = _call(statistics.consume_stats_in_broker)

    # Clean-ups

    clean_expired_consume_queues = _call(clean_up.clean_expired_consume_queues)
    clean_unused_topics = _call(clean_up.clean_unused_topics)
    delete_expired_commit_log = _call(clean_up.delete_expired_commit_log)

    # Slaves, and what is no longer in memory

    ha_status = _call(replicas.ha_status)
    cold_data_info = _call(replicas.cold_data_info)
    update_cold_data_limits = _call(replicas.update_cold_data_limits)
    remove_cold_data_limit = _call(replicas.remove_cold_data_limit)
    set_commit_log_read_ahead = _call(replicas.set_commit_log_read_ahead)
