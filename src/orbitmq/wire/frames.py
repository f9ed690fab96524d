"""The incremental frame decoder: bytes as they arrive in, whole commands out.

Contract: the receiver asks :meth:`FrameDecoder.get_buffer` where to put bytes, says with
:meth:`FrameDecoder.received` how many came, and gets every command that is now complete, in order.
A frame that fits the reused receive buffer is copied out of it once; a larger one is received
straight into a buffer of its own. No more than one frame of ``limit`` bytes is ever held. A
FrameError is final: the stream has lost its frame boundaries and must be closed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orbitmq.errors import FrameError
from orbitmq.wire.command import RemotingCommand, decode_command

FRAME_LIMIT: Final = 16 * 1024 * 1024
"""Largest frame, its length field included (``NettySystemConfig`` frameMaxLength)."""
RECEIVE_BUFFER: Final = 256 * 1024
_SHORTEST = 8


class FrameDecoder:
    """Turns a stream of bytes into RemotingCommands.

    ``limit`` is the largest frame in bytes, its four length bytes included; ``buffer_size`` the
    bytes of the reused receive buffer.
    """

    __slots__ = ("_buffer", "_end", "_frame", "_limit", "_size", "_start", "_view")

    def __init__(self, limit: int = FRAME_LIMIT, buffer_size: int = RECEIVE_BUFFER) -> None:
        self._limit = limit
        self._size = buffer_size
        self._buffer = bytearray(buffer_size)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._frame: memoryview | None = None  # a frame larger than the buffer, being received

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._frame is not None:
            return self._frame[self._end :]
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[RemotingCommand]:
        """The commands completed by ``count`` more bytes. Exhaust it before receiving more.

        Raises FrameError for an impossible length, HeaderError for a header that cannot be read.
        """
        self._end += count
        if self._frame is not None:
            if self._end == len(self._frame):
                frame, self._frame = self._frame, None
                self._start = self._end = 0
                yield self._decode(frame.toreadonly(), 0, len(frame), copy=False)
            return
        view = self._view
        start = self._start
        try:
            while (available := self._end - start) >= _SHORTEST:
                length = self._check_length(start)
                if available < length:
                    break
                command = self._decode(view, start, length, copy=True)
                start += length
                yield command
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
        return self._end - self._start

    def _check_length(self, start: int) -> int:
        length = 4 + int.from_bytes(self._view[start : start + 4], "big")
        if not _SHORTEST <= length <= self._limit:
            raise FrameError(
                f"frame of {length} bytes: a RocketMQ frame has {_SHORTEST} to {self._limit}; "
                "the peer may not speak the remoting protocol"
            )
        return length

    def _decode(self, view: memoryview, start: int, length: int, *, copy: bool) -> RemotingCommand:
        serialize_type = view[start + 4]
        body_start = start + 8 + int.from_bytes(view[start + 5 : start + 8], "big")
        end = start + length
        if body_start > end:
            raise FrameError(
                f"frame of {length} bytes claims a header of {body_start - start - 8} bytes"
            )
        header = bytes(view[start + 8 : body_start])
        body = view[body_start:end]
        return decode_command(serialize_type, header, bytes(body) if copy else body)

    def _make_room(self) -> None:
        start, end = self._start, self._end
        if start == end:
            self._start = self._end = 0
            return
        pending = end - start
        if pending >= _SHORTEST and (length := self._check_length(start)) > self._size:
            frame = memoryview(bytearray(length))
            frame[:pending] = self._view[start:end]
            self._frame = frame
            self._start, self._end = 0, pending
        elif start and end > self._size // 2:
            self._buffer[:pending] = self._buffer[start:end]
            self._start, self._end = 0, pending
