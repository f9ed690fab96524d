"""Peers that speak over a plain socket, and read only when told to."""

from __future__ import annotations

import asyncio
import socket

from orbitmq.net.server import Server
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.frames import FrameDecoder
from tests.waiting import until


async def connect(server: Server, *, receive_buffer: int = 1 << 16) -> socket.socket:
    """A socket that ``server`` has accepted, with a receive buffer of that size."""
    before = len(server.connections)
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, (server.host, server.port))
    await until(lambda: len(server.connections) > before, "the connection")
    return peer


async def read_commands(peer: socket.socket, count: int) -> list[RemotingCommand]:
    """The next ``count`` commands that ``peer`` is sent."""
    loop, decoder = asyncio.get_running_loop(), FrameDecoder()
    commands: list[RemotingCommand] = []
    while len(commands) < count:
        data = await loop.sock_recv(peer, 1 << 16)
        assert data, "the connection ended"
        commands += decoder.feed(data)
    return commands
