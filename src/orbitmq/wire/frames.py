"""The incremental frame decoder: bytes as they arrive in, whole commands out.

Contract: the receiver asks :meth:`FrameDecoder.get_buffer` where to put bytes, says with
:meth:`FrameDecoder.received` how many came, and gets every command that is now complete, in order.
A frame that fits the reused receive buffer is copied out of it once, as is a larger one piece by
piece. Buffers grow with what has arrived, never with what a length announces, and no more than one
frame of ``limit`` bytes is ever held. A FrameError is final: the stream has lost its frame
boundaries and must be closed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from orbitmq.errors import FrameError
from orbitmq.wire.command import RemotingCommand, decode_command

FRAME_LIMIT: Final = 16 * 1024 * 1024
"""Largest frame, its length field included (``NettySystemConfig`` frameMaxLength)."""
RECEIVE_BUFFER: Final = 256 * 1024
FIRST_BUFFER: Final = 8 * 1024
"""The receive buffer of a connection that has not received much at a time yet."""
_GROWTH = 4
"""How many times larger a buffer gets that is full."""
_SHORTEST = 8
_LENGTHS = struct.Struct(">II")
"""What a frame begins with: its length, then serialize type << 24 + header length."""


class FrameDecoder:
    """Turns a stream of bytes into RemotingCommands.

    ``limit`` is the largest frame in bytes, its four length bytes included. The reused receive
    buffer has ``first_size`` bytes, grows up to ``buffer_size`` when it is filled, and shrinks
    when told that the connection is at rest: most of many connections are idle.
    """

    __slots__ = (
        "_buffer", "_end", "_first", "_frame", "_largest", "_length", "_limit", "_size", "_start",
        "_view",
    )  # fmt: skip

    def __init__(
        self,
        limit: int = FRAME_LIMIT,
        buffer_size: int = RECEIVE_BUFFER,
        first_size: int = FIRST_BUFFER,
    ) -> None:
        self._limit = limit
        self._largest = buffer_size
        self._first = self._size = min(first_size, buffer_size)
        self._buffer = bytearray(self._size)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._frame: bytearray | None = None  # what has come of a frame larger than the buffer
        self._length = 0  # of that frame

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[RemotingCommand]:
        """The commands completed by ``count`` more bytes. Exhaust it before receiving more.

        Raises FrameError for an impossible length, HeaderError for a header that cannot be read.
        """
        self._end += count
        view, limit = self._view, self._limit
        start, end = self._start, self._end
        try:
            frame = self._frame
            if frame is not None:
                start += min(self._length - len(frame), end)
                frame += view[:start]
                if len(frame) == self._length:
                    self._frame = None
                    yield _decode_whole(memoryview(frame).toreadonly())
            while end - start >= _SHORTEST:
                size, mark = _LENGTHS.unpack_from(view, start)
                if not _SHORTEST <= size + 4 <= limit:
                    raise _impossible_length(size + 4, limit)
                frame_end = start + 4 + size
                if frame_end > end:
                    break
                body_start = start + 8 + (mark & 0xFFFFFF)
                if body_start > frame_end:
                    raise _header_too_long(4 + size, mark)
                header, body = view[start + 8 : body_start], view[body_start:frame_end]
                start = frame_end
                yield decode_command(mark >> 24, bytes(header), bytes(body))
        finally:
            self._start = start
        self._make_room()

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[RemotingCommand]:
        """As :meth:`received`, for bytes that came some other way."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            yield from self.received(count)
            rest = rest[count:]

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return self._end - self._start + len(self._frame or b"")

    @property
    def unfinished(self) -> int:
        """Bytes held of a frame that is larger than the receive buffer."""
        return 0 if self._frame is None else len(self._frame)

    def shrink(self) -> None:
        """Give back what the buffer has grown to, unless it holds part of a frame."""
        if self._size > self._first and not self.pending:
            self._set_buffer(self._first)

    def _make_room(self) -> None:
        start, end = self._start, self._end
        if start == end:
            if end == self._size < self._largest:
                self._grow()
            self._start = self._end = 0
            return
        pending = end - start
        length = 4 + _LENGTHS.unpack_from(self._view, start)[0] if pending >= _SHORTEST else 0
        if length > self._largest:
            self._frame, self._length = bytearray(self._view[start:end]), length
            self._start = self._end = 0
        elif end == self._size < self._largest:
            self._grow()
        elif start and (length > self._size or end > self._size // 2):
            self._buffer[:pending] = self._buffer[start:end]
            self._start, self._end = 0, pending

    def _grow(self) -> None:
        """A larger buffer with what is pending in front."""
        self._set_buffer(min(_GROWTH * self._size, self._largest))

    def _set_buffer(self, size: int) -> None:
        pending = self._end - self._start
        buffer = bytearray(size)
        buffer[:pending] = self._view[self._start : self._end]
        self._buffer, self._view, self._size = buffer, memoryview(buffer), size
        self._start, self._end = 0, pending


def _decode_whole(frame: memoryview) -> RemotingCommand:
    """The command in a frame of its own, which its body goes on to use."""
    mark: int = _LENGTHS.unpack_from(frame)[1]
    body_start = 8 + (mark & 0xFFFFFF)
    if body_start > len(frame):
        raise _header_too_long(len(frame), mark)
    return decode_command(mark >> 24, bytes(frame[8:body_start]), frame[body_start:])


def _impossible_length(length: int, limit: int) -> FrameError:
    return FrameError(
        f"frame of {length} bytes: a RocketMQ frame has {_SHORTEST} to {limit}; the peer may not "
        "speak the remoting protocol"
    )


def _header_too_long(length: int, mark: int) -> FrameError:
    return FrameError(f"frame of {length} bytes claims a header of {mark & 0xFFFFFF} bytes")
