"""The broker inside a process: its life, its settings, and what stops it from starting."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.node import Node
from orbitmq.errors import ClientStateError, ConfigError, StoreLockedError
from orbitmq.testing.clock import ManualClock
from tests.broker.remote import SMALL_STORE, Client, bodies, running


def ask(broker: EmbeddedBroker, body: bytes = b"") -> list[bytes]:
    """Send ``body``, if any, from a loop of this thread, and read the queue."""

    async def main() -> list[bytes]:
        from orbitmq.net.connection import Connection

        host, port = broker.address.split(":")
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(lambda *_: None), host, int(port)
        )
        client = Client(connection, [])
        if body:
            await client.send("T", body)
        answer = await client.pull("T")
        client.close()
        return bodies(answer)

    return asyncio.run(main())


def test_it_serves_while_the_block_runs_and_leaves_nothing_behind() -> None:
    threads = threading.active_count()
    with EmbeddedBroker() as broker:
        assert broker.name_server.startswith("127.0.0.1:")
        assert ask(broker, b"hello") == [b"hello"]
        store = broker.store
        assert (store / "commitlog").is_dir()
    assert not store.exists()
    assert threading.active_count() == threads
    with pytest.raises(ClientStateError, match="does not run"):
        _ = broker.name_server


def test_a_given_directory_keeps_its_messages(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "store", store_config=SMALL_STORE) as broker:
        ask(broker, b"kept")
        assert broker.store == tmp_path / "store"
    with EmbeddedBroker(str(tmp_path / "store"), store_config=SMALL_STORE) as broker:
        assert ask(broker) == [b"kept"]


def test_it_may_be_started_and_closed_by_hand_and_again() -> None:
    broker = EmbeddedBroker()
    broker.start()
    with pytest.raises(ClientStateError, match="runs already"):
        broker.start()
    broker.close()
    broker.close()
    with broker:
        assert broker.call(lambda node: node.address) == broker.address


def test_settings_are_those_of_the_broker_and_checked() -> None:
    with EmbeddedBroker(broker_name="b", cluster_name="c", auto_create_topics=False) as broker:
        assert broker.call(lambda node: node.routes.clusters().cluster_addr_table) == {
            "c": frozenset({"b"})
        }
    with pytest.raises(ConfigError, match="broker_name='a b'"):
        EmbeddedBroker(broker_name="a b")


def test_a_store_in_use_and_a_port_in_use_are_named(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path, store_config=SMALL_STORE) as first:
        with pytest.raises(StoreLockedError, match=r"another broker.*directory of its own"):
            EmbeddedBroker(tmp_path).start()
        port = int(first.address.split(":")[1])
        with pytest.raises(ConfigError, match=f"port={port}.*choose another port"):
            EmbeddedBroker(port=port).start()
        port = int(first.name_server.split(":")[1])
        other = EmbeddedBroker(tmp_path / "other", name_server_port=port, store_config=SMALL_STORE)
        with pytest.raises(ConfigError, match=f"port={port}"):
            other.start()
    with other:  # what it had opened before was given back
        assert ask(other, b"x") == [b"x"]


def test_a_moved_clock_moves_the_broker() -> None:
    clock = ManualClock()
    with EmbeddedBroker(clock=clock) as broker:
        start = clock.now_ms()
        assert broker.call(lambda node: node.broker.now_ms()) == 0
        clock.advance(5_000)
        broker.run_due()
        assert broker.call(lambda node: node.broker.clock.now_ms()) == start + 5_000


@pytest.mark.parametrize(
    "settings",
    [
        {"port": -1},
        {"name_server_port": 65_536},
        {"port": 9876, "name_server_port": 9876},
        {"host": ""},
        {"host": "a b"},
        {"broker_name": ""},
        {"cluster_name": "a/b"},
        {"default_topic_queues": 0},
        {"max_pull_count": 0},
        {"max_pull_bytes": 1 << 30},
        {"client_timeout_ms": 0},
    ],
)
def test_settings_that_cannot_be_are_named(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        BrokerConfig(**settings)  # type: ignore[arg-type]


def test_hosts_are_advertised_as_numbers() -> None:
    async def main() -> None:
        async with running(host="localhost") as node:
            assert node.node.address.startswith("127.0.0.1:")
        async with running(host="0.0.0.0") as node:
            host = node.node.address.rsplit(":", 1)[0]
            assert host != "0.0.0.0"
            assert socket.inet_aton(host)
        async with running(host="0.0.0.0", advertised_host="10.1.2.3") as node:
            assert node.node.name_server.startswith("10.1.2.3:")
            assert node.broker.store_host[:4] == bytes([10, 1, 2, 3])
        async with running(advertised_host="localhost") as node:
            assert node.node.name_server.startswith("localhost:")
            assert node.broker.store_host[:4] == bytes([127, 0, 0, 1])

    asyncio.run(main())


def test_a_host_that_is_not_this_machine_is_refused() -> None:
    async def main(host: str) -> None:
        with pytest.raises(ConfigError, match=f"host='{host}'"):
            await Node(BrokerConfig(host=host, port=0, name_server_port=0)).start()

    asyncio.run(main("192.0.2.7"))
    asyncio.run(main("no.such.host.invalid"))


def test_ipv6_works_where_the_machine_has_it() -> None:
    async def main() -> None:
        async with running(host="::1") as node:
            assert node.node.address.startswith("[::1]:")
            assert len(node.broker.store_host) == 20

    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no IPv6 loopback address")
    asyncio.run(main())
