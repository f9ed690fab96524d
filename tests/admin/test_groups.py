"""Consumer groups through Admin: their settings, members, offsets and progress."""

from __future__ import annotations

import pytest

from orbitmq import (
    Admin,
    BrokerError,
    CMResult,
    ConsumeType,
    EmbeddedBroker,
    Message,
    MessageModel,
    MessageQueue,
    Producer,
    PushConsumer,
    SubscriptionGroupConfig,
    TopicNotFoundError,
    TrackType,
    codes,
)
from orbitmq.testing.wait import wait_until

QUEUES = [MessageQueue("flights", "broker-a", number) for number in range(2)]


def test_a_group_is_made_changed_and_deleted(admin: Admin, broker: EmbeddedBroker) -> None:
    config = SubscriptionGroupConfig("mailers", retry_max_times=3)
    assert admin.update_group(config) == [broker.address]
    assert admin.group_config("mailers", "broker-a") == config
    admin.update_groups([SubscriptionGroupConfig("mailers", consume_enable=False)])
    found = admin.group_configs("broker-a")["mailers"]
    assert (found.retry_max_times, found.consume_enable) == (16, False)
    own = admin.user_group_configs("broker-a")
    assert set(own) == {"mailers"}
    admin.delete_group("mailers", remove_offset=True)
    assert admin.group_config("mailers", "broker-a") is None


def send(producer: Producer, count: int) -> None:
    """So many messages to each queue."""
    for queue in QUEUES:
        for number in range(count):
            producer.send(Message("flights", b"%d" % number, tags="UA"), queue=queue)


def test_an_offline_group_is_moved(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 2)
    admin.update_group(SubscriptionGroupConfig("mailers"))
    send(producer, 5)
    assert admin.consume_offset("mailers", QUEUES[0]) is None
    for queue in QUEUES:
        admin.update_consume_offset("mailers", queue, 1 + queue.queue_id)
    assert admin.consume_offset("mailers", QUEUES[1]) == 2
    assert admin.groups_of_topic("flights") == ["mailers"]
    progress = admin.consumer_progress("mailers", "flights")
    assert [(one.queue, one.consumer_offset, one.lag) for one in progress.queues] == [
        (QUEUES[0], 1, 4),
        (QUEUES[1], 2, 3),
    ]
    assert (progress.lag, progress.tps) == (7, 0.0)
    moved = admin.reset_offset_by_time_old("flights", "mailers", 0)
    assert [(one.queue, one.broker_offset, one.consumer_offset) for one in moved] == [
        (QUEUES[0], 5, 1),
        (QUEUES[1], 5, 2),
    ]
    assert [one.rollback_offset for one in moved] == [0, 0]
    kept = admin.reset_offset_by_time_old("flights", "mailers", -1, force=False)
    assert [(one.timestamp_offset, one.rollback_offset) for one in kept] == [(5, 0), (5, 0)]
    assert admin.reset_offset("flights", "mailers", -1) == dict.fromkeys(QUEUES, 5)
    assert admin.consumer_progress("mailers", "flights").lag == 0
    admin.reset_offset_of_queue("mailers", QUEUES[0], 3)
    assert admin.consume_offset("mailers", QUEUES[0]) == 3


def test_the_ends_of_a_queue(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 2)
    assert admin.earliest_message_store_time(QUEUES[0]) == -1
    send(producer, 2)
    assert (admin.min_offset(QUEUES[0]), admin.max_offset(QUEUES[0])) == (0, 2)
    assert admin.search_offset(QUEUES[0], 0) == 0
    assert admin.search_offset(QUEUES[0], 0, "UPPER") == 0
    assert admin.earliest_message_store_time(QUEUES[0]) > 0


def test_what_a_consumer_says_and_does(
    admin: Admin, producer: Producer, broker: EmbeddedBroker
) -> None:
    admin.create_topic("flights", 2)
    send(producer, 3)
    seen: list[bytes] = []
    consumer = PushConsumer(
        "mailers",
        lambda messages: seen.extend(message.body for message in messages),
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        persist_offset_delay_ms=50,
        persist_offset_interval_ms=50,
    )
    consumer.subscribe("flights")
    with consumer:
        wait_until(lambda: len(seen) >= 6)
        online = admin.consumer_connection("mailers")
        (client,) = online.connection_set
        assert (online.consume_type, online.message_model, client.language) == (
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            "PYTHON",
        )
        assert "flights" in online.subscription_table
        subscribed = admin.subscription("mailers", "flights")
        assert subscribed is not None
        assert subscribed.sub_string == "*"
        info = admin.consumer_running_info("mailers", client.client_id)
        assert set(QUEUES) <= set(info.mq_table)
        (glance,) = [one for one in admin.groups_progress() if one.group == "mailers"]
        assert (glance.count, glance.consume_type) == (1, ConsumeType.CONSUME_PASSIVELY)
        (message,) = admin.messages_from(QUEUES[1], 2)
        assert (message.body, message.queue_offset) == (b"2", 2)
        result = admin.consume_message_directly("mailers", client.client_id, message)
        assert result.consume_result is CMResult.CR_SUCCESS
        assert len(seen) >= 7
        owners = admin.consumer_progress("mailers", "flights", client_ids=True)
        assert {one.client_id for one in owners.queues} == {client.client_id}
        wait_until(lambda: admin.consumer_progress("mailers", "flights").lag == 0)
        (track,) = admin.message_track(message)
        assert (track.group, track.track_type) == ("mailers", TrackType.CONSUMED)
    (track,) = admin.message_track(message)
    assert track.track_type is TrackType.NOT_ONLINE
    admin.clone_group_offset("mailers", "others", "flights")
    assert admin.consume_offset("others", QUEUES[0]) == 3
    assert set(admin.topics_of_group("mailers")) >= {"flights"}


def test_nobody_is_online(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 2)
    producer.send(Message("flights", b"hello"))
    with pytest.raises(TopicNotFoundError, match="nobody"):
        admin.consume_stats("nobody")
    with pytest.raises(TopicNotFoundError, match="nobody"):
        admin.consumer_connection("nobody")
    with pytest.raises(BrokerError, match="nobody") as caught:
        admin.consumer_connection("nobody", broker="broker-a")
    assert caught.value.code == codes.CONSUMER_NOT_ONLINE
    assert admin.producer_connection("makers", "flights").connection_set
