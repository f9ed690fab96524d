"""Connections ask and answer, time out, write once a tick and fail their waiters."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orbitmq.errors import ConfigError, ConnectionLostError, NetworkError, RequestTimeoutError
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.wire.command import RemotingCommand, encode_request, encode_response
from orbitmq.wire.frames import FrameDecoder

LONG = 10_000


def echo(command: RemotingCommand, connection: Connection) -> None:
    head = encode_response(command, 0, command.ext_fields, body_length=len(command.body))
    connection.send(head, command.body)


def silent(command: RemotingCommand, connection: Connection) -> None:
    """Take a request and never answer."""


async def connect(server: Server, **options: Any) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(
        lambda: Connection(options.pop("on_request", silent), **options), server.host, server.port
    )
    return connection


def with_server(
    on_request: Callable[[RemotingCommand, Connection], None],
    scenario: Callable[[Server], Awaitable[None]],
    **options: Any,
) -> None:
    async def main() -> None:
        server = Server(on_request, **options)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(20):
                await scenario(server)
        finally:
            await server.close()

    asyncio.run(main())


def test_many_requests_in_flight_get_their_own_answers() -> None:
    async def scenario(server: Server) -> None:
        connection = await connect(server)
        answers = await asyncio.gather(
            *(
                connection.call(7, {"n": str(n)}, b"x" * n, timeout_ms=LONG)
                for n in range(0, 2000, 7)
            )
        )
        got = [(answer.ext_fields["n"], len(answer.body)) for answer in answers]
        assert got == [(str(n), n) for n in range(0, 2000, 7)]
        connection.close()

    with_server(echo, scenario)


def test_large_bodies_cross_both_ways() -> None:
    async def scenario(server: Server) -> None:
        connection = await connect(server)
        body = bytes(range(256)) * 16_000
        answer = await connection.call(7, None, body, timeout_ms=LONG)
        assert answer.body == body
        connection.close()

    with_server(echo, scenario)


def test_one_tick_runs_once_for_all_frames_of_a_read_and_writes_once() -> None:
    ticks: list[int] = []
    seen: list[int] = []

    def count(command: RemotingCommand, connection: Connection) -> None:
        seen.append(command.opaque)
        echo(command, connection)

    async def scenario(server: Server) -> None:
        connection = await connect(server)
        connection.send(*(encode_request(7, n) for n in range(50)))
        await connection.call(8, timeout_ms=LONG)
        assert seen[:50] == list(range(50))
        assert sum(ticks) >= 51
        assert len(ticks) <= 3
        connection.close()

    with_server(count, scenario, on_tick_end=lambda: ticks.append(len(seen) - sum(ticks)))


def test_an_unanswered_request_times_out_and_the_connection_lives_on() -> None:
    async def scenario(server: Server) -> None:
        connection = await connect(server)
        with pytest.raises(RequestTimeoutError, match=server.address):
            await connection.call(7, timeout_ms=1)
        assert not connection.closed
        connection.close()

    with_server(silent, scenario)


def test_waiters_fail_when_the_connection_is_lost() -> None:
    def hang_up(command: RemotingCommand, connection: Connection) -> None:
        connection.close()

    async def scenario(server: Server) -> None:
        closed = asyncio.Event()
        connection = await connect(server, on_closed=lambda *_: closed.set())
        with pytest.raises(ConnectionLostError, match=server.address):
            await connection.call(7, timeout_ms=LONG)
        await closed.wait()
        assert connection.closed
        late: list[RemotingCommand | NetworkError] = []
        connection.request(7, timeout_ms=LONG, on_done=late.append)
        assert isinstance(late[0], ConnectionLostError)

    with_server(hang_up, scenario)


def test_the_server_can_ask_the_client() -> None:
    async def scenario(server: Server) -> None:
        connection = await connect(server, on_request=echo)
        await connection.call(7, timeout_ms=LONG)
        (accepted,) = server.connections
        answer = await accepted.call(40, {"consumerGroup": "g"}, timeout_ms=LONG)
        assert answer.ext_fields == {"consumerGroup": "g"}
        connection.close()

    with_server(echo, scenario)


def test_garbage_closes_that_connection_only(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(server: Server) -> None:
        good = await connect(server)
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
        answer = await good.call(7, {"still": "here"}, timeout_ms=LONG)
        assert answer.ext_fields == {"still": "here"}
        good.close()

    with caplog.at_level(logging.WARNING, "orbitmq.net"):
        with_server(echo, scenario)
    assert "remoting protocol" in caplog.text


def test_a_peer_that_does_not_read_is_not_read_from_either() -> None:
    handled = 0

    def big_answer(command: RemotingCommand, connection: Connection) -> None:
        nonlocal handled
        handled += 1
        connection.send(encode_response(command, 0, body_length=1 << 20), bytes(1 << 20))

    async def scenario(server: Server) -> None:
        _, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
        for n in range(400):
            writer.write(encode_request(7, n, None, bytes(60_000)))
        other = await connect(server)
        await other.call(7, timeout_ms=LONG)
        await other.call(7, timeout_ms=LONG)
        assert handled < 100
        other.close()
        writer.transport.abort()

    with_server(big_answer, scenario)


def test_closing_a_server_does_not_wait_for_a_peer_that_does_not_read() -> None:
    answered = asyncio.Event()

    def huge_answer(command: RemotingCommand, connection: Connection) -> None:
        connection.send(encode_response(command, 0, body_length=64 << 20), bytes(64 << 20))
        answered.set()

    async def scenario(server: Server) -> None:
        _, writer = await asyncio.open_connection(server.host, server.port, limit=1024)
        writer.write(encode_request(7, 1))
        await answered.wait()
        await server.close()
        assert not server.connections
        writer.transport.abort()

    with_server(huge_answer, scenario)


def test_a_port_in_use_is_named_with_the_remedy() -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(ConfigError, match=rf"port={server.port}.*0 takes any free one"):
            await Server(echo).start("127.0.0.1", server.port)
        with pytest.raises(ConfigError, match="70000"):
            await Server(echo).start("127.0.0.1", 70000)

    with_server(echo, scenario)


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_what_came_while_this_process_stood_still_is_no_time_out(loop: str) -> None:
    """As a laptop does that sleeps, or code that keeps the interpreter's lock."""
    factory = pytest.importorskip(loop).new_event_loop
    answered = threading.Event()

    def answer(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            (request,) = FrameDecoder().feed(peer.recv(65536))
            peer.sendall(encode_response(request, 0))
            answered.set()
            assert peer.recv(1) == b"", "the connection was given up"

    async def main(address: tuple[str, int]) -> None:
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: Connection(silent), *address
        )
        asking = asyncio.create_task(connection.call(7, timeout_ms=100))
        await asyncio.sleep(0)  # it is asked ...
        await asyncio.sleep(0)  # ... and sent
        assert answered.wait(10)
        time.sleep(0.5)  # noqa: ASYNC251 - the loop stands still beyond the time-out
        assert (await asking).code == 0
        connection.close()

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        ThreadPoolExecutor(1) as threads,
        asyncio.Runner(loop_factory=factory) as runner,
    ):
        answering = threads.submit(answer, listener)
        runner.run(main(listener.getsockname()))
        answering.result(10)
