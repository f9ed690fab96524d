"""One remoting connection on an asyncio loop, the same for both ends.

RocketMQ peers both ask and answer, so client and broker share this class. All frames that one
read brings form a tick: each goes to its owner (or to the waiter of its opaque), and whatever was
sent meanwhile leaves in a single write; where connections share a :class:`~orbitmq.net.turn.Turn`,
at the end of it, so that what all of them brought is settled once before. That, more than anything
else, is what makes the broker and the clients fast.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
from collections import deque
from collections.abc import Callable
from typing import Any, cast

from orbitmq.codes import GO_AWAY, RequestCode
from orbitmq.errors import ConnectionLostError, NetworkError, RequestTimeoutError, WireError
from orbitmq.net.receiving import Receiving
from orbitmq.net.turn import Turn
from orbitmq.wire.command import RESPONSE, RemotingCommand, encode_request
from orbitmq.wire.frames import FRAME_LIMIT, FrameDecoder
from orbitmq.wire.signing import Fields, RpcHook

log = logging.getLogger("orbitmq.net")

RequestHandler = Callable[[RemotingCommand, "Connection"], None]
ResponseHandler = Callable[["RemotingCommand | NetworkError"], None]

_SWEEP_SECONDS = 0.05
_SWEEP_SECONDS_A_WAITER = 2e-5
"""The least time between two looks at those who wait."""
_TIMER_SECONDS = 0.001
"""How much too early a loop's timer may be."""
_SILENCE_MS = 2000
_JOIN_BELOW = 128 * 1024
"""A tick's answers of less are one write: to copy them takes less time than another call."""
_JOIN_PIECES = 4096
_SHORT = 1024
"""Up to this length on average, in bytes, pieces are joined at once."""
_WRITE_SIZE = 256 * 1024
"""How much of a long piece a transport is given at once: what a peer does not read at once is
copied there."""


class Connection(asyncio.BufferedProtocol):
    """A connection that sends requests and receives them.

    ``on_request`` gets every request of the peer; ``on_tick_end`` runs after the last command of
    each read; ``on_connected`` and ``on_closed`` tell the owner of its life (the error is None
    after an orderly close).

    The ``serving`` side reads no more requests while the peer leaves its answers unread, which
    bounds the memory a slow peer can take; if both did, they could wait for each other. What the
    transport does not want yet stays here as it is: slices of the commit log stay slices.

    On the other side ``hook`` is what each request gets besides its own fields, and ``on_go_away``
    learns that the peer answered GO_AWAY and wants to be asked over another connection. A peer
    from which nothing came all the while a request waited, two seconds or more, is taken for dead
    and the connection ends (NettyClientConfig.clientCloseSocketIfTimeout).

    ``receiving`` bounds what is held of frames that are not whole, of all connections. With a
    ``turn``, what is sent waits for its end. Both are to be set before it is connected.
    ``context`` is the owner's, for what it knows of this peer.
    """

    # There are thousands, and of more than 30 attributes each CPython makes a dictionary.
    __slots__ = (
        "_active",
        "_close_error",
        "_congested",
        "_decoder",
        "_flush_later",
        "_heard_at",
        "_hook",
        "_idle_since_ms",
        "_loop",
        "_on_closed",
        "_on_connected",
        "_on_go_away",
        "_on_request",
        "_on_tick_end",
        "_opaque",
        "_out",
        "_retired",
        "_serving",
        "_sweep",
        "_sweep_at",
        "_transport",
        "_unfinished",
        "_unsent",
        "_waiters",
        "_when_writable",
        "closed",
        "context",
        "peer",
        "peer_host",
        "receiving",
        "turn",
    )

    def __init__(
        self,
        on_request: RequestHandler,
        *,
        on_tick_end: Callable[[], None] | None = None,
        on_connected: Callable[[Connection], None] | None = None,
        on_closed: Callable[[Connection, Exception | None], None] | None = None,
        on_go_away: Callable[[Connection], None] | None = None,
        hook: RpcHook | None = None,
        frame_limit: int = FRAME_LIMIT,
        serving: bool = False,
    ) -> None:
        self.peer = "not connected"
        self.peer_host = bytes(8)
        self.closed = False
        self.context: Any = None
        self._on_request = on_request
        self._on_tick_end = on_tick_end
        self._on_connected = on_connected
        self._on_closed = on_closed
        self._on_go_away = on_go_away
        self._hook = hook
        self._serving = serving
        self.receiving: Receiving | None = None
        self.turn: Turn | None = None
        self._unfinished = 0  # bytes of a large frame, as ``receiving`` knows
        self._decoder = FrameDecoder(frame_limit)
        self._transport: asyncio.Transport
        self._loop: asyncio.AbstractEventLoop
        self._out: deque[bytes | memoryview] = deque()
        self._flush_later = False  # in a tick, or a flush is scheduled
        self._opaque = 0
        self._waiters: dict[int, tuple[float, ResponseHandler, int, int]] = {}
        self._heard_at = 0.0
        self._retired = False
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_at = math.inf  # on the loop's clock
        self._close_error: Exception | None = None
        self._congested = False  # the transport holds more than it wants to
        self._unsent = 0  # bytes it held when it was last looked at
        self._active = True  # something was read or written since then
        self._idle_since_ms = 0
        self._when_writable: list[Callable[[], None]] = []

    @property
    def congested(self) -> bool:
        """Whether the peer leaves unread what it was sent, so that more of it would pile up."""
        return self._congested

    # What the owner calls

    def send(self, *pieces: bytes | memoryview) -> None:
        """Queue bytes; all that a tick queues leaves in one write. Nothing after a close."""
        if self.closed:
            return
        self._out += pieces
        if not self._flush_later:
            self._flush_later = True
            if self.turn is None:
                self._loop.call_soon(self._flush)
            else:
                self.turn.join(self._flush)

    def oneway(self, code: int, header: Fields = None, body: bytes = b"") -> None:
        """Send a request that gets no response."""
        if self._hook is not None:
            header = self._hook.apply(header, body)
        self.send(encode_request(code, self.next_opaque(), header, body, oneway=True))

    def request(
        self,
        code: int,
        header: Fields = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
        on_done: ResponseHandler,
    ) -> None:
        """Send a request; ``on_done`` gets its response, or the NetworkError that prevented it.

        ``on_done`` is called exactly once, on the loop: RequestTimeoutError after ``timeout_ms``,
        ConnectionLostError when the connection ends first.
        """
        if self.closed:
            on_done(ConnectionLostError(f"connection to {self.peer} is closed", self.peer))
            return
        if self._hook is not None:
            header = self._hook.apply(header, body)
        # Encoded first: nothing is awaited of a request that cannot be encoded.
        frame = encode_request(code, self.next_opaque(), header, body)
        self.expect(self._opaque, code, on_done, timeout_ms)
        self.send(frame)

    def expect(self, opaque: int, code: int, on_done: ResponseHandler, timeout_ms: int) -> None:
        """Have ``on_done`` get the response to a request the caller encodes and sends itself.

        As :meth:`request`, on an open connection; ``opaque`` is from :meth:`next_opaque`. The hook
        is the caller's to apply.
        """
        deadline = self._loop.time() + timeout_ms / 1000
        self._waiters[opaque] = (deadline, on_done, code, timeout_ms)
        if deadline < self._sweep_at:
            self._sweep_by(deadline)

    def next_opaque(self) -> int:
        """The number of the next request."""
        self._opaque = (self._opaque + 1) & 0x7FFFFFFF
        return self._opaque

    def when_writable(self, on_writable: Callable[[], None]) -> None:
        """Call ``on_writable`` now, or once the peer has read enough of what it was sent.

        It is called too when the connection ends first. For those who send without awaiting an
        answer, so that what they send does not pile up here.
        """
        if self._congested and not self.closed:
            self._when_writable.append(on_writable)
        else:
            on_writable()

    async def call(
        self,
        code: int,
        header: Fields = None,
        body: bytes = b"",
        *,
        timeout_ms: int,
    ) -> RemotingCommand:
        """As :meth:`request`, awaited. Response codes are the caller's to judge."""
        future: asyncio.Future[RemotingCommand] = self._loop.create_future()

        def done(answer: RemotingCommand | NetworkError) -> None:
            if future.done():
                return
            if isinstance(answer, NetworkError):
                future.set_exception(answer)
            else:
                future.set_result(answer)

        self.request(code, header, body, timeout_ms=timeout_ms, on_done=done)
        return await future

    def retire(self) -> None:
        """Close once everything asked has been answered; the owner asks nothing more."""
        self._retired = True
        if not self.closed:
            self._sweep_by(self._loop.time())

    def close(self, error: Exception | None = None) -> None:
        """Close once what is queued has been written; ``error`` reaches ``on_closed``.

        A peer that does not read keeps it open: see :meth:`idle_ms`, and :meth:`abort`.
        """
        if not self.closed:
            self._flush()
            unsent, self._out = self._out, deque()
            self._end(error)
            self._out = unsent
            if not unsent:
                self._transport.close()

    def abort(self) -> None:
        """Close at once; what the peer has not read yet is lost."""
        self._abort(None)

    def idle_ms(self, now_ms: int) -> int:
        """How long the peer has neither sent anything nor taken what it was sent.

        To be called now and then, since it counts from the call that finds this out: a time too
        short by the pause between two calls. An idle connection gives its receive buffer back.
        """
        if self._active or self._drains():
            self._active = False
            self._idle_since_ms = now_ms
            return 0
        self._decoder.shrink()
        return now_ms - self._idle_since_ms

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Learn who the peer is."""
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self.peer, self.peer_host = _peer_of(transport.get_extra_info("peername"))
        if self._on_connected:
            self._on_connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the loop puts the next bytes."""
        return self._decoder.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Handle one tick: every command that this read completed."""
        self._active = self._flush_later = True
        if self._waiters:
            self._heard_at = self._loop.time()
        decoder = self._decoder
        try:
            for command in decoder.received(nbytes):
                if command.flag & RESPONSE:
                    self._complete(command)
                else:
                    self._on_request(command, self)
            if decoder.error is not None:
                raise decoder.error
        except WireError as error:
            log.warning(
                "closing the connection of %s: %s; check that it is a RocketMQ client speaking "
                "the remoting protocol to the right port",
                self.peer,
                error,
            )
            self.close(error)
        if self._on_tick_end is not None:
            self._on_tick_end()
        if decoder.unfinished != self._unfinished:
            self._note_unfinished(decoder.unfinished)
        if self.turn is None:
            self._flush()
        else:
            self.turn.join(self._flush, nbytes)

    def eof_received(self) -> None:
        """Close when the peer has, once it was answered; asyncio does so for a false value."""
        if self.turn is not None:
            self.turn.end()

    def pause_writing(self) -> None:
        """Write no more, and read no more requests, while the peer leaves its answers unread."""
        self._congested = True
        self._unsent = self._transport.get_write_buffer_size()
        if self._serving:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Write what waits, then read on, or close where that was asked for."""
        self._congested = False
        self._flush()
        if self._congested:
            return
        if self.closed:
            self._transport.close()
            return
        self._tell_writable()
        if self._serving:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiters and tell the owner, once."""
        if self._unfinished:
            self._note_unfinished(0)
        self._end(exc)
        error, on_closed = self._close_error, self._on_closed
        self._on_closed = None
        if on_closed:
            on_closed(self, error)

    # Inner workings

    def _flush(self) -> None:
        """Write what is queued, as far as the transport wants it."""
        self._flush_later = False
        out = self._out
        if not out or self._congested:
            return
        self._active = True
        if len(out) == 1 and len(out[0]) <= _WRITE_SIZE:
            self._transport.write(out.popleft())
            return
        if len(out) < _JOIN_PIECES:
            size = sum(map(len, out))
            if size < _JOIN_BELOW or size < len(out) * _SHORT:
                joined = b"".join(out)
                out.clear()
                if size <= _WRITE_SIZE:
                    self._transport.write(joined)
                    return
                out.append(joined)
        while out and not self._congested:
            self._transport.write(_next_write(out))

    def _complete(self, response: RemotingCommand) -> None:
        if response.code == GO_AWAY and self._on_go_away:
            self._on_go_away(self)
        waiter = self._waiters.pop(response.opaque, None)
        if waiter is None:
            log.debug("response %d from %s came after its time-out", response.opaque, self.peer)
        else:
            waiter[1](response)

    def _sweep_by(self, time: float) -> None:
        """Look the waiters over at that time, and not when it was planned."""
        if self._sweep is not None:
            self._sweep.cancel()
        self._sweep_at = time
        self._sweep = self._loop.call_at(time + _TIMER_SECONDS, self._expire_waiters)

    def _expire_waiters(self) -> None:
        self._sweep_at = math.inf
        now = self._loop.time()
        expired = [opaque for opaque, waiter in self._waiters.items() if waiter[0] <= now]
        silence: NetworkError | None = None
        for waiter in [self._waiters.pop(opaque) for opaque in expired]:
            deadline, on_done, code, timeout_ms = waiter
            error = RequestTimeoutError(
                f"{self.peer} did not answer {describe_code(code)} within {timeout_ms} ms",
                self.peer,
            )
            if timeout_ms >= _SILENCE_MS and self._heard_at <= deadline - timeout_ms / 1000:
                silence = error
            on_done(error)
        if silence is not None and not self._serving:
            self._abort(silence)
        elif self._waiters:
            # Thousands of held pulls are looked over less often.
            pause = max(_SWEEP_SECONDS, len(self._waiters) * _SWEEP_SECONDS_A_WAITER)
            first = now if self._retired else min(waiter[0] for waiter in self._waiters.values())
            self._sweep_by(max(first, now + pause))
        elif self._retired:
            self.close()

    def _note_unfinished(self, size: int) -> None:
        """Tell how much is held of a large frame."""
        self._unfinished = size
        if self.receiving is not None:
            self.receiving.note(self, size)

    def _drains(self) -> bool:
        """Whether the peer has read any of what waits for it, since the last look."""
        if not self._congested:
            return False
        before, self._unsent = self._unsent, self._transport.get_write_buffer_size()
        return self._unsent < before

    def _tell_writable(self) -> None:
        waiting, self._when_writable = self._when_writable, []
        for on_writable in waiting:
            on_writable()

    def _abort(self, error: Exception | None) -> None:
        self._end(error)
        self._transport.abort()

    def _end(self, error: Exception | None) -> None:
        """Mark as closed and fail whoever waits."""
        if self.closed:
            return
        self.closed = True
        self._close_error = error
        self._out.clear()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        waiters, self._waiters = self._waiters, {}
        for _, on_done, _, _ in waiters.values():
            reason = f": {error}" if error else ""
            on_done(ConnectionLostError(f"connection to {self.peer} was lost{reason}", self.peer))
        self._tell_writable()


def _next_write(out: deque[bytes | memoryview]) -> bytes | memoryview:
    """Take from the front of ``out`` what is to be written at once: short pieces are joined."""
    first = out.popleft()
    size = len(first)
    if size > _WRITE_SIZE:
        view = memoryview(first)
        out.appendleft(view[_WRITE_SIZE:])
        return view[:_WRITE_SIZE]
    pieces = [first]
    while out and size + len(out[0]) < _JOIN_BELOW:
        size += len(out[0])
        pieces.append(out.popleft())
    return b"".join(pieces) if len(pieces) > 1 else first


def _peer_of(address: Any) -> tuple[str, bytes]:
    """The peer as text and as the 8 or 20 bytes of a born host."""
    if address is None:  # it hung up before it was seen
        return "an unknown peer", bytes(8)
    host, port = address[0], address[1]
    if ":" in host:
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        return f"[{host}]:{port}", packed + port.to_bytes(4, "big")
    return f"{host}:{port}", socket.inet_aton(host) + port.to_bytes(4, "big")


def describe_code(code: int) -> str:
    """A request code by name and number, for logs and error texts."""
    try:
        return f"{RequestCode(code).name} ({code})"
    except ValueError:
        return f"request code {code}"
