"""One connection an address, made when first wanted and shared by all who want it."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable

from orbitmq.codes import GO_AWAY
from orbitmq.errors import ConnectError, ConnectionLostError, NetworkError
from orbitmq.net.connection import Connection, RequestHandler
from orbitmq.net.tls import SHUTDOWN_SECONDS, describe_failure
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.signing import Fields, RpcHook

log = logging.getLogger("orbitmq.net")

ReadyHandler = Callable[["Connection | NetworkError"], None]

_CLOSE_SECONDS = 2.0


class ConnectionPool:
    """The connections of one client, by ``host:port``.

    ``on_request`` gets the requests of every peer; ``on_connected`` learns of each new connection
    after those who waited for it have used it. ``hook`` is what each request gets besides its own
    fields, ``tls`` has all connections speak TLS. All methods belong to the running loop.
    """

    def __init__(
        self,
        on_request: RequestHandler,
        *,
        connect_timeout_ms: int = 3000,
        on_connected: Callable[[str, Connection], None] | None = None,
        hook: RpcHook | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._on_request = on_request
        self._hook = hook
        self._tls = tls
        self._connect_timeout_ms = connect_timeout_ms
        self._on_connected = on_connected
        self._connections: dict[str, Connection] = {}
        self._open: set[Connection] = set()
        self._waiting: dict[str, list[ReadyHandler]] = {}
        self._attempts: set[asyncio.Task[None]] = set()
        self._closed = False
        self._last_closed: asyncio.Future[None] | None = None

    def idle(self, address: str) -> Connection | None:
        """The connection to ``address`` where there is one already."""
        connection = self._connections.get(address)
        return None if connection is None or connection.closed else connection

    def acquire(self, address: str, on_ready: ReadyHandler) -> None:
        """Call ``on_ready`` with the connection to ``address``, or with the ConnectError.

        At once where there is one, else when an attempt shared by all callers has ended; then
        they are called in the order they came, before anyone else can use the connection.
        """
        connection = self.idle(address)
        if connection is not None:
            on_ready(connection)
        elif self._closed:
            on_ready(ConnectError(f"no connection to {address}: the client is closed", address))
        elif address in self._waiting:
            self._waiting[address].append(on_ready)
        else:
            self._waiting[address] = [on_ready]
            attempt = asyncio.get_running_loop().create_task(self._attempt(address))
            self._attempts.add(attempt)
            attempt.add_done_callback(self._attempts.discard)

    async def connect(self, address: str, *, timeout_ms: int | None = None) -> Connection:
        """The connection to ``address``, as :meth:`acquire`. Raises ConnectError.

        ``timeout_ms`` limits the wait of this caller, not the attempt.
        """
        connection = self.idle(address)
        if connection is not None:
            return connection
        future: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

        def ready(outcome: Connection | NetworkError) -> None:
            if future.done():
                return
            if isinstance(outcome, NetworkError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        self.acquire(address, ready)
        try:
            async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
                return await future
        except TimeoutError:
            raise _too_slow(address, timeout_ms) from None

    async def call(
        self,
        address: str,
        code: int,
        header: Fields = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """The answer of the server at ``address``, whatever its code; raises NetworkError.

        ``timeout_ms`` includes connecting. A server that answers GO_AWAY is asked once more, over
        a new connection.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        answer = await self._call(address, code, header, body, timeout_ms)
        if answer.code == GO_AWAY:
            left_ms = max(1, int((deadline - loop.time()) * 1000))
            answer = await self._call(address, code, header, body, left_ms)
        return answer

    async def _call(
        self, address: str, code: int, header: Fields, body: bytes, timeout_ms: int
    ) -> RemotingCommand:
        connection = self.idle(address)
        if connection is None:
            loop = asyncio.get_running_loop()
            begin = loop.time()
            connection = await self.connect(address, timeout_ms=timeout_ms)
            timeout_ms = max(1, timeout_ms - int((loop.time() - begin) * 1000))
        return await connection.call(code, header, body, timeout_ms=timeout_ms)

    def disconnect(self, address: str) -> None:
        """Close the connection to ``address``, if there is one."""
        connection = self.idle(address)
        if connection is not None:
            connection.close()

    async def close(self) -> None:
        """Close every connection once what was sent is written; end the attempts."""
        self._closed = True
        attempts = list(self._attempts)
        for attempt in attempts:
            attempt.cancel()
        await asyncio.gather(*attempts, return_exceptions=True)
        for connection in list(self._open):
            connection.close()
        if self._open:
            self._last_closed = asyncio.get_running_loop().create_future()
            done, _ = await asyncio.wait([self._last_closed], timeout=_CLOSE_SECONDS)
            if not done:
                peers = ", ".join(connection.peer for connection in self._open)
                log.warning("connections still open %g s after close: %s", _CLOSE_SECONDS, peers)

    async def _attempt(self, address: str) -> None:
        outcome: Connection | NetworkError = ConnectError(
            f"no connection to {address}: the client is closed", address
        )
        try:
            outcome = await self._open_connection(address)
        except ConnectError as error:
            outcome = error
        finally:
            for on_ready in self._waiting.pop(address):
                on_ready(outcome)
        if isinstance(outcome, Connection) and self._on_connected:
            self._on_connected(address, outcome)

    async def _open_connection(self, address: str) -> Connection | NetworkError:
        host, _, port = address.rpartition(":")
        milliseconds = self._connect_timeout_ms
        try:
            async with asyncio.timeout(milliseconds / 1000):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: self._new_connection(address),
                    host.strip("[]"),
                    int(port),
                    ssl=self._tls,
                    ssl_shutdown_timeout=None if self._tls is None else SHUTDOWN_SECONDS,
                )
        except TimeoutError as error:
            raise _too_slow(address, milliseconds) from error
        except (OSError, ValueError, OverflowError, RuntimeError) as error:
            if self._tls is not None and isinstance(error, (ssl.SSLError, ConnectionError)):
                raise ConnectError(
                    f"no connection to {address}: {describe_failure(error)}", address
                ) from error
            raise ConnectError(
                f"no connection to {address}: {_reason(error)}; check the address, and that the "
                "server runs",
                address,
            ) from error
        if connection.closed:
            return ConnectionLostError(f"{address} closed the connection at once", address)
        self._connections[address] = connection
        self._open.add(connection)
        return connection

    def _new_connection(self, address: str) -> Connection:
        def closed(connection: Connection, error: Exception | None) -> None:
            self._open.discard(connection)
            if self._connections.get(address) is connection:
                del self._connections[address]
            if not self._closed:
                log.info("the connection to %s ended: %s", address, error or "closed")
            if not self._open and self._last_closed and not self._last_closed.done():
                self._last_closed.set_result(None)

        def go_away(connection: Connection) -> None:
            """Ask over another connection from now on (NettyRemotingClient.invokeImpl)."""
            if self._connections.get(address) is connection:
                del self._connections[address]
                log.info("%s wants this client to connect anew", address)
                connection.retire()

        return Connection(
            self._on_request,
            on_closed=closed,
            on_go_away=go_away,
            hook=self._hook,
        )


def _reason(error: Exception) -> str:
    """Why, in the same words on every loop."""
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error)


def _too_slow(address: str, timeout_ms: int | None) -> ConnectError:
    return ConnectError(
        f"no connection to {address} within {timeout_ms} ms; check the address, and that no "
        "firewall drops the packets",
        address,
    )
