"""A listening socket whose connections are served on the running loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

from orbitmq.errors import ConfigError
from orbitmq.net.acceptor import Acceptor
from orbitmq.net.connection import Connection, RequestHandler
from orbitmq.net.receiving import Receiving
from orbitmq.net.tls import ServerTls, TlsMode
from orbitmq.net.turn import Turn
from orbitmq.wire.frames import FRAME_LIMIT

log = logging.getLogger("orbitmq.net")

IDLE_MS: Final = 120_000
"""How long a connection may be idle (NettyServerConfig.serverChannelMaxIdleTimeSeconds)."""
_BACKLOG = 1024
_GRACE_SECONDS = 1.0


class Server:
    """Accepts connections and gives their requests to ``on_request``.

    ``on_tick_end`` runs after the commands of each read; what is sent leaves then, or at the end of
    ``turn``, which servers may share. ``on_connected`` and ``on_closed`` follow the life of each
    connection. ``connections`` holds the open ones. ``tls`` has it speak TLS too, or only.
    :meth:`sweep`, called now and then, ends those that are idle for ``idle_ms``, which may be
    changed, as may ``max_connections``, 0 for as many as there can be, and ``receiving``, which
    bounds the memory of frames being received and may be shared by servers.
    """

    def __init__(
        self,
        on_request: RequestHandler,
        *,
        on_tick_end: Callable[[], None] | None = None,
        on_connected: Callable[[Connection], None] | None = None,
        on_closed: Callable[[Connection, Exception | None], None] | None = None,
        frame_limit: int = FRAME_LIMIT,
        tls: ServerTls | None = None,
        idle_ms: int = IDLE_MS,
        turn: Turn | None = None,
    ) -> None:
        self.connections: set[Connection] = set()
        self.host = ""
        self.port = 0
        self._on_request = on_request
        self._on_tick_end = on_tick_end
        self._turn = turn
        self._on_connected = on_connected
        self._on_closed = on_closed
        self._frame_limit = frame_limit
        self._tls = None if tls is None or tls.mode is TlsMode.DISABLED else tls
        self.idle_ms = idle_ms
        self.max_connections = 0
        self.receiving = Receiving()
        self._acceptor: Acceptor | None = None
        self._deserted = asyncio.Event()
        self._deserted.set()

    @property
    def address(self) -> str:
        """``host:port`` as clients reach it."""
        return f"{self.host}:{self.port}"

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host:port``; port 0 takes any free one, found in ``port`` afterwards.

        Raises ConfigError when the address cannot be listened on.
        """
        await self.serve(listen(host, port))

    async def serve(self, listener: socket.socket) -> None:
        """As :meth:`start`, on a socket from :func:`listen`, which this server closes."""
        self._acceptor = Acceptor(
            listener, self._new_connection, self._tls, lambda: self.max_connections
        )
        self.host, self.port = listener.getsockname()[:2]

    def sweep(self, now_ms: int) -> None:
        """Hang up on idle connections: on those, too, that leave their answers unread.

        As Java's IdleStateHandler, which takes no notice of pulls that are held.
        """
        for connection in list(self.connections):
            idle_ms = connection.idle_ms(now_ms)
            if idle_ms >= self.idle_ms:
                log.info(
                    "%s neither sent nor read anything for %d ms: hanging up",
                    connection.peer, idle_ms,
                )  # fmt: skip
                connection.abort()
        if self._acceptor is not None:
            self._acceptor.sweep(now_ms, self.idle_ms)

    async def close(self) -> None:
        """Stop listening and close every connection once what was sent to it is written.

        A peer that does not read that within a second is cut off.
        """
        if self._acceptor is not None:
            await self._acceptor.close()
            self._acceptor = None
        if self._turn is not None:
            self._turn.end()
        for connection in list(self.connections):
            connection.close()
        try:
            await asyncio.wait_for(self._deserted.wait(), _GRACE_SECONDS)
        except TimeoutError:
            for connection in list(self.connections):
                connection.abort()
            await self._deserted.wait()

    def _new_connection(self) -> Connection:
        connection = Connection(
            self._on_request,
            on_tick_end=self._on_tick_end,
            on_connected=self._connected,
            on_closed=self._closed,
            frame_limit=self._frame_limit,
            serving=True,
        )
        connection.receiving = self.receiving
        connection.turn = self._turn
        return connection

    def _connected(self, connection: Connection) -> None:
        self.connections.add(connection)
        self._deserted.clear()
        if self._on_connected:
            self._on_connected(connection)

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        self.connections.discard(connection)
        if self._acceptor is not None:
            self._acceptor.left()
        if not self.connections:
            self._deserted.set()
        if self._on_closed:
            self._on_closed(connection, error)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on ``host:port``; port 0 takes any free one.

    For those who must know the port before they can serve: clients that come early wait. Raises
    ConfigError when the address cannot be listened on.
    """
    if not 0 <= port <= 65535:  # the resolver would take it modulo 65536
        raise ConfigError("port", port, "a port is a number from 0 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        return _bound(*found[0])
    except OSError as error:
        raise _listen_error(error, host, port) from error


def _bound(family: int, kind: int, protocol: int, _name: str, address: Any) -> socket.socket:
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    _LISTENERS.add(listener)
    return listener


_LISTENERS: Final[WeakSet[socket.socket]] = WeakSet()


def _leave_ports() -> None:
    """Have a forked child not keep its parent's ports, where it would accept nobody.

    Nothing takes the descriptors' places: the child's copies of their owners may close them.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for listener in _LISTENERS:
        if listener.fileno() >= 0:
            os.dup2(nothing, listener.fileno(), inheritable=False)
    os.close(nothing)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_ports)


def _listen_error(error: OSError, host: str, port: int) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            "port",
            port,
            f"another program listens on {host}:{port}; stop it, or choose another port "
            "(0 takes any free one)",
        )
    if error.errno == errno.EACCES:
        return ConfigError("port", port, f"this user may not listen on {host}:{port}; use >= 1024")
    return ConfigError(
        "host", host, f"{host}:{port} cannot be listened on: {error.strerror or error}"
    )
