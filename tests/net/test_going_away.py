"""Peers that send us away, and peers that fall silent: the next request finds a new connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.codes import GO_AWAY, RequestCode
from orbitmq.errors import ConnectionLostError, RequestTimeoutError
from orbitmq.net import connection as connection_module
from orbitmq.net.connection import Connection
from orbitmq.net.pool import ConnectionPool
from orbitmq.net.server import Server
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.signing import RpcHook
from tests.net.test_pool import ignore
from tests.waiting import until

HOLD = 900


class Peer:
    """Answers by code: 1 with success, HOLD when told to, others never; or sends us away."""

    def __init__(self) -> None:
        self.sends_away = 0
        self.held: list[Callable[[], None]] = []
        self.requests: list[RemotingCommand] = []
        self.server = Server(self._on_request)

    def _on_request(self, command: RemotingCommand, connection: Connection) -> None:
        self.requests.append(command)
        if command.code == HOLD:
            self.held.append(lambda: connection.send(encode_response(command, 0)))
        elif command.code == 1 and self.sends_away:
            self.sends_away -= 1
            connection.send(encode_response(command, GO_AWAY, remark="shutting down"))
        elif command.code == 1:
            connection.send(encode_response(command, 0))


def with_peer(
    scenario: Callable[[Peer, ConnectionPool], Awaitable[None]], hook: RpcHook | None = None
) -> None:
    async def main() -> None:
        peer = Peer()
        await peer.server.start("127.0.0.1", 0)
        pool = ConnectionPool(ignore, hook=hook)
        try:
            async with asyncio.timeout(20):
                await scenario(peer, pool)
        finally:
            await pool.close()
            await peer.server.close()

    asyncio.run(main())


def test_who_is_sent_away_asks_again_over_a_new_connection() -> None:
    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        address = peer.server.address
        first = await pool.connect(address)
        held = asyncio.create_task(first.call(HOLD, timeout_ms=10_000))
        await until(lambda: peer.held)
        peer.sends_away = 1
        assert (await pool.call(address, 1, timeout_ms=10_000)).code == 0
        assert pool.idle(address) not in {None, first}
        assert not first.closed, "it has not been answered everything yet"
        peer.held[0]()
        assert (await held).code == 0
        await until(lambda: first.closed)
        assert len(peer.server.connections) <= 2

    with_peer(scenario)


def test_an_idle_connection_that_is_sent_away_closes() -> None:
    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        first = await pool.connect(peer.server.address)
        peer.sends_away = 1
        assert (await first.call(1, timeout_ms=10_000)).code == GO_AWAY
        assert pool.idle(peer.server.address) is None
        await until(lambda: first.closed)

    with_peer(scenario)


def test_who_is_sent_away_twice_hears_so() -> None:
    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        peer.sends_away = 2
        assert (await pool.call(peer.server.address, 1, timeout_ms=10_000)).code == GO_AWAY
        assert [command.code for command in peer.requests] == [1, 1]

    with_peer(scenario)


def test_a_request_without_answer_says_what_whom_and_how_long() -> None:
    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        address = peer.server.address
        await pool.connect(address)  # which takes of the time that is left for the answer
        with pytest.raises(RequestTimeoutError) as raised:
            await pool.call(address, RequestCode.HEART_BEAT, timeout_ms=20)
        assert str(raised.value) == f"{address} did not answer HEART_BEAT (34) within 20 ms"
        assert raised.value.address == address
        assert pool.idle(address) is not None, "20 ms are too short to take it for dead"

    with_peer(scenario)


def test_a_peer_that_says_nothing_at_all_is_connected_to_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_SILENCE_MS", 20)

    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        address = peer.server.address
        first = await pool.connect(address)
        waiting = asyncio.create_task(first.call(HOLD, timeout_ms=10_000))
        with pytest.raises(RequestTimeoutError):
            await pool.call(address, RequestCode.HEART_BEAT, timeout_ms=30)
        with pytest.raises(ConnectionLostError, match="HEART_BEAT"):
            await waiting
        assert first.closed
        assert (await pool.call(address, 1, timeout_ms=10_000)).code == 0

    with_peer(scenario)


def test_a_peer_that_answers_others_meanwhile_is_not_dead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_module, "_SILENCE_MS", 20)

    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        connection = await pool.connect(peer.server.address)
        slow = asyncio.create_task(connection.call(RequestCode.HEART_BEAT, timeout_ms=200))
        await until(lambda: peer.requests)
        await connection.call(1, timeout_ms=10_000)
        with pytest.raises(RequestTimeoutError):
            await slow
        assert not connection.closed

    with_peer(scenario)


def test_a_hook_adds_to_every_request() -> None:
    async def scenario(peer: Peer, pool: ConnectionPool) -> None:
        connection = await pool.connect(peer.server.address)
        connection.oneway(2)
        await connection.call(1, {"topic": "t"}, timeout_ms=10_000)
        sent = [command.ext_fields for command in peer.requests]
        assert sent == [{"ReqT": "0"}, {"topic": "t", "ReqT": "0"}]

    with_peer(scenario, RpcHook({"ReqT": "0"}))
