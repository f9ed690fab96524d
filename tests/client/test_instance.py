"""ClientInstance: routes, heartbeats, requests of brokers, and the consumers' clocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from orbitmq import codes
from orbitmq.client.config import ClientConfig, make_config
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ClientStateError,
    ConnectError,
    ConnectionLostError,
    RequestNotSupportedError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from orbitmq.message import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import (
    ConsumeFromWhere,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    SubscriptionData,
    TopicRouteData,
)
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.headers import ConsumerGroupRequestHeader
from tests.client.stub_cluster import StubCluster, answer, hang_up, silence
from tests.net.test_pool import unused_address
from tests.waiting import until


class Consumer:
    """A consumer as its instance sees it, counting what it is asked to do."""

    consume_type = ConsumeType.CONSUME_PASSIVELY
    message_model = MessageModel.CLUSTERING
    consume_from_where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    unit_mode = False

    def __init__(self, *topics: str) -> None:
        self.topics = topics
        self.rebalances = 0
        self.persists = 0
        self.notices = 0
        self.balanced = True
        self.error: Exception | None = None

    def subscriptions(self) -> Iterable[SubscriptionData]:
        return [SubscriptionData(topic, "*") for topic in self.topics]

    async def rebalance(self) -> bool:
        self.rebalances += 1
        if self.error is not None:
            raise self.error
        return self.balanced

    def balance_soon(self) -> None:
        self.notices += 1

    async def persist_offsets(self) -> None:
        self.persists += 1
        if self.error is not None:
            raise self.error


class Producer:
    """A producer as its instance sees it."""

    def __init__(self, *topics: str) -> None:
        self._topics = topics
        self.changes: list[str] = []

    def topics(self) -> Iterable[str]:
        return self._topics

    def route_changed(self, topic: str, route: TopicRouteData) -> None:
        self.changes.append(topic)


def config(name_server: str, **settings: Any) -> ClientConfig:
    return make_config(ClientConfig, {"name_server": name_server, **settings})


def with_instance(
    cluster: StubCluster,
    scenario: Callable[[ClientInstance], Awaitable[None]],
    *,
    name_server: str | None = None,
    **settings: Any,
) -> None:
    async def main() -> None:
        instance = await ClientInstance.obtain(
            config(name_server or cluster.address, **settings), client_id="host@test"
        )
        try:
            async with asyncio.timeout(20):
                await scenario(instance)
        finally:
            await instance.release()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


# Life


def test_clients_with_one_id_share_an_instance_until_the_last_leaves() -> None:
    async def main(cluster: StubCluster) -> None:
        first = await ClientInstance.obtain(config(cluster.address), client_id="c")
        second = await ClientInstance.obtain(config(cluster.address), client_id="c")
        other = await ClientInstance.obtain(config(cluster.address))
        assert second is first
        assert other is not first
        await second.release()
        await first.name_servers.check(timeout_ms=5000)
        await first.release()
        with pytest.raises(ConnectError, match="closed"):
            await first.name_servers.check(timeout_ms=5000)
        third = await ClientInstance.obtain(config(cluster.address), client_id="c")
        assert third is not first
        await third.release()
        await other.release()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with StubCluster() as cluster:
        asyncio.run(main(cluster))


def test_a_group_has_one_client_in_an_instance() -> None:
    async def scenario(instance: ClientInstance) -> None:
        instance.register_consumer("g", Consumer())
        instance.register_producer("g", Producer())
        with pytest.raises(ClientStateError, match="choose another group"):
            instance.register_consumer("g", Consumer())
        with pytest.raises(ClientStateError, match="'g'"):
            instance.register_producer("g", Producer())
        await instance.unregister_producer("g")
        instance.register_producer("g", Producer())

    with StubCluster() as cluster:
        with_instance(cluster, scenario)


# Routes


def test_a_route_is_fetched_once_for_all_who_ask() -> None:
    async def scenario(instance: ClientInstance) -> None:
        routes = await asyncio.gather(*(instance.fetch_route("t") for _ in range(5)))
        assert len(cluster.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
        assert await instance.topic_route("t") == routes[0]
        assert await instance.subscribe_queues("t") == (
            MessageQueue("t", "broker-a", 0),
            MessageQueue("t", "broker-a", 1),
        )
        assert await instance.broker_address("broker-a") == cluster.brokers[0].address
        assert len(cluster.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
        await instance.fetch_route("t")
        assert len(cluster.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 2

    with StubCluster(t=2) as cluster:
        with_instance(cluster, scenario)


def test_what_cannot_be_found_is_an_error_of_the_callers_own() -> None:
    async def scenario(instance: ClientInstance) -> None:
        errors = await asyncio.gather(
            *(instance.fetch_route("unknown") for _ in range(2)), return_exceptions=True
        )
        assert all(isinstance(error, TopicNotFoundError) for error in errors)
        assert errors[0] is not errors[1]
        with pytest.raises(ConnectError, match="broker-z"):
            await instance.broker_address("broker-z", topic="t")

    with StubCluster(t=2) as cluster:
        with_instance(cluster, scenario)


def test_a_route_in_use_is_refreshed_and_its_change_is_told() -> None:
    async def scenario(instance: ClientInstance) -> None:
        consumer, producer = Consumer("sub"), Producer("pub")
        instance.register_consumer("g", consumer)
        instance.register_producer("g", producer)
        await until(lambda: producer.changes.count("pub") == 1 and consumer.rebalances)
        cluster.topics["pub"] = 3
        await until(lambda: producer.changes.count("pub") == 2)

    with StubCluster(sub=1, pub=2) as cluster:
        with_instance(
            cluster, scenario, poll_name_server_interval_ms=10, rebalance_min_interval_ms=1
        )


def test_the_next_name_server_takes_over() -> None:
    async def scenario(instance: ClientInstance) -> None:
        for _ in range(4):
            await instance.fetch_route("t")
        assert len(cluster.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 4

    with StubCluster(t=1) as cluster:
        two = f"{unused_address()};{cluster.address}"
        with_instance(cluster, scenario, name_server=two)


def test_a_name_server_that_hangs_leaves_time_for_the_next() -> None:
    async def scenario(instance: ClientInstance) -> None:
        assert (await instance.fetch_route("t")).queue_datas

    with StubCluster() as hanging, StubCluster(t=1) as cluster:
        hanging.name_server.default = silence
        two = f"{hanging.address};{cluster.address}"
        with_instance(cluster, scenario, name_server=two, api_timeout_ms=600)


def test_unreachable_name_servers_are_named_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.client")
    address = unused_address()
    host, _, port = address.rpartition(":")

    async def scenario(instance: ClientInstance) -> None:
        with pytest.raises(ConnectError, match="no name server answers") as raised:
            await instance.fetch_route("t")
        assert f"name_server='{address}'" in str(raised.value)
        await until(lambda: "Trying again" in caplog.text)
        assert address in caplog.text
        await cluster_loop(cluster.name_server.server.close())
        await cluster_loop(cluster.name_server.server.start(host, int(port)))
        await until(lambda: "answers again" in caplog.text)

    with StubCluster(t=1) as cluster:

        async def cluster_loop(coroutine: Any) -> None:
            await asyncio.to_thread(cluster.run, coroutine)

        with_instance(cluster, scenario, name_server=address, poll_name_server_interval_ms=20)


def test_a_fetch_under_way_at_the_end_says_so() -> None:
    async def main(cluster: StubCluster) -> None:
        cluster.name_server.default = silence
        instance = await ClientInstance.obtain(config(cluster.address))
        instance.register_producer("g", Producer("t"))
        fetch = asyncio.create_task(instance.fetch_route("t"))
        instance.spawn(instance.fetch_route("t"))
        await until(lambda: cluster.name_server.requests)
        await instance.release()
        with pytest.raises(ClientStateError, match="shut down meanwhile"):
            await fetch

    with StubCluster() as cluster:
        asyncio.run(main(cluster))


# Heartbeats


def heartbeats(cluster: StubCluster, broker: int = 0) -> list[HeartbeatData]:
    return [
        HeartbeatData.decode(command.body)
        for command in cluster.brokers[broker].of(RequestCode.HEART_BEAT)
    ]


def test_a_heartbeat_tells_every_broker_who_we_are() -> None:
    async def scenario(instance: ClientInstance) -> None:
        await instance.heartbeat()
        await instance.fetch_route("t")
        await instance.heartbeat()
        assert not heartbeats(cluster), "there is nobody to tell of"
        instance.register_consumer("readers", Consumer("t"))
        instance.register_producer("writers", Producer())
        await instance.heartbeat()
        for broker in range(2):
            (told,) = heartbeats(cluster, broker)
            assert told.client_id == "host@test"
            assert [data.group_name for data in told.producer_data_set] == ["writers"]
            (consumer,) = told.consumer_data_set
            assert consumer.group_name == "readers"
            assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
            assert [data.topic for data in consumer.subscription_data_set] == ["t"]

    with StubCluster(2, t=1) as cluster:
        with_instance(cluster, scenario)


def test_heartbeats_go_on_and_one_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(instance: ClientInstance) -> None:
        instance.register_producer("g", Producer("t"))
        await instance.fetch_route("t")
        cluster.brokers[0].default = answer(codes.SYSTEM_ERROR, "on purpose")
        await instance.heartbeat()
        assert "on purpose" in caplog.text
        await until(lambda: len(heartbeats(cluster)) >= 3)

    with StubCluster(t=1) as cluster:
        with_instance(cluster, scenario, heartbeat_interval_ms=10)


def test_a_broker_that_lost_us_hears_of_us_at_once() -> None:
    async def scenario(instance: ClientInstance) -> None:
        consumer = Consumer("t")
        instance.register_consumer("g", consumer)
        await instance.fetch_route("t")
        await instance.heartbeat()
        broker = cluster.brokers[0]
        broker.default = hang_up
        with pytest.raises(ConnectionLostError, match="lost"):
            await instance.request(broker.address, 1)
        broker.default = broker.answer
        told, rebalances = len(heartbeats(cluster)), consumer.rebalances
        await instance.request(broker.address, 1)
        await until(lambda: len(heartbeats(cluster)) > told)
        await until(lambda: consumer.rebalances > rebalances)

    with StubCluster(t=1) as cluster:
        with_instance(cluster, scenario, rebalance_min_interval_ms=1)


def test_leaving_is_told_to_the_brokers_we_are_connected_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(instance: ClientInstance) -> None:
        instance.register_consumer("readers", Consumer())
        instance.register_producer("writers", Producer())
        await instance.fetch_route("t")
        await instance.request(cluster.brokers[0].address, 1)
        await instance.unregister_consumer("readers")
        await instance.unregister_producer("writers")
        await instance.unregister_producer("unknown")
        told = [r.ext_fields for r in cluster.brokers[0].of(RequestCode.UNREGISTER_CLIENT)]
        assert told == [
            {"clientID": "host@test", "consumerGroup": "readers"},
            {"clientID": "host@test", "producerGroup": "writers"},
        ]
        assert not cluster.brokers[1].of(RequestCode.UNREGISTER_CLIENT)
        cluster.brokers[0].default = hang_up
        instance.register_producer("writers", Producer())
        await instance.unregister_producer("writers")
        assert "could not unregister" in caplog.text

    with StubCluster(2, t=1) as cluster:
        with_instance(cluster, scenario)


# Requests


def test_answers_that_are_errors_raise_and_late_ones_time_out() -> None:
    async def scenario(instance: ClientInstance) -> None:
        broker = cluster.brokers[0]
        broker.default = answer(codes.NO_PERMISSION, "not you")
        assert (await instance.invoke(broker.address, 1)).code == codes.NO_PERMISSION
        with pytest.raises(BrokerError, match="not you") as raised:
            await instance.request(broker.address, 1)
        assert raised.value.address == broker.address
        broker.default = silence
        with pytest.raises(RequestTimeoutError):
            await instance.request(broker.address, 1, timeout_ms=10)

    with StubCluster() as cluster:
        with_instance(cluster, scenario)


def test_a_oneway_request_needs_no_connection_yet(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(instance: ClientInstance) -> None:
        broker = cluster.brokers[0]
        instance.oneway(broker.address, 15, ConsumerGroupRequestHeader(consumer_group="g"), b"x")
        await until(lambda: broker.requests)
        assert broker.requests[0].is_oneway
        assert broker.requests[0].body == b"x"
        instance.oneway(unused_address(), 15)
        await until(lambda: "UPDATE_CONSUMER_OFFSET (15) was not sent" in caplog.text)

    with StubCluster() as cluster:
        with_instance(cluster, scenario)


def test_consumer_ids_are_asked_of_a_broker_of_the_topic() -> None:
    def give_ids(command: RemotingCommand, connection: Connection) -> None:
        body = b'{"consumerIdList":["a@1","b@2"]}'
        connection.send(encode_response(command, 0, body_length=len(body)), body)

    async def scenario(instance: ClientInstance) -> None:
        cluster.brokers[0].default = give_ids
        assert await instance.consumer_ids("g", "t") == ["a@1", "b@2"]
        request = cluster.brokers[0].of(RequestCode.GET_CONSUMER_LIST_BY_GROUP)[0]
        assert request.ext_fields == {"consumerGroup": "g"}
        cluster.brokers[0].default = answer(codes.SYSTEM_ERROR, "no consumer for this group")
        with pytest.raises(BrokerError, match="no consumer"):
            await instance.consumer_ids("g", "t")

    with StubCluster(t=1) as cluster:
        with_instance(cluster, scenario)


# Requests of brokers


def test_brokers_are_answered() -> None:
    async def scenario(instance: ClientInstance) -> None:
        consumer, other = Consumer(), Consumer()
        instance.register_consumer("g", consumer)
        instance.register_consumer("h", other)
        instance.handle(
            307, lambda command, connection: connection.send(encode_response(command, 0))
        )
        broker = cluster.brokers[0]
        await instance.request(broker.address, 1)
        (to_client,) = broker.server.connections

        async def ask() -> None:
            to_client.oneway(40, ConsumerGroupRequestHeader(consumer_group="g"))
            assert (await to_client.call(307, timeout_ms=5000)).code == 0
            refused = await to_client.call(220, timeout_ms=5000)
            assert refused.code == codes.REQUEST_CODE_NOT_SUPPORTED
            to_client.oneway(39)

        await asyncio.to_thread(cluster.run, ask())
        await until(lambda: consumer.notices == 1)
        assert other.notices == 0

    with StubCluster() as cluster:
        with_instance(cluster, scenario, rebalance_min_interval_ms=1)


def test_unsupported_requests_have_their_error_class() -> None:
    async def scenario(instance: ClientInstance) -> None:
        cluster.brokers[0].default = answer(codes.REQUEST_CODE_NOT_SUPPORTED)
        with pytest.raises(RequestNotSupportedError):
            await instance.request(cluster.brokers[0].address, 361)

    with StubCluster() as cluster:
        with_instance(cluster, scenario)


# The consumers' clocks


def test_consumers_are_rebalanced_and_persisted_from_time_to_time() -> None:
    async def scenario(instance: ClientInstance) -> None:
        consumer, failing = Consumer(), Consumer()
        failing.error = ValueError("on purpose")
        instance.register_consumer("failing", failing)
        instance.register_consumer("g", consumer)
        assert instance.consumer("g") is consumer
        await until(lambda: consumer.rebalances >= 3 and consumer.persists >= 3)
        assert failing.rebalances >= 3

    with StubCluster() as cluster:
        with_instance(
            cluster,
            scenario,
            rebalance_interval_ms=5,
            rebalance_min_interval_ms=1,
            persist_offset_delay_ms=1,
            persist_offset_interval_ms=5,
        )


def test_a_rebalance_that_did_not_succeed_is_tried_again_soon() -> None:
    async def scenario(instance: ClientInstance) -> None:
        consumer = Consumer()
        consumer.balanced = False
        instance.register_consumer("g", consumer)
        instance.rebalance_immediately()
        await until(lambda: consumer.rebalances >= 3)
        consumer.balanced = True

    with StubCluster() as cluster:
        with_instance(cluster, scenario, rebalance_min_interval_ms=1)
