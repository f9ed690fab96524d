"""The incremental frame decoder: bytes as they arrive in, whole commands out.

Contract: the receiver asks :meth:`FrameDecoder.get_buffer` where to put bytes, says with
:meth:`FrameDecoder.received` how many came, and gets every command that is now complete, in order.
A frame that fits the reused receive buffer is copied out of it once, or twice where it is short, a
larger one piece by piece. Buffers grow with what has arrived, never with what a length announces,
and no more than one frame of ``limit`` bytes is ever held. An error is final: the stream has lost
its frame boundaries and must be closed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final

from orbitmq.compiled import compiled
from orbitmq.errors import FrameError, WireError
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

    ``error`` is what ended the stream: a FrameError for an impossible length, a HeaderError for a
    header that cannot be read; None so far. ``unfinished`` are the bytes held of a frame that is
    larger than the receive buffer.
    """

    __slots__ = (
        "_end", "_first", "_frame", "_largest", "_length", "_limit", "_needed", "_size", "_view",
        "error", "unfinished",
    )  # fmt: skip

    def __init__(
        self,
        limit: int = FRAME_LIMIT,
        buffer_size: int = RECEIVE_BUFFER,
        first_size: int = FIRST_BUFFER,
    ) -> None:
        self.error: WireError | None = None
        self.unfinished = 0
        self._limit = limit
        self._largest = buffer_size
        self._first = self._size = min(first_size, buffer_size)
        self._view = memoryview(bytearray(self._size))
        self._end = 0  # of what the buffer holds of the next frame
        self._needed = _SHORTEST  # while it holds less, there is nothing to do
        self._frame: bytearray | None = None  # what has come of a frame larger than the buffer
        self._length = 0  # of that frame

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        return self._view[self._end :] if self._end else self._view

    def received(self, count: int) -> list[RemotingCommand]:
        """The commands completed by ``count`` more bytes: the last ones, if ``error`` is set now.

        Never raises, so that what came before an error is not lost.
        """
        commands: list[RemotingCommand] = []
        begin, end = 0, self._end + count
        if end >= self._needed:
            try:
                if self._frame is not None:
                    begin = self._continue(self._frame, end, commands)
                begin = self._cut(begin, end, commands)
            except WireError as error:
                self._stop(error)
                return commands
        if begin == end < self._size and self._frame is None:
            self._end, self._needed = 0, _SHORTEST
        else:
            self._keep(begin, end)
        return commands

    def feed(self, data: bytes | bytearray | memoryview) -> Iterator[RemotingCommand]:
        """As :meth:`received`, for bytes that came some other way; raises the error."""
        rest = memoryview(data)
        while rest:
            buffer = self.get_buffer()
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            yield from self.received(count)
            if self.error is not None:
                raise self.error
            rest = rest[count:]

    @property
    def pending(self) -> int:
        """Bytes held of a frame that is not complete yet."""
        return self._end + self.unfinished

    def shrink(self) -> None:
        """Give back what the buffer has grown to, unless it holds part of a frame."""
        if self._size > self._first and not self.pending:
            self._set_buffer(self._first)

    def _cut(self, begin: int, end: int, commands: list[RemotingCommand]) -> int:
        """Decode the whole frames in this part of the buffer; where the next one begins."""
        if self.error is not None:
            raise self.error
        data = bytes(self._view[begin:end])
        found, at = decode_frames(data, self._limit, decode_command)
        commands += found
        if len(data) - at >= _SHORTEST:
            _check_frame(data[at:], self._limit)
        return begin + at

    def _continue(self, frame: bytearray, end: int, commands: list[RemotingCommand]) -> int:
        """Add what came to a large frame, and decode it when it is whole; where the next begins."""
        taken = min(self._length - len(frame), end)
        frame += self._view[:taken]
        self.unfinished = len(frame)
        if self.unfinished == self._length:
            self._frame, self.unfinished = None, 0
            commands.append(_decode_whole(memoryview(frame).toreadonly()))
        return taken

    def _keep(self, begin: int, end: int) -> None:
        """Put what there is of the next frame in front, with room behind it."""
        pending = end - begin
        self._needed = _SHORTEST if self._frame is None else 1
        if pending >= _SHORTEST:
            length = 4 + _LENGTHS.unpack_from(self._view, begin)[0]
            if length > self._largest:
                self._frame, self._length = bytearray(self._view[begin:end]), length
                self.unfinished = pending
                self._end, self._needed = 0, 1
                return
            self._needed = length
        if end == self._size < self._largest:
            self._set_buffer(min(_GROWTH * self._size, self._largest), begin, end)
        elif begin:
            self._view[:pending] = self._view[begin:end]
        self._end = pending

    def _set_buffer(self, size: int, begin: int = 0, end: int = 0) -> None:
        """Another buffer, with that part of this one in front."""
        view = memoryview(bytearray(size))
        view[: end - begin] = self._view[begin:end]
        self._view, self._size = view, size

    def _stop(self, error: WireError) -> None:
        """Hold nothing more, whatever comes."""
        self.error = error
        self._frame, self.unfinished = None, 0
        self._end = self._needed = 0


@compiled
def decode_frames(
    data: bytes, limit: int, decode: Callable[[int, bytes, bytes], RemotingCommand]
) -> tuple[list[RemotingCommand], int]:
    """The commands of the whole frames that ``data`` begins with, each made by ``decode``.

    And where the first frame begins that is not whole, impossible, or raises WireError.
    """
    commands: list[RemotingCommand] = []
    size, at = len(data), 0
    while size - at >= _SHORTEST:
        length, mark = _LENGTHS.unpack_from(data, at)
        body, end = at + _SHORTEST + (mark & 0xFFFFFF), at + 4 + length
        if not _SHORTEST <= 4 + length <= limit or not body <= end <= size:
            break
        try:
            commands.append(decode(mark >> 24, data[at + _SHORTEST : body], data[body:end]))
        except WireError:
            break
        at = end
    return commands, at


def _check_frame(data: bytes, limit: int) -> None:
    """Raise the WireError for what makes the frame at the front of ``data`` impossible, if any."""
    length: int = _LENGTHS.unpack_from(data)[0]
    if not _SHORTEST <= 4 + length <= limit:
        raise _impossible_length(4 + length, limit)
    if 4 + length <= len(data):
        _decode_whole(memoryview(data)[: 4 + length])


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
