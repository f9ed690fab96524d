"""Who waits for an answer is looked after when the time comes, and costs nothing before."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.errors import RequestTimeoutError
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.wire.command import RemotingCommand, encode_response
from tests.waiting import until

LONG = 3_600_000


def with_connection(
    scenario: Callable[[Connection, Server], Awaitable[None]],
) -> None:
    """Run a scenario with a connection to a server that answers code 1, and nothing else."""

    def on_request(command: RemotingCommand, connection: Connection) -> None:
        if command.code == 1:
            connection.send(encode_response(command, 0))

    async def main() -> None:
        server = Server(on_request)
        await server.start("127.0.0.1", 0)
        try:
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(lambda *_: None), server.host, server.port
            )
            async with asyncio.timeout(30):
                await scenario(connection, server)
            connection.close()
        finally:
            await server.close()

    asyncio.run(main())


def next_look(connection: Connection) -> float:
    """In how many seconds those who wait are looked over."""
    assert connection._sweep is not None
    return connection._sweep.when() - asyncio.get_running_loop().time()


def ignore(answer: object) -> None:
    """Take an outcome."""


def test_held_pulls_are_not_looked_at_before_their_time() -> None:
    async def scenario(connection: Connection, server: Server) -> None:
        for _ in range(10_000):
            connection.request(7, timeout_ms=LONG, on_done=ignore)
        assert next_look(connection) > LONG / 1000 - 60
        await connection.call(1, timeout_ms=LONG)
        assert next_look(connection) > LONG / 1000 - 60

    with_connection(scenario)


def test_a_shorter_time_out_comes_before_longer_ones() -> None:
    async def scenario(connection: Connection, server: Server) -> None:
        outcomes: list[object] = []
        connection.request(7, timeout_ms=LONG, on_done=outcomes.append)
        for timeout_ms in (60, 1, 30):
            connection.request(7, timeout_ms=timeout_ms, on_done=outcomes.append)
        await until(lambda: len(outcomes) == 3)
        texts = [str(outcome).rpartition("within ")[2] for outcome in outcomes]
        assert sorted(texts) == ["1 ms", "30 ms", "60 ms"]
        assert all(isinstance(outcome, RequestTimeoutError) for outcome in outcomes)
        assert next_look(connection) > LONG / 1000 - 60  # the one that still waits
        outcomes.clear()
        connection.request(7, timeout_ms=1, on_done=outcomes.append)  # after a look, too
        await until(lambda: outcomes)

    with_connection(scenario)


@pytest.mark.parametrize("waits", [False, True])
def test_who_is_done_with_closes_once_it_is_answered(*, waits: bool) -> None:
    async def scenario(connection: Connection, server: Server) -> None:
        connection.request(7, timeout_ms=LONG, on_done=ignore)
        if not waits:
            (opaque,) = connection._waiters
            (accepted,) = server.connections
            accepted.send(encode_response(RemotingCommand(opaque=opaque), 0))
            await until(lambda: not connection._waiters)
        connection.retire()
        if waits:
            await connection.call(1, timeout_ms=LONG)
            assert not connection.closed
            (opaque,) = connection._waiters
            (accepted,) = server.connections
            accepted.send(encode_response(RemotingCommand(opaque=opaque), 0))
        await until(lambda: connection.closed)

    with_connection(scenario)
