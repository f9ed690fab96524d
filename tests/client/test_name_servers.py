"""Which name servers a client asks: given, changed at run time, or named by an address server."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from orbitmq.aio.producer import AsyncProducer
from orbitmq.client.address_server import AddressServer, fetch_name_servers
from orbitmq.client.config import ClientConfig, make_config
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import ClientStateError, ConfigError, ConnectError
from tests.client.stub_cluster import StubCluster, silence
from tests.client.test_instance import config, with_instance
from tests.net.test_pool import unused_address
from tests.waiting import until


class Page(HTTPServer):
    """An address server: one page, whose text a test sets; and the paths it was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _PageHandler)
        self.text = ""
        self.status = 200
        self.paths: list[str] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/rocketmq/nsaddr"


class _PageHandler(BaseHTTPRequestHandler):
    server: Page

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        body = self.server.text.encode()
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Say nothing."""


@contextmanager
def address_page() -> Iterator[Page]:
    with Page() as page:
        thread = threading.Thread(target=page.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield page
        finally:
            page.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.delenv("NAMESRV_DOMAIN", raising=False)


# Changed at run time


def test_other_name_servers_are_asked_from_now_on() -> None:
    async def scenario(instance: ClientInstance) -> None:
        await instance.fetch_route("t")
        before = old.name_server.server.connections
        assert len(before) == 1
        instance.update_name_server_address([new.address])
        await until(lambda: not before)
        assert (await instance.fetch_route("t")).queue_datas[0].read_queue_nums == 7
        assert len(old.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
        assert instance.name_servers.addresses == new.address

    with StubCluster(t=1) as old, StubCluster(t=7) as new:
        with_instance(old, scenario)


def test_the_same_name_servers_in_another_order_change_nothing() -> None:
    async def scenario(instance: ClientInstance) -> None:
        await instance.fetch_route("t")
        instance.update_name_server_address(f"{cluster.address}; {other}")
        (connection,) = cluster.name_server.server.connections
        await instance.fetch_route("t")
        assert set(cluster.name_server.server.connections) == {connection}

    other = unused_address()
    with StubCluster(t=1) as cluster:
        with_instance(cluster, scenario, name_server=f"{other};{cluster.address}")


def test_name_servers_may_change_while_one_is_asked() -> None:
    async def scenario(instance: ClientInstance) -> None:
        fetch = asyncio.create_task(instance.fetch_route("t"))
        await until(lambda: hanging.name_server.of(RequestCode.GET_ROUTEINFO_BY_TOPIC))
        instance.update_name_server_address(cluster.address)
        with pytest.raises(ConnectError, match=hanging.address):
            await fetch
        assert (await instance.fetch_route("t")).queue_datas

    with StubCluster() as hanging, StubCluster(t=1) as cluster:
        hanging.name_server.default = silence
        with_instance(hanging, scenario)


def test_what_is_no_address_changes_nothing() -> None:
    async def scenario(instance: ClientInstance) -> None:
        for addresses in ("", "nonsense", ["ns:9876", "x:y"]):
            with pytest.raises(ConfigError, match="name_server"):
                instance.update_name_server_address(addresses)
        assert (await instance.fetch_route("t")).queue_datas

    with StubCluster(t=1) as cluster:
        with_instance(cluster, scenario)


def test_a_running_producer_moves_to_another_cluster() -> None:
    with EmbeddedBroker() as first, EmbeddedBroker() as second:
        producer = Producer("g", name_server=first.name_server)
        with pytest.raises(ClientStateError, match="start"):
            producer.update_name_server_address(second.name_server)
        with producer:
            producer.send(Message("before", b"x"))
            producer.update_name_server_address([second.name_server])
            result = producer.send(Message("after", b"x"))
            assert result.queue_offset == 0
            topics = second.call(lambda node: set(node.broker.topics.topics))
            assert "after" in topics
            assert "before" not in topics


def test_a_running_producer_of_a_loop_moves_too() -> None:
    async def main() -> None:
        async with AsyncProducer("g", name_server=unused_address()) as producer:
            await producer.update_name_server_address(broker.name_server)
            await producer.send(Message("t", b"x"))

    with EmbeddedBroker() as broker:
        asyncio.run(main())


# An address server


def test_an_address_server_names_the_name_servers() -> None:
    with EmbeddedBroker() as broker, address_page() as page:
        page.text = f"\r\n{broker.name_server}\r\nmore, which does not count\n"
        with Producer("g", address_server=page.url, unit_name="unit") as producer:
            producer.send(Message("t", b"x"))
        assert page.paths == ["/rocketmq/nsaddr-unit?nofix=1"]


def test_an_address_server_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedBroker() as broker, address_page() as page:
        page.text = broker.name_server
        monkeypatch.setenv("NAMESRV_DOMAIN", page.address)
        with Producer("g") as producer:
            producer.send(Message("t", b"x"))
        assert page.paths == ["/rocketmq/nsaddr"]
        monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
        with Producer("g") as producer:
            producer.send(Message("t", b"x"))
        assert len(page.paths) == 1, "who is given name servers asks nobody"


def test_an_address_server_is_asked_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(instance: ClientInstance) -> None:
        polls = AddressServer(page.url, instance.name_servers, first_poll_ms=5, poll_interval_ms=10)
        page.text = first.address
        polling = asyncio.create_task(polls.run())
        await until(lambda: len(page.paths) >= 3)
        assert instance.name_servers.addresses == first.address
        page.text = second.address
        await until(lambda: instance.name_servers.addresses == second.address)
        assert (await instance.fetch_route("t")).queue_datas[0].read_queue_nums == 2
        page.status = 500
        await until(lambda: "does not answer" in caplog.text)
        assert instance.name_servers.addresses == second.address, "those known stay"
        polling.cancel()

    with StubCluster(t=1) as first, StubCluster(t=2) as second, address_page() as page:
        with_instance(first, scenario)


def test_until_name_servers_are_known_whoever_asks_waits_and_hears_why() -> None:
    async def main() -> None:
        settings = {"address_server": page.url, "api_timeout_ms": 300}
        instance = await ClientInstance.obtain(make_config(ClientConfig, settings))
        with pytest.raises(ConnectError, match=f"no name server is known: .*{page.address}"):
            await instance.fetch_route("t")
        instance.update_name_server_address(cluster.address)
        assert (await instance.fetch_route("t")).queue_datas
        await instance.release()

    with StubCluster(t=1) as cluster, address_page() as page:
        asyncio.run(main())


def test_a_page_that_names_nothing_is_shown() -> None:
    with address_page() as page:
        for text in ("", "<html>", "host"):
            page.text = text
            with pytest.raises(ConnectError, match="names no name servers") as raised:
                fetch_name_servers(page.url)
            assert raised.value.address == page.url
        page.text = "ns1:9876;ns2:9876"
        assert fetch_name_servers(page.url) == ("ns1:9876", "ns2:9876")
    with pytest.raises(ConnectError, match="does not answer"):
        fetch_name_servers(page.url)


def test_the_start_says_who_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "orbitmq.client")

    async def main() -> None:
        instance = await ClientInstance.obtain(
            make_config(ClientConfig, {"address_server": page.url})
        )
        await instance.release()

    with address_page() as page:
        asyncio.run(main())
        assert f"asked for at {page.url}" in caplog.text


# As given


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("ns:9876", ("ns:9876",)),
        (" ns1:9876 ; ns2:9876;", ("ns1:9876", "ns2:9876")),
        ("http://MQ_INST_1_x.eu.example.com:80", ("MQ_INST_1_x.eu.example.com:80",)),
        ("[::1]:9876", ("[::1]:9876",)),
    ],
)
def test_the_forms_of_an_address(given: str, addresses: tuple[str, ...]) -> None:
    assert config(given).name_servers == addresses


def test_without_any_the_error_says_how_to_give_one() -> None:
    with pytest.raises(ConfigError, match=r"NAMESRV_ADDR.*address_server"):
        make_config(ClientConfig, {})
    with pytest.raises(ConfigError, match="address_server='a/b'"):
        make_config(ClientConfig, {"address_server": "a/b"})
