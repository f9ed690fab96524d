"""Accepting on a port: as many connections as leave descriptors for the store, with TLS or without.

On a port that speaks TLS too, the first byte tells which it is, as in HandshakeHandler of Java's
NettyRemotingServer: it is looked at and left in the socket, so that whoever serves the connection
finds it whole.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from orbitmq import descriptors
from orbitmq.net.burst import Burst
from orbitmq.net.tls import (
    HANDSHAKE_BYTE,
    HANDSHAKE_SECONDS,
    SHUTDOWN_SECONDS,
    ServerTls,
    TlsMode,
    describe_failure,
)

log = logging.getLogger("orbitmq.net")

_PAUSE_SECONDS = 1.0
_ACCEPTED_AT_ONCE = 64


class Acceptor:
    """Accepts connections on ``listener``, which it closes, for protocols of ``new_protocol``.

    ``most`` says how many may be open at a time, 0: as many as there can be; whoever owns them says
    by :meth:`left` when one has ended.

    Made and used on its loop. Raises ConfigError when the certificate cannot be used.
    """

    def __init__(
        self,
        listener: socket.socket,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls | None,
        most: Callable[[], int] = lambda: 0,
    ) -> None:
        self._context = None if tls is None else tls.context()
        self._enforcing = tls is not None and tls.mode is TlsMode.ENFORCING
        self._listener = listener
        self._new_protocol = new_protocol
        self._loop = asyncio.get_running_loop()
        # Who sent nothing yet, with its address and since when a sweep knows it.
        self._undecided: dict[socket.socket, tuple[str, int | None]] = {}
        self._making: set[asyncio.Task[None]] = set()
        self._most = most
        self._open = 0
        self._burst = Burst(log, self._loop.time)
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Accept no more; connections that are being made end."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._undecided):
            self._drop(connection)
        making = list(self._making)
        for task in making:
            task.cancel()
        await asyncio.gather(*making, return_exceptions=True)

    def left(self) -> None:
        """A connection that was made has ended."""
        self._open -= 1

    def sweep(self, now_ms: int, idle_ms: int) -> None:
        """Hang up on those who have not sent a first byte for ``idle_ms``."""
        for connection, (peer, since_ms) in list(self._undecided.items()):
            if since_ms is None:
                self._undecided[connection] = peer, now_ms
            elif now_ms - since_ms >= idle_ms:
                log.info("%s sent nothing for %d ms: hanging up", peer, now_ms - since_ms)
                self._drop(connection)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many open files: waiting may help
                self._complain(f"accepting pauses for {_PAUSE_SECONDS:g} s: {error}")
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_PAUSE_SECONDS, self._accept_again)
                return
            self._take(connection, f"{address[0]}:{address[1]}")

    def _take(self, connection: socket.socket, peer: str) -> None:
        # The lowest free number is given, so all below it are in use, by whomever.
        if connection.fileno() >= descriptors.limit() - descriptors.reserve():
            connection.close()
            self._complain(f"{peer} is refused")
            return
        most = self._most()
        if most and self._open >= most:
            connection.close()
            self._burst.tell(
                "%s is refused: %d connections are open, which is the most (maxConnections): raise "
                "the limit, or connect fewer clients", peer, self._open,
            )  # fmt: skip
            return
        self._open += 1
        connection.setblocking(False)
        if self._context is None:
            self._make(connection, peer, secure=False)
        else:
            self._undecided[connection] = peer, None
            self._loop.add_reader(connection, self._look, connection)

    def _complain(self, what: str) -> None:
        """Say that descriptors are short."""
        self._burst.tell(
            "%s: this process may have %d files and connections open, and keeps %d of them for the "
            "store's files; raise the limit (ulimit -n, LimitNOFILE), or connect fewer clients",
            what, descriptors.limit(), descriptors.reserve(),
        )  # fmt: skip

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener, self._accept)

    def _look(self, connection: socket.socket) -> None:
        """Decide by the first byte."""
        try:
            first = connection.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        peer, _ = self._undecided[connection]
        if not first:
            self._drop(connection)
        elif first != HANDSHAKE_BYTE and self._enforcing:
            log.warning("%s is refused, as it does not use TLS: give it use_tls=True", peer)
            self._drop(connection)
        else:
            self._forget(connection)
            self._make(connection, peer, secure=first == HANDSHAKE_BYTE)

    def _make(self, connection: socket.socket, peer: str, *, secure: bool) -> None:
        context = self._context if secure else None
        task = self._loop.create_task(self._serve(connection, context))
        self._making.add(task)
        task.add_done_callback(partial(self._made, connection, peer))

    async def _serve(self, connection: socket.socket, context: ssl.SSLContext | None) -> None:
        await self._loop.connect_accepted_socket(
            self._new_protocol,
            connection,
            ssl=context,
            ssl_handshake_timeout=None if context is None else HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=None if context is None else SHUTDOWN_SECONDS,
        )

    def _made(self, connection: socket.socket, peer: str, task: asyncio.Task[None]) -> None:
        self._making.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, OSError):
            log.info("%s made no connection: %s", peer, describe_failure(error))
        elif error is not None:
            log.error("%s made no connection", peer, exc_info=error)
        if error is not None or task.cancelled():
            self._open -= 1
            connection.close()

    def _drop(self, connection: socket.socket) -> None:
        self._forget(connection)
        self._open -= 1
        connection.close()

    def _forget(self, connection: socket.socket) -> None:
        """Look no more at what an undecided connection sends."""
        del self._undecided[connection]
        self._loop.remove_reader(connection)
