"""A broker that registers at a name server of another process, instead of running one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, MessageQueue, Producer, codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.node import Node
from orbitmq.codes import RequestCode
from orbitmq.errors import ConfigError
from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.routes import BrokerId, RouteTable
from orbitmq.nameserver.server import NameServer
from orbitmq.testing.wait import wait_until
from orbitmq.wire.bodies import QueueData, TopicConfig
from orbitmq.wire.registration import RegisterBrokerBody
from tests.broker.remote import connect
from tests.net.seen import Seen
from tests.waiting import until


def brokers_of(routes: RouteTable, topic: str) -> set[str]:
    route = routes.route(topic)
    return {queues.broker_name for queues in route.queue_datas} if route else set()


def test_two_brokers_under_one_name_server_share_a_topic() -> None:
    with (
        EmbeddedBroker() as first,
        EmbeddedBroker(name_server=first.name_server, broker_name="broker-b") as second,
        Producer("makers", name_server=first.name_server) as producer,
        LitePullConsumer(
            "takers", name_server=second.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
        ) as consumer,
    ):
        assert second.name_server == first.name_server
        for _ in range(16):  # in turn to the queues that both brokers create
            producer.send(Message("shared", b"x"))
        consumer.subscribe("shared")
        got: list[MessageQueue] = []
        while len(got) < 16:
            got += [message.message_queue for message in consumer.poll(5)]
        assert {queue.broker_name for queue in got} == {"broker-a", "broker-b"}


def test_who_closes_is_no_longer_found() -> None:
    with EmbeddedBroker() as first:
        with EmbeddedBroker(name_server=first.name_server, broker_name="broker-b"):
            assert set(first.call(lambda node: node.routes.clusters()).broker_addr_table) == {
                "broker-a",
                "broker-b",
            }
        assert set(first.call(lambda node: node.routes.clusters()).broker_addr_table) == {
            "broker-a"
        }


@asynccontextmanager
async def joined(name_server: str) -> AsyncIterator[Node]:
    node = Node(BrokerConfig(port=0, name_server=name_server))
    await node.start()
    try:
        yield node
    finally:
        await node.close()


def test_a_name_server_that_comes_back_is_told_again() -> None:
    async def main() -> None:
        routes = RouteTable()
        server = NameServer(routes=routes)
        await server.start("127.0.0.1", 0)
        port = server.port
        async with joined(f"127.0.0.1:{port}") as node:
            assert brokers_of(routes, "TBW102") == {"broker-a"}
            await server.close()
            again = RouteTable()
            server = NameServer(routes=again)
            await server.start("127.0.0.1", port)
            await asyncio.to_thread(wait_until, lambda: brokers_of(again, "TBW102"))
            node.broker.topics.create_by_sending("new", "TBW102", 4, 0)
            await asyncio.to_thread(wait_until, lambda: brokers_of(again, "new"))
        await server.close()

    asyncio.run(main())


def registrations(requests: list[Seen]) -> list[set[str]]:
    """The topics of each registration so far."""
    return [
        set(RegisterBrokerBody.decode(body).topic_config_serialize_wrapper.topic_config_table)
        for body in (bytes(seen.command.body) for seen in requests)
        if body
    ]


def test_name_servers_are_told_of_what_changed_alone(requests: list[Seen]) -> None:
    async def main() -> None:
        routes = RouteTable()
        server = NameServer(routes=routes)
        await server.start("127.0.0.1", 0)
        async with joined(f"127.0.0.1:{server.port}") as node:
            for name in ("one", "two"):
                node.broker.topics.create_by_sending(name, "TBW102", 4, 0)
                await until(lambda name=name: brokers_of(routes, name), "the topic told")  # type: ignore[misc]
            assert brokers_of(routes, "TBW102") == {"broker-a"}
        await server.close()

    asyncio.run(main())
    everything, *changes = registrations(requests)
    assert "TBW102" in everything
    assert changes == [{"one"}, {"two"}]


def test_a_name_server_that_forgot_the_broker_is_told_all_at_once(requests: list[Seen]) -> None:
    async def main() -> None:
        routes = RouteTable()
        server = NameServer(routes=routes)
        await server.start("127.0.0.1", 0)
        async with joined(f"127.0.0.1:{server.port}") as node:
            routes.unregister(BrokerId("DefaultCluster", node.address), "broker-a")
            node.broker.topics.create_by_sending("new", "TBW102", 4, 0)
            await until(lambda: brokers_of(routes, "TBW102"), "everything told")
            assert brokers_of(routes, "new") == {"broker-a"}
        await server.close()

    asyncio.run(main())
    assert [len(topics) > 1 for topics in registrations(requests)] == [True, False, True]


def test_one_of_two_name_servers_may_be_missing(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        routes = RouteTable()
        server = NameServer(routes=routes)
        await server.start("127.0.0.1", 0)
        async with joined(f"127.0.0.1:1; 127.0.0.1:{server.port}"):
            assert brokers_of(routes, "TBW102") == {"broker-a"}
        await server.close()

    with caplog.at_level(logging.WARNING, "orbitmq.broker"):
        asyncio.run(main())
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        "not registered at name server 127.0.0.1:1"
    ]


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(ConfigError, match="name_server='elsewhere'"):
        BrokerConfig(name_server="elsewhere")


def test_changed_topics_are_told_one_by_one_where_that_is_set() -> None:
    config = NameServerConfig(delete_topic_with_broker_registration=True)
    with (
        EmbeddedBroker(name_server_config=config) as first,
        EmbeddedBroker(
            name_server=first.name_server, broker_name="broker-b", enable_single_topic_register=True
        ) as second,
    ):
        before = first.call(lambda node: node.routes.topics().topic_list)

        def topics() -> frozenset[str]:
            return first.call(lambda node: node.routes.topics().topic_list)

        second.call(lambda node: node.broker.topics.put(TopicConfig("T", 3, 2)))
        wait_until(lambda: "T" in topics())
        second.call(lambda node: node.broker.topics.put(TopicConfig("U", 3, 2)))
        wait_until(lambda: "U" in topics())
        assert topics() == before | {"T", "U"}  # none was taken for all there are
        route = first.call(lambda node: node.routes.route("T"))
        assert route is not None
        assert route.queue_datas == [QueueData("broker-b", 3, 2, 6)]


def test_a_broker_learns_of_ordered_topics_when_it_registers() -> None:
    async def put(name_server: str) -> None:
        client = await connect(name_server)
        header = {"namespace": "ORDER_TOPIC_CONFIG", "key": "T", "value": "broker-b:1"}
        assert (await client.call(RequestCode.PUT_KV_CONFIG, header)).code == codes.SUCCESS
        client.close()

    with EmbeddedBroker() as first:
        asyncio.run(put(first.name_server))
        with EmbeddedBroker(name_server=first.name_server, broker_name="broker-b") as second:
            second.call(lambda node: node.broker.topics.put(TopicConfig("T", 1, 1)))
            wait_until(lambda: second.call(lambda node: node.broker.topics.topics["T"].order))
