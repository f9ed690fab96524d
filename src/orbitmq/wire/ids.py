"""Identifiers: message ids, the hash behind tag codes, and the bytes of a host address.

An *offset message id* says where a broker stored a message; a *unique id* (the ``UNIQ_KEY``
property) is made by the producer. Both are 32 hexadecimal digits (56 with IPv6), so they cannot be
told apart by their looks. Behaviour follows MessageDecoder.createMessageId, MessageClientIDSetter
and java.lang.String.hashCode.
"""

from __future__ import annotations

import itertools
import os
import socket
import struct
import time
from collections.abc import Callable
from functools import cache, lru_cache

from orbitmq.errors import WireError

_PORT = struct.Struct(">I")
_OFFSET = struct.Struct(">q")
_NS_A_MS = 1_000_000
_V4_IN_V6 = bytes(10) + b"\xff\xff"
_HEX = tuple(f"{byte:02X}" for byte in range(256))
"""Each byte in hexadecimal digits: taken from here in half the time of formatting."""


def java_hash(text: str) -> int:
    """What Java's ``String.hashCode`` gives for ``text``: a signed 32-bit integer."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (value * 31 + unit) & 0xFFFFFFFF
    else:
        # Java hashes UTF-16 code units, so a character beyond U+FFFF counts as two.
        for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass")):
            value = (value * 31 + unit) & 0xFFFFFFFF
    return value - 0x1_0000_0000 if value > 0x7FFFFFFF else value


@lru_cache(maxsize=8192)
def tags_code(tags: str | None) -> int:
    """The number that stands for ``tags`` in a consume queue, 0 for none.

    MessageExtBrokerInner.tagsString2tagsCode.
    """
    return java_hash(tags) if tags else 0


def host_bytes(ip: str, port: int) -> bytes:
    """The stored form of a host: its IPv4 (4) or IPv6 (16) address, then the port (4).

    An IPv4 address in IPv6 clothes (``::ffff:10.0.0.1``) becomes IPv4, as Java's InetAddress does;
    a zone (``%eth0``) is left out. Raises WireError when ``ip`` is not a numeric address.
    """
    try:
        if ":" in ip:
            address = socket.inet_pton(socket.AF_INET6, ip.partition("%")[0])
            address = address.removeprefix(_V4_IN_V6)
        else:
            address = socket.inet_pton(socket.AF_INET, ip)
        return address + _PORT.pack(port)
    except (OSError, ValueError, struct.error) as error:
        raise WireError(f"{ip!r} port {port} is not a numeric host address: {error}") from error


def host_text(host: bytes) -> str:
    """A stored host as ``ip:port``, or ``[ip]:port`` for IPv6."""
    ip, port = _split_host(host)
    return f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}"


def _split_host(host: bytes) -> tuple[str, int]:
    family = {8: socket.AF_INET, 20: socket.AF_INET6}.get(len(host))
    if family is None:
        raise WireError(f"a host takes 8 or 20 bytes, not {len(host)}")
    return socket.inet_ntop(family, host[:-4]), _PORT.unpack(host[-4:])[0]


def offset_message_id(host: bytes, commit_log_offset: int) -> str:
    """The id of the message that the broker at ``host`` (host_bytes) stored at an offset."""
    return (host + _OFFSET.pack(commit_log_offset)).hex().upper()


def decode_offset_message_id(message_id: str) -> tuple[str, int, int]:
    """The ip, port and commit log offset in an offset message id.

    Any unique id of the same length decodes too, to values that mean nothing. Raises WireError
    for what has not the form of an id (MessageDecoder.decodeMessageId).
    """
    try:
        data = bytes.fromhex(message_id) if message_id.isalnum() else b""
    except ValueError:
        data = b""
    if len(data) not in (16, 28):
        raise WireError(f"{message_id!r} is not an offset message id: 32 or 56 hex digits")
    ip, port = _split_host(data[:-8])
    return ip, port, _OFFSET.unpack(data[-8:])[0]


class UniqueIdGenerator:
    """Makes unique message ids: ip, pid (2), salt (4), ms since the month began (4), count (2).

    The month begins at local midnight, as in MessageClientIDSetter. ``ip`` is 4 or 16 bytes;
    ``salt`` (4 bytes, random by default) keeps two generators of a process apart, where Java uses
    its class loader's hash. Ids are distinct while fewer than 65,536 are made in a millisecond.
    May be called from any thread; a forked child needs a generator of its own.
    """

    __slots__ = ("_clock_ns", "_count", "_fixed", "_latest", "_month")

    def __init__(
        self,
        ip: bytes,
        pid: int,
        clock_ns: Callable[[], int] = time.time_ns,
        salt: bytes | None = None,
    ) -> None:
        fixed = ip + (pid & 0xFFFF).to_bytes(2, "big") + (os.urandom(4) if salt is None else salt)
        if len(fixed) not in (10, 22):
            raise ValueError("ip takes 4 or 16 bytes, salt takes 4")
        self._fixed = fixed.hex().upper()
        self._clock_ns = clock_ns
        self._count = itertools.count().__next__  # one C call, so threads never share a count
        self._month = _month_around(clock_ns() // _NS_A_MS)
        self._latest: tuple[int | None, str] = None, ""

    def next(self) -> str:
        """A new id."""
        now = self._clock_ns() // _NS_A_MS
        at, start = self._latest
        if now != at:
            start = self._fixed + f"{self._span(now):08X}"
            self._latest = now, start
        count = self._count()
        return f"{start}{_HEX[count >> 8 & 0xFF]}{_HEX[count & 0xFF]}"

    def _span(self, now: int) -> int:
        """The low 32 bits of the milliseconds since the month began, which may be over 2^31."""
        begin, end = self._month
        if now >= end:
            self._month = begin, end = _month_around(now)
        span = now - begin
        if -1_000_000 < span < 0:  # the clock was set back over the month's begin
            return 0
        return span & 0xFFFFFFFF


def _month_around(now_ms: int) -> tuple[int, int]:
    """The first ms of the local month ``now_ms`` lies in, and that of the next."""
    year, month = time.localtime(now_ms // 1000)[:2]
    begin, end = (
        int(time.mktime((year, number, 1, 0, 0, 0, 0, 0, -1))) * 1000
        for number in (month, month + 1)
    )
    return begin, end


def create_unique_id() -> str:
    """A new unique message id of this process (MessageClientIDSetter.createUniqID).

    It begins with a made-up address, as Java's does on a host without one, because nothing here
    asks the system. Who knows the host's address makes a UniqueIdGenerator with it.
    """
    return _process_generator().next()


@cache
def _process_generator() -> UniqueIdGenerator:
    made_up_ip = (time.time_ns() // _NS_A_MS & 0xFFFFFFFF).to_bytes(4, "big")
    return UniqueIdGenerator(made_up_ip, os.getpid())


if hasattr(os, "register_at_fork"):
    # A child that kept its parent's salt and count would repeat the parent's ids.
    os.register_at_fork(after_in_child=_process_generator.cache_clear)
