"""One remoting connection over a plain socket, for code that has no event loop: Spark's tasks.

A task asks for large pulls or sends batches and has nothing else to do meanwhile, so a blocking
socket is both the simplest and the fastest way. Several requests may be under way at once; answers
come in the order the peer gives them.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final, TypeAlias

import msgspec

from orbitmq import codes
from orbitmq.errors import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    NetworkError,
    RequestTimeoutError,
    WireError,
    for_code,
)
from orbitmq.net.tls import ClientTls, describe_failure
from orbitmq.wire.command import RemotingCommand, encode_request_head
from orbitmq.wire.frames import FRAME_LIMIT, FrameDecoder
from orbitmq.wire.signing import Credentials, Fields, RpcHook

log = logging.getLogger("orbitmq.net")

CONNECT_TIMEOUT_MS: Final = 3_000
REQUEST_TIMEOUT_MS: Final = 15_000

Body: TypeAlias = bytes | memoryview
"""What follows a request's head; a view has one byte an item."""
_APART: Final = 16 * 1024
"""A body of so many bytes leaves uncopied; a smaller one costs less joined to its head."""


class Access(msgspec.Struct, frozen=True):
    """By whom requests are signed, and how connections are encrypted; None: not at all."""

    credentials: Credentials | None = None
    tls: ClientTls | None = None

    @property
    def access_key(self) -> str | None:
        """The account requests are signed by."""
        return None if self.credentials is None else self.credentials.access_key


OPEN: Final = Access()
"""Neither signed nor encrypted."""


class BlockingConnection:
    """A connection to ``address`` (``host:port``, an IPv6 host in brackets), for one thread.

    Any NetworkError or WireError ends it: ``closed`` is true afterwards. Requests of the peer are
    not served; they are dropped.
    """

    def __init__(
        self,
        address: str,
        *,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        frame_limit: int = FRAME_LIMIT,
        access: Access = OPEN,
    ) -> None:
        self.address = address
        self.access = access
        self._hook = None if access.credentials is None else _hook_of(access.credentials)
        self.closed = False
        self._decoder = FrameDecoder(frame_limit)
        self._ready: deque[RemotingCommand] = deque()
        self._opaque = 0
        self._awaited: set[int] = set()
        host, port = _host_and_port(address)
        try:
            self._socket = socket.create_connection((host, port), connect_timeout_ms / 1000)
        except OSError as error:
            raise ConnectError(
                f"cannot connect to {address}: {error.strerror or error}", address
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if access.tls is not None:
            self._secure(access.tls, host)

    @property
    def outstanding(self) -> int:
        """How many requests still wait for their answer."""
        return len(self._awaited)

    def fileno(self) -> int:
        """The socket's descriptor, for select."""
        return self._socket.fileno()

    def send(self, code: int, header: Fields = None, body: Body = b"") -> int:
        """Send a request; its answer will carry the opaque returned here."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        if self._hook is not None:
            header = self._hook.apply(header, body)
        self._write(encode_request_head(code, opaque, header, len(body)), body)
        self._awaited.add(opaque)
        return opaque

    def oneway(self, code: int, header: Fields = None, body: Body = b"") -> None:
        """Send a request that gets no answer."""
        self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
        if self._hook is not None:
            header = self._hook.apply(header, body)
        self._write(encode_request_head(code, opaque, header, len(body), oneway=True), body)

    def receive(self, timeout_ms: int = REQUEST_TIMEOUT_MS) -> RemotingCommand:
        """The next answer to any request under way, whatever its code."""
        deadline = time.monotonic() + timeout_ms / 1000
        while not self._ready:
            self._read(deadline, timeout_ms)
        return self._ready.popleft()

    def receive_ready(self) -> Iterator[RemotingCommand]:
        """The answers that are here already; does not wait."""
        while True:
            while self._ready:
                yield self._ready.popleft()
            if not self._read_without_waiting():
                return

    def invoke(
        self,
        code: int,
        header: Fields = None,
        body: Body = b"",
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> RemotingCommand:
        """One request and its answer, whatever its code. No other may be under way."""
        self.send(code, header, body)
        return self.receive(timeout_ms)

    def request(
        self,
        code: int,
        header: Fields = None,
        body: Body = b"",
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> RemotingCommand:
        """As :meth:`invoke`; raises the BrokerError of any answer but SUCCESS."""
        return self._success(self.invoke(code, header, body, timeout_ms=timeout_ms))

    def request_all(
        self,
        requests: Iterable[tuple[int, Fields]],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> list[RemotingCommand]:
        """The answers of several requests, sent together, in the order of the requests."""
        every = ((code, header, b"") for code, header in requests)
        return [self._success(answer) for answer in self.exchange(every, timeout_ms=timeout_ms)]

    def exchange(
        self,
        requests: Iterable[tuple[int, Fields, Body]],
        *,
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> list[RemotingCommand]:
        """The answers of several requests with their bodies, whatever the codes, in their order.

        All are written at once, so they should not take more than a megabyte. No other request may
        be under way.
        """
        pieces: list[Body] = []
        opaques = []
        for code, header, body in requests:
            self._opaque = opaque = (self._opaque + 1) & 0x7FFFFFFF
            signed = header if self._hook is None else self._hook.apply(header, body)
            pieces += (encode_request_head(code, opaque, signed, len(body)), body)
            opaques.append(opaque)
        self._write(b"".join(pieces))
        self._awaited.update(opaques)
        answers: dict[int, RemotingCommand] = {}
        while len(answers) < len(opaques):
            answer = self.receive(timeout_ms)
            answers[answer.opaque] = answer
        return [answers[opaque] for opaque in opaques]

    def close(self) -> None:
        """Close the socket; answers under way are lost."""
        self.closed = True
        self._socket.close()

    def _success(self, answer: RemotingCommand) -> RemotingCommand:
        if answer.code != codes.SUCCESS:
            raise for_code(answer.code, answer.remark, self.address, self.access.access_key)
        return answer

    def _write(self, head: bytes, body: Body = b"") -> None:
        if self.closed:
            raise ConnectionLostError(f"the connection to {self.address} is closed", self.address)
        try:
            self._socket.settimeout(REQUEST_TIMEOUT_MS / 1000)
            send_frame(self._socket, head, body)
        except OSError as error:
            self.close()
            raise self._lost(error) from error

    def _read(self, deadline: float, timeout_ms: int) -> None:
        try:
            self._read_once(max(deadline - time.monotonic(), 0.001))
        except TimeoutError as error:
            self.close()
            raise RequestTimeoutError(
                f"{self.address} did not answer within {timeout_ms} ms", self.address
            ) from error

    def _read_without_waiting(self) -> bool:
        """Read what is here already; whether that was anything."""
        try:
            self._read_once(0)
        except (BlockingIOError, ssl.SSLWantReadError):  # with TLS not all that comes is for us
            return False
        return True

    def _read_once(self, timeout: float) -> None:
        if self.closed:
            raise ConnectionLostError(f"the connection to {self.address} is closed", self.address)
        try:
            self._socket.settimeout(timeout)
            count = self._socket.recv_into(self._decoder.get_buffer())
        except (TimeoutError, BlockingIOError, ssl.SSLWantReadError):
            raise
        except OSError as error:
            self.close()
            raise self._lost(error) from error
        if not count:
            self.close()
            raise ConnectionLostError(f"{self.address} closed the connection", self.address)
        for command in self._decoder.received(count):
            self._accept(command)
        if self._decoder.error is not None:
            self.close()
            raise self._decoder.error

    def _accept(self, command: RemotingCommand) -> None:
        if command.is_response and command.opaque in self._awaited:
            self._awaited.discard(command.opaque)
            self._ready.append(command)
        else:
            log.debug("dropped command %d of %s: nobody awaits it", command.code, self.address)

    def _secure(self, tls: ClientTls, host: str) -> None:
        plain = self._socket
        context = _context_of(tls)
        try:
            self._socket = context.wrap_socket(plain, server_hostname=host)
        except OSError as error:
            plain.close()
            raise ConnectError(
                f"cannot connect to {self.address}: {describe_failure(error)}", self.address
            ) from error

    def _lost(self, error: OSError) -> NetworkError:
        return ConnectionLostError(
            f"the connection to {self.address} was lost: {error.strerror or error}", self.address
        )

    def is_alive(self) -> bool:
        """Whether an idle connection can still be used, as far as this side knows."""
        try:
            self._read_without_waiting()
        except (NetworkError, WireError):
            return False
        return True


def send_frame(sock: socket.socket, head: bytes, body: Body) -> None:
    """Send all of both; a large body as it lies there. Raises OSError."""
    if len(body) < _APART:
        sock.sendall(b"".join((head, body)))
        return
    # As much as the kernel takes now; TLS knows no such call.
    sent = 0 if isinstance(sock, ssl.SSLSocket) else sock.sendmsg((head, body))
    if sent < len(head):
        sock.sendall(head[sent:])
        sent = len(head)
    if sent < len(head) + len(body):
        sock.sendall(memoryview(body)[sent - len(head) :])


class ConnectionCache:
    """Idle connections of this process, by address, so that one task's serve the next.

    A connection belongs to one borrower at a time, so the cache may be used from any thread.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, Access], list[BlockingConnection]] = {}

    @contextmanager
    def borrow(self, address: str, access: Access = OPEN) -> Iterator[BlockingConnection]:
        """A connection to ``address`` for the block; closed when the block raises."""
        connection = self.take(address, access)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        self.give_back(connection)

    def take(self, address: str, access: Access = OPEN) -> BlockingConnection:
        """A connection to ``address`` for the caller alone, a kept one if one still lives."""
        idle = self._idle.get((address, access), [])
        while idle:
            connection = idle.pop()
            if connection.is_alive():
                return connection
            connection.close()
        return BlockingConnection(address, access=access)

    def give_back(self, connection: BlockingConnection) -> None:
        """Keep a connection for the next; close it when a request is still unanswered."""
        if connection.outstanding or connection.closed:
            connection.close()
        else:
            self._idle.setdefault((connection.address, connection.access), []).append(connection)

    def close(self) -> None:
        """Close every idle connection."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()


CONNECTIONS: Final = ConnectionCache()
"""The cache of this process. Spark reuses its Python workers, so it outlives a micro-batch."""

if hasattr(os, "register_at_fork"):
    # A child must not speak over its parent's sockets.
    os.register_at_fork(after_in_child=CONNECTIONS.close)


@cache
def _hook_of(credentials: Credentials) -> RpcHook:
    return RpcHook(credentials=credentials)


@cache
def _context_of(tls: ClientTls) -> ssl.SSLContext:
    return tls.context()


def _host_and_port(address: str) -> tuple[str, int]:
    host, separator, port = address.rpartition(":")
    if not separator or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError("address", address, "host:port, such as 127.0.0.1:9876")
    return host.removeprefix("[").removesuffix("]"), int(port)
