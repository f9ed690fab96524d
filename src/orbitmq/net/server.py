"""A listening socket whose connections are served on the running loop."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable

from orbitmq.errors import ConfigError
from orbitmq.net.connection import Connection, RequestHandler
from orbitmq.wire.frames import FRAME_LIMIT


class Server:
    """Accepts connections and gives their requests to ``on_request``.

    ``on_tick_end`` runs after the commands of each read; ``on_connected`` and ``on_closed`` follow
    each connection's life. ``connections`` holds the open ones.
    """

    def __init__(
        self,
        on_request: RequestHandler,
        *,
        on_tick_end: Callable[[], None] | None = None,
        on_connected: Callable[[Connection], None] | None = None,
        on_closed: Callable[[Connection, Exception | None], None] | None = None,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        self.connections: set[Connection] = set()
        self.host = ""
        self.port = 0
        self._on_request = on_request
        self._on_tick_end = on_tick_end
        self._on_connected = on_connected
        self._on_closed = on_closed
        self._frame_limit = frame_limit
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """``host:port`` as clients reach it."""
        return f"{self.host}:{self.port}"

    async def start(self, host: str, port: int) -> None:
        """Listen on ``host:port``; port 0 takes any free one, found in ``port`` afterwards.

        Raises ConfigError when the address cannot be listened on.
        """
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(self._new_connection, host, port, backlog=1024)
        except OSError as error:
            raise _listen_error(error, host, port) from error
        except OverflowError as error:
            raise ConfigError("port", port, "a port is a number from 0 to 65535") from error
        self.host = host
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Stop listening and close every connection once what was sent to it is written."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self.connections):
            connection.close()
        await self._server.wait_closed()
        self._server = None

    def _new_connection(self) -> Connection:
        return Connection(
            self._on_request,
            on_tick_end=self._on_tick_end,
            on_connected=self._connected,
            on_closed=self._closed,
            frame_limit=self._frame_limit,
            pause_reading=True,
        )

    def _connected(self, connection: Connection) -> None:
        self.connections.add(connection)
        if self._on_connected:
            self._on_connected(connection)

    def _closed(self, connection: Connection, error: Exception | None) -> None:
        self.connections.discard(connection)
        if self._on_closed:
            self._on_closed(connection, error)


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
