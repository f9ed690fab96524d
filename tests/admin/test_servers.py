"""Brokers and name servers through Admin: settings, statistics, permissions, KV, clean-ups."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq import (
    Admin,
    AsyncAdmin,
    BrokerError,
    ClientStateError,
    ConfigError,
    ConnectError,
    EmbeddedBroker,
    Message,
    MessageQueue,
    PartialFailureError,
    Producer,
    SubscriptionGroupConfig,
    TopicStatsTable,
)
from orbitmq.admin.asker import Asker
from orbitmq.testing.wait import wait_until
from orbitmq.wire.command import RemotingCommand


def test_keys_and_values(admin: Admin) -> None:
    assert admin.get_kv("colours", "sky") is None
    admin.put_kv("colours", "sky", "blue")
    assert admin.get_kv("colours", "sky") == "blue"
    assert admin.kv_list("colours") == {"sky": "blue"}
    admin.delete_kv("colours", "sky")
    assert admin.kv_list("colours") == {}


def test_the_order_of_a_topic(admin: Admin) -> None:
    admin.create_topic("flights", 2)
    admin.update_order_conf("flights", "broker-a:2")
    admin.update_order_conf("flights", "broker-b:4", add=True)
    assert admin.order_conf("flights") == "broker-a:2;broker-b:4"
    admin.delete_order_conf("flights")
    assert admin.order_conf("flights") is None
    with pytest.raises(ConfigError, match="is not broker:queues"):
        admin.update_order_conf("flights", "broker-a=2")


def test_settings(admin: Admin, broker: EmbeddedBroker) -> None:
    assert admin.broker_config("broker-a")["brokerName"] == "broker-a"
    admin.update_broker_config({"fileReservedTime": 48, "autoCreateTopicEnable": False})
    changed = admin.broker_config(broker.address)
    assert (changed["fileReservedTime"], changed["autoCreateTopicEnable"]) == ("48", "false")
    with pytest.raises(BrokerError, match="fileReservedTime"):
        admin.update_broker_config({"fileReservedTime": "soon"})
    with pytest.raises(ConfigError, match="one setting at least"):
        admin.update_broker_config({})
    assert admin.name_servers() == [broker.name_server]
    config = admin.name_server_config()[broker.name_server]
    assert config["listenPort"] == broker.name_server.rpartition(":")[2]


def test_what_brokers_count(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 1)
    admin.update_group(SubscriptionGroupConfig("mailers"))
    producer.send(Message("flights", b"hello"))
    queue = MessageQueue("flights", "broker-a", 0)
    admin.update_consume_offset("mailers", queue, 0)
    info = admin.broker_runtime_info("broker-a")
    assert len(info.put_tps) == len(info.get_tps) == 3
    assert 0 <= info.commit_log_disk_ratio <= 1
    assert info.boot_timestamp > 0
    stats = admin.consume_stats_in_broker("broker-a")
    assert stats.total_lag == 1
    assert "mailers" in stats.groups
    assert admin.broker_stats("TOPIC_PUT_NUMS", "flights", "broker-a").stats_day.sum >= 0
    assert set(admin.producers("broker-a")) == {"makers"}
    (span,) = admin.consume_time_span("flights", "mailers")
    assert span.message_queue == queue


def test_permissions_and_clean_ups(admin: Admin, broker: EmbeddedBroker) -> None:
    admin.create_topic("flights", 1)
    (wiped,) = admin.wipe_write_perm("broker-a").items()
    assert wiped[0] == broker.name_server
    assert wiped[1] > 0
    assert admin.topic_route("flights").queue_datas[0].perm == 4
    admin.add_write_perm("broker-a")
    assert admin.topic_route("flights").queue_datas[0].perm == 6
    assert admin.clean_expired_consume_queues() == [broker.address]
    assert admin.clean_unused_topics(cluster="DefaultCluster") == [broker.address]
    assert admin.delete_expired_commit_log(broker="broker-a") == [broker.address]


def test_slaves_and_cold_data(admin: Admin) -> None:
    assert admin.ha_status("broker-a").ha_connection_info == []
    admin.update_cold_data_limits({"mailers": 1 << 20})
    assert admin.cold_data_info("broker-a").config_table == {"mailers": 1 << 20}
    admin.remove_cold_data_limit("mailers")
    assert admin.cold_data_info("broker-a").config_table == {}
    admin.set_commit_log_read_ahead(enabled=True)


def test_groups_may_be_forbidden_topics(admin: Admin) -> None:
    admin.create_topic("flights", 1)
    admin.update_group(SubscriptionGroupConfig("mailers"))
    assert admin.read_forbidden("mailers", "flights", "broker-a").readable
    admin.read_forbidden("mailers", "flights", "broker-a", readable=False)
    assert not admin.read_forbidden("mailers", "flights", "broker-a").readable


@pytest.fixture
def second(broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(name_server=broker.name_server, broker_name="broker-b") as running:
        yield running


def test_a_broker_that_fails_is_told_and_the_others_answers_are_there(
    admin: Admin, second: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(admin.create_topic("flights", 1)) == 2
    wait_until(lambda: len(admin.topic_route("flights").broker_datas) == 2)
    ask = Asker.ask

    async def ask_but_one(self: Asker, address: str, *args: Any, **how: Any) -> RemotingCommand:
        if address == second.address:
            raise ConnectError("it is away", address)
        return await ask(self, address, *args, **how)

    monkeypatch.setattr(Asker, "ask", ask_but_one)
    with pytest.raises(PartialFailureError, match=r"1 of the servers .*: it is away") as caught:
        admin.topic_stats("flights")
    error = caught.value
    assert set(error.failures) == {second.address}
    assert isinstance(error.result, TopicStatsTable)
    assert {queue.broker_name for queue in error.result.offset_table} == {"broker-a"}
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), set(copy.failures)) == (str(error), {second.address})
    with pytest.raises(ConnectError, match="it is away"):
        admin.topic_stats("flights", broker="broker-b")


def test_a_namespace_is_no_affair_of_the_users(
    broker: EmbeddedBroker, admin: Admin, producer: Producer
) -> None:
    with Admin(name_server=broker.name_server, namespace="ns") as mine:
        mine.create_topic("flights", 1)
        mine.update_group(SubscriptionGroupConfig("mailers"))
        producer.send(Message("ns%flights", b"hello"))
        queue = MessageQueue("flights", "broker-a", 0)
        mine.update_consume_offset("mailers", queue, 0)
        assert "flights" in mine.list_topics()
        assert "ns%flights" in admin.list_topics()
        assert mine.topic_config("flights", "broker-a").topic_name == "flights"
        assert list(mine.topic_stats("flights").offset_table) == [queue]
        assert mine.groups_of_topic("flights") == ["mailers"]
        assert mine.consumer_progress("mailers", "flights").queues[0].queue == queue
        assert mine.message_at(queue, 0).topic == "flights"
        assert mine.group_config("mailers", "broker-a") is not None
        assert "mailers" in mine.consume_stats_in_broker("broker-a").groups


def test_coroutines_have_the_same_calls(broker: EmbeddedBroker) -> None:
    async def main() -> None:
        async with AsyncAdmin(name_server=broker.name_server) as admin:
            await admin.create_topic("flights", 2)
            stats = await admin.topic_stats("flights")
            assert len(stats.offset_table) == 2

    asyncio.run(main())


def test_nobody_is_asked_by_a_client_that_does_not_run(broker: EmbeddedBroker) -> None:
    admin = Admin(name_server=broker.name_server)
    with pytest.raises(ClientStateError, match="CREATE_JUST"):
        admin.list_topics()
    with pytest.raises(ConfigError, match="max_requests=0"):
        Admin(name_server=broker.name_server, max_requests=0)


def test_no_server_answers() -> None:
    with EmbeddedBroker() as gone:
        server = gone.name_server
    with (
        Admin(name_server=server, api_timeout_ms=1000) as admin,
        pytest.raises(ConnectError, match="no name server answers"),
    ):
        admin.list_topics()
