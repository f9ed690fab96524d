"""Connections on which nothing happens end, and hold little while they wait for that."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls
from orbitmq.wire.command import RemotingCommand, encode_request, encode_response
from tests.net.certificates import Certificates
from tests.net.raw import connect, read_commands
from tests.waiting import until

MINUTE = 60_000


def echo(command: RemotingCommand, connection: Connection) -> None:
    connection.send(encode_response(command, 0, body_length=len(command.body)), command.body)


def with_server(
    scenario: Callable[[Server], Awaitable[None]], tls: ServerTls | None = None
) -> None:
    async def main() -> None:
        server = Server(echo, tls=tls, idle_ms=2 * MINUTE)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await scenario(server)
        finally:
            await server.close()

    asyncio.run(main())


async def ask(peer: socket.socket, body: bytes = b"") -> None:
    await asyncio.get_running_loop().sock_sendall(peer, encode_request(7, 1, None, body))
    (answer,) = await read_commands(peer, 1)
    assert answer.body == body


def test_a_connection_ends_when_nothing_happened_for_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.net")

    async def scenario(server: Server) -> None:
        silent = await connect(server)
        asks, is_told = await connect(server), await connect(server)
        (told,) = (c for c in server.connections if c.peer.endswith(f":{is_told.getsockname()[1]}"))
        server.sweep(0)
        for minute in (1, 2):
            await ask(asks)
            told.send(encode_request(40, minute, oneway=True))  # as a group's members are told
            await read_commands(is_told, 1)
            server.sweep(minute * MINUTE)
        assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
        await until(lambda: len(server.connections) == 2, "the end of the silent one")
        assert "neither sent nor read anything for 120000 ms: hanging up" in caplog.text
        await ask(asks)
        for peer in (silent, asks, is_told):
            peer.close()

    with_server(scenario)


def test_an_idle_connection_gives_its_buffer_back() -> None:
    async def scenario(server: Server) -> None:
        peer = await connect(server)
        (connection,) = server.connections
        await ask(peer, bytes(500_000))
        server.sweep(0)
        assert len(connection.get_buffer(-1)) > 8 * 1024
        server.sweep(1)
        assert len(connection.get_buffer(-1)) == 8 * 1024
        await ask(peer, bytes(500_000))
        peer.close()

    with_server(scenario)


def test_who_never_says_whether_it_speaks_tls_is_hung_up_on(certificates: Certificates) -> None:
    tls = ServerTls(cert_file=certificates.cert, key_file=certificates.key)

    async def scenario(server: Server) -> None:
        loop = asyncio.get_running_loop()
        silent, late = socket.socket(), socket.socket()
        for peer in (silent, late):
            peer.setblocking(False)
            await loop.sock_connect(peer, (server.host, server.port))
        acceptor = server._acceptor
        assert acceptor is not None
        await until(lambda: len(acceptor._undecided) == 2, "the connections")
        server.sweep(0)
        server.sweep(2 * MINUTE - 1)
        await ask(late)
        server.sweep(2 * MINUTE)
        assert await loop.sock_recv(silent, 1) == b""
        await ask(late)
        silent.close()
        late.close()

    with_server(scenario, tls)
