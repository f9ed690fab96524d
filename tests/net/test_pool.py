"""The connection pool: one connection an address, callers in order, errors that say what to do."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import closing
from typing import Any

import pytest

from orbitmq.errors import ConnectError, ConnectionLostError, NetworkError
from orbitmq.net.connection import Connection
from orbitmq.net.pool import ConnectionPool
from orbitmq.net.server import Server
from orbitmq.wire.command import RemotingCommand, encode_response


def echo(command: RemotingCommand, connection: Connection) -> None:
    connection.send(encode_response(command, 0))


def ignore(command: RemotingCommand, connection: Connection) -> None:
    """Leave a request unanswered."""


def with_pool(
    scenario: Callable[[Server, ConnectionPool], Awaitable[None]], **options: Any
) -> None:
    async def main() -> None:
        server = Server(echo)
        await server.start("127.0.0.1", 0)
        pool = ConnectionPool(ignore, **options)
        try:
            async with asyncio.timeout(20):
                await scenario(server, pool)
        finally:
            await pool.close()
            await server.close()

    asyncio.run(main())


def unused_address() -> str:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def test_all_who_want_an_address_share_one_connection() -> None:
    async def scenario(server: Server, pool: ConnectionPool) -> None:
        assert pool.idle(server.address) is None
        connections = await asyncio.gather(*(pool.connect(server.address) for _ in range(5)))
        assert len(set(connections)) == 1
        assert pool.idle(server.address) is connections[0]
        assert await pool.connect(server.address) is connections[0]
        answer = await connections[0].call(1, timeout_ms=5000)
        assert answer.code == 0
        assert len(server.connections) == 1

    with_pool(scenario)


def test_those_who_waited_come_first_and_in_order() -> None:
    async def scenario(server: Server, pool: ConnectionPool) -> None:
        order: list[object] = []
        pool.acquire(server.address, lambda _: order.append(1))
        pool.acquire(server.address, lambda _: order.append(pool.idle(server.address) is not None))
        await pool.connect(server.address)
        pool.acquire(server.address, lambda _: order.append(3))
        assert order == [1, True, 3]

    with_pool(scenario)


def test_each_new_connection_is_announced() -> None:
    announced: list[str] = []

    async def scenario(server: Server, pool: ConnectionPool) -> None:
        first = await pool.connect(server.address)
        first.close()
        assert pool.idle(server.address) is None
        assert await pool.connect(server.address) is not first
        await asyncio.sleep(0)
        assert announced == [server.address, server.address]

    with_pool(scenario, on_connected=lambda address, _: announced.append(address))


def test_a_connection_the_server_closed_is_made_anew() -> None:
    async def scenario(server: Server, pool: ConnectionPool) -> None:
        first = await pool.connect(server.address)
        await first.call(1, timeout_ms=5000)
        for connection in server.connections:
            connection.close()
        with pytest.raises(ConnectionLostError):
            await first.call(1, timeout_ms=5000)
        assert (await (await pool.connect(server.address)).call(1, timeout_ms=5000)).code == 0

    with_pool(scenario)


def test_a_refused_connection_names_the_address_and_what_to_do() -> None:
    async def scenario(_: Server, pool: ConnectionPool) -> None:
        address = unused_address()
        with pytest.raises(ConnectError, match="check the address") as raised:
            await pool.connect(address)
        assert address in str(raised.value)
        assert raised.value.address == address

    with_pool(scenario)


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:port", "127.0.0.1:99999999"])
def test_an_address_that_is_none_is_a_connect_error(address: str) -> None:
    async def scenario(_: Server, pool: ConnectionPool) -> None:
        with pytest.raises(ConnectError, match=address):
            await pool.connect(address)

    with_pool(scenario)


async def never(*_: object, **__: object) -> Any:
    await asyncio.Future()


def test_a_peer_that_does_not_react_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Server, pool: ConnectionPool) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        with pytest.raises(ConnectError, match="within 30 ms"):
            await pool.connect(server.address)

    with_pool(scenario, connect_timeout_ms=30)


def test_a_caller_may_give_up_before_the_attempt_does(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(server: Server, pool: ConnectionPool) -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
        patient: list[Connection | NetworkError] = []
        pool.acquire(server.address, patient.append)
        with pytest.raises(ConnectError, match="within 10 ms"):
            await pool.connect(server.address, timeout_ms=10)
        assert not patient
        await pool.close()
        assert isinstance(patient[0], ConnectError)

    with_pool(scenario)


def test_a_closed_pool_connects_no_more() -> None:
    async def scenario(server: Server, pool: ConnectionPool) -> None:
        connection = await pool.connect(server.address)
        await pool.close()
        assert connection.closed
        with pytest.raises(ConnectError, match="client is closed"):
            await pool.connect(server.address)

    with_pool(scenario)


def test_a_peer_that_hung_up_at_once_has_no_name() -> None:
    class Transport(asyncio.Transport):
        def get_extra_info(self, name: str, default: Any = None) -> Any:
            return default

    async def main() -> None:
        connection = Connection(ignore)
        connection.connection_made(Transport())
        assert connection.peer == "an unknown peer"
        assert connection.peer_host == bytes(8)

    asyncio.run(main())
