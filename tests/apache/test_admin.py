"""Our Admin on clusters of Apache's, 4.9.7 and 5.5.0, and on ours: the same answers from all."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from orbitmq import (
    Admin,
    BrokerError,
    CMResult,
    ConsumeStatus,
    ConsumeType,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
    RequestNotSupportedError,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicNotFoundError,
    TrackType,
    codes,
)
from tests.apache.cluster import ApacheCluster
from tests.apache.jars import OLDEST
from tests.patience import eventually

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.apache.orbit import Cluster

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]

BROKERS = ("broker-a", "broker-b")
_numbers = itertools.count()


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(name_server=cluster.name_server, api_timeout_ms=60_000) as running:
        yield running


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer("admin-makers", name_server=cluster.name_server) as running:
        yield running


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic with two queues at each of the two brokers, known to the name server."""
    name = f"administered-{next(_numbers)}"
    assert len(admin.create_topic(name, 2)) == len(BROKERS)
    eventually(lambda: brokers_of(admin, name) == BROKERS, f"the route of {name}")
    return name


def version(cluster: Cluster) -> str:
    """Of Apache's clusters."""
    return cluster.release.version if isinstance(cluster, ApacheCluster) else ""


def brokers_of(admin: Admin, topic: str) -> tuple[str, ...]:
    try:
        route = admin.topic_route(topic)
    except TopicNotFoundError:
        return ()
    return tuple(sorted(data.broker_name for data in route.queue_datas))


def queues(topic: str) -> list[MessageQueue]:
    return [MessageQueue(topic, broker, number) for broker in BROKERS for number in range(2)]


def fill(
    admin: Admin, producer: Producer, topic: str, count: int = 1
) -> dict[MessageQueue, list[str]]:
    """Sends so many messages to each queue, which Apache's brokers fill afterwards; their ids."""
    ids = {
        queue: [
            producer.send(
                Message(topic, b"%d" % number, tags="UA", keys=f"{queue.broker_name}-{number}"),
                queue=queue,
            ).message_id
            for number in range(count)
        ]
        for queue in queues(topic)
    }
    ends = dict.fromkeys(queues(topic), count)
    eventually(lambda: max_offsets(admin, topic) == ends, "the messages in their queues")
    return ids


def max_offsets(admin: Admin, topic: str) -> dict[MessageQueue, int]:
    stats = admin.topic_stats(topic)
    return {queue: ends.max_offset for queue, ends in stats.offset_table.items()}


def test_topics(admin: Admin, topic: str) -> None:
    assert topic in admin.list_topics()
    assert topic in admin.topics_of_cluster("DefaultCluster")
    assert admin.topic_clusters(topic) == ["DefaultCluster"]
    assert "TBW102" in admin.system_topics()
    for broker in BROKERS:
        admin.update_topic(TopicConfig(topic, 3, 3), broker=broker)
        assert admin.topic_configs(broker)[topic].write_queue_nums == 3
        found = admin.user_topic_configs(broker)
        assert topic in found
        assert not {"TBW102", "DefaultCluster", broker} & found.keys()
    assert admin.update_order_conf(topic, "broker-a:3") is None
    admin.update_order_conf(topic, "broker-b:2", add=True)
    assert admin.order_conf(topic) == "broker-a:3;broker-b:2"
    admin.delete_topic(topic)
    assert topic not in admin.list_topics()
    assert admin.order_conf(topic) is None
    with pytest.raises(TopicNotFoundError):
        admin.topic_stats(topic)


def test_groups(admin: Admin, topic: str) -> None:
    group = f"{topic}-made"
    config = SubscriptionGroupConfig(group, retry_max_times=3, consume_broadcast_enable=False)
    assert len(admin.update_group(config)) == 2
    for broker in BROKERS:
        found = admin.group_config(group, broker)
        assert found is not None
        assert (found.retry_max_times, found.consume_broadcast_enable) == (3, False)
        assert group in admin.user_group_configs(broker)
    admin.delete_group(group, remove_offset=True)


def test_what_the_name_server_keeps(admin: Admin) -> None:
    name = f"colours-{next(_numbers)}"
    assert admin.get_kv(name, "sky") is None
    assert admin.kv_list(name) == {}
    admin.put_kv(name, "sky", "blue")
    assert admin.get_kv(name, "sky") == "blue"
    assert admin.kv_list(name) == {"sky": "blue"}
    admin.delete_kv(name, "sky")
    assert admin.get_kv(name, "sky") is None
    (server,) = admin.name_servers()
    assert admin.name_server_config()[server]["listenPort"] == server.rpartition(":")[2]
    info = admin.cluster_info()
    assert set(BROKERS) <= info.broker_addr_table.keys()


def test_offsets_of_a_group_that_is_away(admin: Admin, producer: Producer, topic: str) -> None:
    group = f"{topic}-away"
    admin.update_group(SubscriptionGroupConfig(group))
    fill(admin, producer, topic, 3)
    for queue in queues(topic):
        admin.update_consume_offset(group, queue, 1)
        assert admin.consume_offset(group, queue) == 1
        assert (admin.min_offset(queue), admin.max_offset(queue)) == (0, 3)
        assert admin.search_offset(queue, 0) == 0
        assert admin.earliest_message_store_time(queue) > 0
    assert group in admin.groups_of_topic(topic)
    progress = admin.consumer_progress(group, topic)
    assert [(one.queue, one.consumer_offset, one.lag) for one in progress.queues] == [
        (queue, 1, 2) for queue in queues(topic)
    ]
    moved = admin.reset_offset_by_time_old(topic, group, -1)
    assert [one.rollback_offset for one in moved] == [3] * 4
    assert admin.consumer_progress(group, topic).lag == 0
    assert admin.reset_offset(topic, group, 0) == dict.fromkeys(queues(topic), 0)


def test_messages_found(admin: Admin, producer: Producer, topic: str) -> None:
    ids = fill(admin, producer, topic, 2)
    queue = queues(topic)[3]
    message_id = ids[queue][1]
    found = eventually(
        lambda: admin.query_by_unique_key(topic, message_id), "the index of the message"
    )
    message = found[0]
    assert (message.body, message.keys) == (b"1", "broker-b-1")
    assert admin.view_message(topic, message_id).offset_message_id == message.offset_message_id
    assert admin.view_message(topic, message.offset_message_id).message_id == message_id
    assert admin.message_at(queue, 1).message_id == message_id
    by_key = eventually(lambda: len(admin.query_messages(topic, "broker-b-1")) == 2, "both")
    assert by_key
    assert admin.query_messages(topic, "nobody") == []
    everything = admin.messages_by_time(topic, 0)
    assert {one.message_id for one in everything} == {one for some in ids.values() for one in some}
    assert len(admin.messages_by_time(topic, 0, max_num=3)) == 3
    assert admin.messages_by_time(topic, 0, expression="AA") == []
    entries = admin.query_consume_queue(queue, 0, 2)
    assert entries.max_queue_index == 2
    assert entries.queue_data is not None
    assert entries.queue_data[1].physic_offset == message.physical_offset


def test_a_consumer_that_is_online(
    admin: Admin, producer: Producer, topic: str, cluster: Cluster
) -> None:
    group = f"{topic}-online"
    fill(admin, producer, topic)
    seen: list[str] = []

    def note(messages: Sequence[MessageView]) -> None:
        seen.extend(message.message_id for message in messages)

    traces = f"{topic}-traces"
    admin.create_topic(traces, 1)
    eventually(lambda: brokers_of(admin, traces) == BROKERS, "the topic of the traces")
    with PushConsumer(
        group,
        note,
        name_server=cluster.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        persist_offset_delay_ms=100,
        persist_offset_interval_ms=100,
        enable_trace=True,
        trace_topic=traces,
    ) as consumer:
        consumer.subscribe(topic)
        eventually(lambda: len(set(seen)) == 4, "the messages")
        eventually(lambda: brokers_of(admin, f"%RETRY%{group}") == BROKERS, "the retry topic")
        online = admin.consumer_connection(group)
        (client,) = online.connection_set
        assert (client.language, online.consume_type) == ("PYTHON", ConsumeType.CONSUME_PASSIVELY)
        info = admin.consumer_running_info(group, client.client_id)
        assert set(queues(topic)) <= info.mq_table.keys()
        assert set(admin.consume_status(topic, group)) == {client.client_id}
        if version(cluster) == OLDEST:
            with pytest.raises(RequestNotSupportedError):
                admin.subscription(group, topic)
        else:
            subscription = admin.subscription(group, topic)
            assert subscription is not None
            assert subscription.sub_string == "*"
        eventually(lambda: admin.consumer_progress(group, topic).lag == 0, "the offsets")
        owners = admin.consumer_progress(group, topic, client_ids=True)
        assert {one.client_id for one in owners.queues} == {client.client_id}
        spans = admin.consume_time_span(topic, group)
        assert {span.message_queue for span in spans} == set(queues(topic))
        message = admin.message_at(queues(topic)[0], 0)
        assert TrackType.CONSUMED in [track.track_type for track in admin.message_track(message)]
        result = admin.consume_message_directly(group, client.client_id, message)
        assert result.consume_result is CMResult.CR_SUCCESS
        glance = {one.group: one for one in admin.groups_progress()}[group]
        assert (glance.count, glance.lag, glance.failures) == (1, 0, {})
        trace = eventually(
            lambda: admin.message_trace(message.message_id, trace_topic=traces), "the trace"
        )
        assert {one.group for one in trace} == {group}
    with pytest.raises(BrokerError) as caught:
        admin.consumer_connection(group)
    assert caught.value.code == codes.CONSUMER_NOT_ONLINE


def test_dead_letters(admin: Admin, producer: Producer, topic: str, cluster: Cluster) -> None:
    group = f"{topic}-failing"
    admin.update_group(SubscriptionGroupConfig(group, retry_max_times=0))
    sent = {one for some in fill(admin, producer, topic).values() for one in some}
    fails = True
    taken: set[str] = set()

    def consume(messages: Sequence[MessageView]) -> ConsumeStatus:
        if fails:
            return ConsumeStatus.RECONSUME_LATER
        taken.update(message.body.decode() for message in messages if message.topic == topic)
        return ConsumeStatus.SUCCESS

    with PushConsumer(
        group,
        consume,
        name_server=cluster.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        max_reconsume_times=0,
    ) as consumer:
        consumer.subscribe(topic)

        def given_up() -> list[MessageView]:
            try:
                found = admin.list_dead_letters(group)
            except TopicNotFoundError:
                return []
            return found if len(found) >= len(sent) else []

        letters = eventually(given_up, "the dead letters")
        assert {letter.property("RETRY_TOPIC") for letter in letters} == {topic}
        fails = False
        assert len(admin.resend_dead_letters(group, letters)) == len(letters)
        eventually(lambda: taken == {"0"}, "the messages once more")


def test_brokers(admin: Admin, producer: Producer, topic: str, cluster: Cluster) -> None:
    fill(admin, producer, topic)
    address = admin.cluster_info().broker_addr_table["broker-a"].broker_addrs[0]
    assert admin.broker_config(address)["brokerName"] == "broker-a"
    before = admin.broker_config("broker-a")["fileReservedTime"]
    admin.update_broker_config({"fileReservedTime": 70}, broker="broker-a")
    assert admin.broker_config("broker-a")["fileReservedTime"] == "70"
    admin.update_broker_config({"fileReservedTime": before}, broker="broker-a")
    info = admin.broker_runtime_info("broker-a")
    assert len(info.put_tps) <= 3
    assert info.boot_timestamp > 0
    assert 0 <= info.commit_log_disk_ratio <= 1
    stats = admin.consume_stats_in_broker("broker-a")
    assert stats.total_lag >= 0
    assert admin.broker_stats("TOPIC_PUT_NUMS", topic, "broker-a").stats_day.sum >= 0
    assert admin.clean_unused_topics(broker="broker-a") == [address]
    assert admin.clean_expired_consume_queues(broker="broker-a") == [address]
    if version(cluster) != OLDEST:
        assert "admin-makers" in admin.producers("broker-a")
