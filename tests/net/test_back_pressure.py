"""What a peer does not read: it waits uncopied, in order, and not for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.wire.command import RemotingCommand, encode_request, encode_response
from orbitmq.wire.frames import FrameDecoder
from tests.net.raw import connect, read_commands
from tests.waiting import until

SIZE = 1 << 20
LOG = memoryview(bytes(range(256)) * (SIZE // 256 * 2))
"""As the mapping of a commit log that answers are slices of."""
SECOND = 1_000

Scenario = Callable[[Server], Awaitable[None]]

both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def with_server(scenario: Scenario, loop: str = "asyncio", idle_ms: int = 60 * SECOND) -> None:
    async def main() -> None:
        server = Server(answer, idle_ms=idle_ms)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await scenario(server)
        finally:
            await server.close()

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        runner.run(main())


def answer(command: RemotingCommand, connection: Connection) -> None:
    """As many bytes as the request's code says; a megabyte as two slices, the rest as bytes."""
    size = command.code
    head = encode_response(command, 0, body_length=size)
    if size == SIZE:
        connection.send(head, LOG[5 : 5 + SIZE // 2], LOG[: SIZE // 2])
    else:
        connection.send(head, bytes(size))


def pull(connection: Connection, size: int, opaque: int) -> None:
    """Answer a request for ``size`` bytes, as if it had been held."""
    (command,) = FrameDecoder().feed(encode_request(size, opaque))
    answer(command, connection)


def held_by_transport(connection: Connection) -> int:
    return connection._transport.get_write_buffer_size()


@both_loops
def test_what_a_peer_does_not_read_is_neither_copied_nor_lost(loop: str) -> None:
    async def scenario(server: Server) -> None:
        peer = await connect(server)
        (connection,) = server.connections
        sizes = [SIZE if number % 3 else number for number in range(60)]
        for number in range(0, len(sizes), 20):
            for n, size in enumerate(sizes[number : number + 20], number):
                pull(connection, size, n)
            await asyncio.sleep(0)
        await until(lambda: connection._congested, "the peer's slowness")
        assert held_by_transport(connection) <= 512 * 1024
        waiting = [piece for piece in connection._out if len(piece) > 64 * 1024]
        assert waiting
        assert all(isinstance(piece, memoryview) and piece.obj is LOG.obj for piece in waiting)
        answers = await read_commands(peer, len(sizes))
        assert [each.opaque for each in answers] == list(range(len(sizes)))
        assert [len(each.body) for each in answers] == sizes
        large = bytes(LOG[5 : 5 + SIZE // 2]) + bytes(LOG[: SIZE // 2])
        assert all(each.body == large for each in answers if len(each.body) == SIZE)
        await until(lambda: not connection._congested, "the end of it")
        await asyncio.get_running_loop().sock_sendall(peer, encode_request(7, 99))
        assert (await read_commands(peer, 1))[0].opaque == 99  # it is read from again
        peer.close()

    with_server(scenario, loop)


@both_loops
def test_closing_writes_what_waits_first(loop: str) -> None:
    async def scenario(server: Server) -> None:
        peer = await connect(server)
        (connection,) = server.connections
        for n in range(20):
            pull(connection, SIZE, n)
        connection.close()
        assert connection.closed
        connection.send(b"never sent")
        answers = await read_commands(peer, 20)
        assert [each.opaque for each in answers] == list(range(20))
        assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
        await until(lambda: not server.connections, "the end of the connection")
        peer.close()

    with_server(scenario, loop)


@pytest.mark.parametrize("is_closing", [False, True])
@both_loops
def test_a_peer_that_leaves_its_answers_unread_is_cut_off(loop: str, is_closing: bool) -> None:
    async def scenario(server: Server) -> None:
        peer = await connect(server)
        (connection,) = server.connections
        for n in range(20):
            pull(connection, SIZE, n)
        await until(lambda: connection._congested, "the peer's slowness")
        if is_closing:
            connection.close()
        server.sweep(0)
        for second in (1, 59):
            pull(connection, SIZE, 1)  # no sign of its life
            await asyncio.sleep(0)
            server.sweep(second * SECOND)
        assert server.connections
        server.sweep(60 * SECOND)
        await until(lambda: not server.connections, "the end of the connection")
        peer.close()

    with_server(scenario, loop)


@both_loops
def test_a_peer_that_reads_slowly_is_left_alone(loop: str) -> None:
    async def scenario(server: Server) -> None:
        peer = await connect(server)
        (connection,) = server.connections
        for n in range(60):
            pull(connection, SIZE, n)
        await until(lambda: connection._congested, "the peer's slowness")
        server.sweep(0)
        for minute in range(1, 10):
            before = held_by_transport(connection), len(connection._out)
            while (held_by_transport(connection), len(connection._out)) == before:
                await asyncio.get_running_loop().sock_recv(peer, 1 << 16)
            server.sweep(minute * 60 * SECOND)
            assert not connection.closed
        assert connection._out
        peer.close()

    with_server(scenario, loop)
