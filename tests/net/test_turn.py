"""What many connections bring in one turn of the loop is settled once, before any is answered."""

from __future__ import annotations

import asyncio
import logging
import select
import socket
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.net import turn as turn_module
from orbitmq.net.busy_poll import BusyPoll
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.net.turn import Turn
from orbitmq.wire.command import RemotingCommand, encode_request, encode_response
from orbitmq.wire.frames import FIRST_BUFFER
from tests.net.raw import connect, read_commands

both_loops = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


class Desk:
    """A server whose requests wait until the turn is settled; ``events`` has what it did."""

    def __init__(self, *, busy_poll: bool) -> None:
        self.events: list[str] = []
        self._waiting: list[tuple[Connection, RemotingCommand]] = []
        self.turn = Turn(self._settle, busy_poll=busy_poll)
        self.server = Server(
            self._take, on_tick_end=lambda: self.events.append("tick"), turn=self.turn
        )

    def _take(self, command: RemotingCommand, connection: Connection) -> None:
        self._waiting.append((connection, command))

    def _settle(self) -> None:
        self.events.append("settle")
        for connection, command in self._waiting:
            connection.send(encode_response(command, 0))
        self._waiting = []


def with_desk(
    scenario: Callable[[Desk], Awaitable[None]], loop: str = "asyncio", *, busy_poll: bool = False
) -> None:
    async def main() -> None:
        desk = Desk(busy_poll=busy_poll)
        await desk.server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(30):
                await scenario(desk)
        finally:
            await desk.server.close()

    with asyncio.Runner(loop_factory=pytest.importorskip(loop).new_event_loop) as runner:
        runner.run(main())


def wait_until_readable(server: Server, peers: list[socket.socket]) -> None:
    """Wait, without the loop, until a server has something to read from each of its peers."""
    ports = {peer.getsockname()[1] for peer in peers}
    poll = select.poll()
    left = {
        connection._transport.get_extra_info("socket").fileno()
        for connection in server.connections
        if int(connection.peer.rpartition(":")[2]) in ports
    }
    for descriptor in left:
        poll.register(descriptor, select.POLLIN)
    while left:
        for descriptor, _ in poll.poll(10_000):
            left.discard(descriptor)
            poll.unregister(descriptor)


def ask(peer: socket.socket, *opaques: int) -> None:
    """Send requests, at once."""
    peer.send(b"".join(encode_request(7, opaque) for opaque in opaques))


@both_loops
def test_connections_read_in_one_turn_are_settled_once(loop: str) -> None:
    async def scenario(desk: Desk) -> None:
        peers = [await connect(desk.server) for _ in range(20)]
        for n in range(3):
            desk.events.clear()
            for peer in peers:
                ask(peer, *range(n, n + 5))
            wait_until_readable(desk.server, peers)
            for peer in peers:
                answers = await read_commands(peer, 5)
                assert [each.opaque for each in answers] == list(range(n, n + 5))
            assert desk.events == ["tick"] * len(peers) + ["settle"]
        for peer in peers:
            peer.close()

    with_desk(scenario, loop)


@both_loops
def test_one_connection_alone_is_answered_at_once(loop: str) -> None:
    async def scenario(desk: Desk) -> None:
        peer = await connect(desk.server)
        for n in range(10):
            ask(peer, n)
            (answer,) = await read_commands(peer, 1)
            assert answer.opaque == n
        assert desk.events == ["tick", "settle"] * 10
        peer.close()

    with_desk(scenario, loop)


@both_loops
def test_who_is_looked_for_is_answered_the_same(loop: str) -> None:
    async def scenario(desk: Desk) -> None:
        peers = [await connect(desk.server) for _ in range(2)]
        for turn in range(50):
            for peer in peers if turn % 5 == 0 else peers[:1]:
                ask(peer, turn)
                (answer,) = await read_commands(peer, 1)
                assert answer.opaque == turn
        assert desk.events == ["tick", "settle"] * 60
        for peer in peers:
            peer.close()

    with_desk(scenario, loop, busy_poll=True)


def test_only_one_who_is_alone_again_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[None] = []
    monkeypatch.setattr(BusyPoll, "turn_ended", lambda _: ended.append(None))

    def scenario() -> None:
        waits = False
        turn = Turn(lambda: waits, busy_poll=True)
        one, other = [].clear, [1].clear
        for flushes, polls in (
            ([one], 0), ([one], 1), ([one], 2), ([other], 2), ([other], 3),
            ([one, other], 3), ([one], 3), ([one], 4),
        ):  # fmt: skip
            for flush in flushes:
                turn.join(flush)
            turn.end()
            assert len(ended) == polls
        waits = True
        turn.join(one)
        turn.end()
        assert len(ended) == polls

    in_a_loop(scenario)


@both_loops
def test_who_asks_and_says_no_more_is_answered(loop: str) -> None:
    """Even where uvloop reads the end at once, as it does behind a read that filled the buffer."""

    async def scenario(desk: Desk) -> None:
        peer = await connect(desk.server)
        empty = encode_request(7, 1)
        peer.send(encode_request(7, 1, None, bytes(FIRST_BUFFER - len(empty))))
        peer.shutdown(socket.SHUT_WR)
        wait_until_readable(desk.server, [peer])
        (answer,) = await read_commands(peer, 1)
        assert answer.opaque == 1
        assert await asyncio.get_running_loop().sock_recv(peer, 1) == b""
        peer.close()

    with_desk(scenario, loop)


@both_loops
def test_a_server_that_closes_answers_first(loop: str) -> None:
    async def scenario(desk: Desk) -> None:
        peers = [await connect(desk.server) for _ in range(3)]
        for peer in peers:
            ask(peer, 1)
        wait_until_readable(desk.server, peers)
        handled = asyncio.Event()
        for connection in desk.server.connections:
            connection._on_tick_end = handled.set  # in the turn, before it ends
        await handled.wait()
        await desk.server.close()
        for peer in peers:
            (answer,) = await read_commands(peer, 1)
            assert answer.opaque == 1
            peer.close()

    with_desk(scenario, loop)


def test_garbage_costs_nobody_else_of_the_turn_an_answer() -> None:
    async def scenario(desk: Desk) -> None:
        bad, good = await connect(desk.server), await connect(desk.server)
        bad.send(encode_request(7, 1) + b"GET / HTTP/1.1\r\n\r\n")
        ask(good, 2)
        wait_until_readable(desk.server, [bad, good])
        (answer,) = await read_commands(good, 1)
        assert answer.opaque == 2
        assert await asyncio.get_running_loop().sock_recv(bad, 1) == b""
        bad.close()
        good.close()

    with_desk(scenario)


def in_a_loop(scenario: Callable[[], None]) -> None:
    async def main() -> None:
        scenario()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(main())


def test_a_turn_that_received_much_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turn_module, "MOST_BYTES", 100)
    done: list[str] = []

    def scenario() -> None:
        turn = Turn(lambda: done.append("settled"))
        turn.join(lambda: done.append("a"), 60)
        assert not done
        turn.join(lambda: done.append("b"), 60)
        assert done == ["settled", "a", "b"]
        turn.join(lambda: done.append("c"), 60)

    in_a_loop(scenario)
    assert done == ["settled", "a", "b", "settled", "c"]


def test_what_settling_sends_leaves_in_the_same_turn() -> None:
    done: list[str] = []

    def scenario() -> None:
        turn = Turn(lambda: turn.join(lambda: done.append("held")))
        turn.join(lambda: done.append("asked"), 1)
        turn.end()
        assert done == ["asked", "held"]
        turn.join(lambda: done.append("next"), 1)

    in_a_loop(scenario)
    assert done == ["asked", "held", "next", "held"]


def test_one_failure_costs_the_others_nothing(caplog: pytest.LogCaptureFixture) -> None:
    done: list[str] = []
    reasons = iter(["no store", "no peer"])

    def fail() -> None:
        raise OSError(next(reasons))

    def scenario() -> None:
        turn = Turn(fail)
        turn.join(fail)
        turn.join(lambda: done.append("sent"))

    with caplog.at_level(logging.ERROR, "orbitmq.net"):
        in_a_loop(scenario)
    assert done == ["sent"]
    assert "OSError: no store" in caplog.text
    assert "OSError: no peer" in caplog.text
