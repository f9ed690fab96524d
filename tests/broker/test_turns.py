"""All that one turn of the broker's loop brings is written at once, and answered after that."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from orbitmq import codes
from orbitmq.codes import RequestCode
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.wire.command import encode_request
from tests.broker.remote import Client, Running, bodies, running, send_header
from tests.net.raw import connect, read_commands
from tests.net.test_turn import wait_until_readable
from tests.store.support import FullDisk


def with_peers(
    store: Path,
    scenario: Callable[[Running, Client, list[socket.socket], Server], Awaitable[None]],
    **settings: Any,
) -> None:
    """Run a scenario with a new broker, a client that made the topic T, and plain sockets."""

    async def main() -> None:
        async with running(store, **settings) as node:
            client = await node.connect()
            assert (await client.send("T", b"first")).code == codes.SUCCESS
            server = node.node.server._server
            peers = [await connect(server) for _ in range(8)]
            await scenario(node, client, peers, server)
            for peer in peers:
                peer.close()

    asyncio.run(main())


def sends(peer: int, count: int) -> bytes:
    return b"".join(
        encode_request(RequestCode.SEND_MESSAGE_V2, n, send_header("T"), b"%d-%d" % (peer, n))
        for n in range(count)
    )


def send_at_once(peers: list[socket.socket], server: Server) -> None:
    """Have every peer send five messages, all to be read in one turn of the loop."""
    for number, peer in enumerate(peers):
        peer.send(sends(number, 5))
    wait_until_readable(server, peers)


def test_connections_of_a_turn_share_one_write(tmp_path: Path) -> None:
    async def scenario(
        node: Running, client: Client, peers: list[socket.socket], server: Server
    ) -> None:
        writes: list[int] = []
        node.broker.store.add_write_listener(lambda written: writes.append(written.messages))
        send_at_once(peers, server)
        offsets = []
        for peer in peers:
            answers = await read_commands(peer, 5)
            assert [answer.opaque for answer in answers] == list(range(5))
            assert {answer.code for answer in answers} == {codes.SUCCESS}
            mine = [int(answer.ext_fields["queueOffset"]) for answer in answers]
            assert mine == sorted(mine)
            offsets += mine
        assert writes == [40]
        assert sorted(offsets) == list(range(1, 41))
        stored = bodies(await client.pull("T", max_msg_nums=64))
        assert sorted(stored[1:]) == sorted(b"%d-%d" % (p, n) for p in range(8) for n in range(5))

    with_peers(tmp_path, scenario)


def test_a_flush_lets_all_of_them_go(tmp_path: Path) -> None:
    async def scenario(
        node: Running, client: Client, peers: list[socket.socket], server: Server
    ) -> None:
        for _ in range(3):
            send_at_once(peers, server)
            for peer in peers:
                answers = await read_commands(peer, 5)
                assert [answer.opaque for answer in answers] == list(range(5))
        store = node.broker.store
        assert store.flushed_physical_offset == store.max_physical_offset

    config = StoreConfig(
        mapped_file_size=1 << 20, consume_queue_units=1000, flush_mode=FlushMode.SYNC
    )
    with_peers(tmp_path, scenario, store_config=config)


def test_a_turn_that_cannot_be_written_is_refused_whole(tmp_path: Path) -> None:
    disk = FullDisk()

    async def scenario(
        node: Running, client: Client, peers: list[socket.socket], server: Server
    ) -> None:
        disk.room = 0
        send_at_once(peers, server)
        for peer in peers:
            answers = await read_commands(peer, 5)
            assert [answer.opaque for answer in answers] == list(range(5))
            assert {answer.code for answer in answers} == {codes.SERVICE_NOT_AVAILABLE}
        disk.room = None
        assert (await client.send("T", b"second")).ext_fields["queueOffset"] == "1"
        assert bodies(await client.pull("T")) == [b"first", b"second"]

    with_peers(tmp_path, scenario, file_ops=disk)


def feed(connection: Connection, data: bytes) -> None:
    """Have a connection read ``data``, now."""
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def test_what_is_due_meanwhile_is_no_part_of_it(tmp_path: Path) -> None:
    """A delivery that fails between a send and its answer takes back no more than its own."""
    disk = FullDisk()

    async def scenario(
        node: Running, client: Client, peers: list[socket.socket], server: Server
    ) -> None:
        await client.send("T", b"delayed", properties={"DELAY": "1"})
        port = peers[0].getsockname()[1]
        (connection,) = (c for c in server.connections if c.peer.endswith(f":{port}"))
        node.clock.advance(2_000)
        disk.room = 0
        feed(connection, sends(0, 1))
        node.node.server.run_due()
        (answer,) = await read_commands(peers[0], 1)
        assert answer.code == codes.SERVICE_NOT_AVAILABLE
        disk.room = None
        node.advance(2_000)
        assert bodies(await client.pull("T")) == [b"first", b"delayed"]

    with_peers(tmp_path, scenario, file_ops=disk)
