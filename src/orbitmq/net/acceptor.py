"""Accepting on a port that speaks TLS, or TLS and the plain protocol: the first byte tells which.

As HandshakeHandler of Java's NettyRemotingServer. The byte is looked at and left in the socket,
so that whoever serves the connection finds it whole.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable

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


class TlsAcceptor:
    """Accepts connections on ``listener``, which it closes, for protocols of ``new_protocol``.

    Made and used on its loop. Raises ConfigError when the certificate cannot be used.
    """

    def __init__(
        self,
        listener: socket.socket,
        new_protocol: Callable[[], asyncio.BaseProtocol],
        tls: ServerTls,
    ) -> None:
        self._context = tls.context()
        self._enforcing = tls.mode is TlsMode.ENFORCING
        self._listener = listener
        self._new_protocol = new_protocol
        self._loop = asyncio.get_running_loop()
        self._undecided: dict[socket.socket, str] = {}  # who sent nothing yet, with its address
        self._handshakes: set[asyncio.Task[None]] = set()
        self._loop.add_reader(listener, self._accept)

    async def close(self) -> None:
        """Accept no more; connections that are being made end."""
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for connection in list(self._undecided):
            self._drop(connection)
        handshakes = list(self._handshakes)
        for handshake in handshakes:
            handshake.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)

    def _accept(self) -> None:
        try:
            connection, address = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:  # too many open files: waiting may help
            log.warning("accepting is paused for %g s: %s", _PAUSE_SECONDS, error)
            self._loop.remove_reader(self._listener)
            self._loop.call_later(_PAUSE_SECONDS, self._accept_again)
            return
        connection.setblocking(False)
        self._undecided[connection] = f"{address[0]}:{address[1]}"
        self._loop.add_reader(connection, self._look, connection)

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
        peer = self._undecided[connection]
        if not first:
            self._drop(connection)
        elif first != HANDSHAKE_BYTE and self._enforcing:
            log.warning("%s is refused, as it does not use TLS: give it use_tls=True", peer)
            self._drop(connection)
        else:
            del self._undecided[connection]
            self._loop.remove_reader(connection)
            task = self._loop.create_task(self._serve(connection, peer, first == HANDSHAKE_BYTE))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _serve(self, connection: socket.socket, peer: str, secure: bool) -> None:
        try:
            if secure:
                await self._loop.connect_accepted_socket(
                    self._new_protocol,
                    connection,
                    ssl=self._context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS,
                    ssl_shutdown_timeout=SHUTDOWN_SECONDS,
                )
            else:
                await self._loop.connect_accepted_socket(self._new_protocol, connection)
        except OSError as error:
            log.info("%s made no connection: %s", peer, describe_failure(error))
            connection.close()

    def _drop(self, connection: socket.socket) -> None:
        del self._undecided[connection]
        self._loop.remove_reader(connection)
        connection.close()
