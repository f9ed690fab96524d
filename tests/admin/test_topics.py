"""Topics through Admin: made, listed, changed, deleted, on our broker."""

from __future__ import annotations

import pytest

from orbitmq import (
    Admin,
    BrokerError,
    ConfigError,
    EmbeddedBroker,
    IllegalNameError,
    Message,
    MessageQueue,
    Producer,
    TopicConfig,
    TopicNotFoundError,
)


def test_a_topic_is_made_with_its_queues_and_found_everywhere(
    admin: Admin, broker: EmbeddedBroker
) -> None:
    assert admin.create_topic("flights", 3) == [broker.address]
    assert "flights" in admin.list_topics()
    assert "flights" in admin.topics_of_cluster("DefaultCluster")
    route = admin.topic_route("flights")
    assert [(data.broker_name, data.write_queue_nums) for data in route.queue_datas] == [
        ("broker-a", 3)
    ]
    assert admin.topic_clusters("flights") == ["DefaultCluster"]
    config = admin.topic_config("flights", "broker-a")
    assert (config.topic_name, config.read_queue_nums, config.perm) == ("flights", 3, 6)
    assert admin.topic_configs(broker.address)["flights"] == config


def test_a_topic_changes(admin: Admin) -> None:
    admin.create_topic("flights", 3)
    admin.update_topic(TopicConfig("flights", read_queue_nums=5, write_queue_nums=4, perm=4))
    config = admin.topic_config("flights", "broker-a")
    assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (5, 4, 4)


def test_the_ends_of_a_topics_queues(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 2)
    queue = MessageQueue("flights", "broker-a", 1)
    producer.send(Message("flights", b"hello"), queue=queue)
    table = admin.topic_stats("flights").offset_table
    assert {queue: ends.max_offset for queue, ends in table.items()} == {
        MessageQueue("flights", "broker-a", 0): 0,
        queue: 1,
    }
    assert admin.topic_stats("flights", broker="broker-a").offset_table == table


def test_a_topic_is_deleted(admin: Admin) -> None:
    admin.create_topic("flights", 1)
    admin.delete_topic_in_broker("flights")
    admin.delete_topic_in_name_server("flights")
    assert "flights" not in admin.list_topics()
    with pytest.raises(TopicNotFoundError, match="flights"):
        admin.topic_route("flights")
    with pytest.raises(BrokerError):
        admin.topic_config("flights", "broker-a")


def test_names_that_cannot_be_are_told(admin: Admin) -> None:
    with pytest.raises(IllegalNameError, match="illegal character"):
        admin.create_topic("fli ghts")
    with pytest.raises(ConfigError, match="broker='broker-x'.*a running broker, or host:port"):
        admin.create_topic("flights", broker="broker-x")
    with pytest.raises(ConfigError, match="cluster='here'.*DefaultCluster"):
        admin.create_topic("flights", cluster="here")
