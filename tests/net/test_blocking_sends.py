"""Blocking connections send head and body as they are, whatever the kernel takes at once."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.net import blocking
from orbitmq.net.blocking import BlockingConnection, Body, send_frame
from orbitmq.net.connection import Connection
from orbitmq.wire.command import RemotingCommand
from tests.spark.fake_cluster import answer, server

LARGE = blocking._APART


class Kernel:
    """Takes ``at_once`` bytes of a call that names parts, and all of any other."""

    def __init__(self, at_once: int) -> None:
        self.at_once = at_once
        self.taken = b""
        self.calls = 0

    def sendmsg(self, parts: Iterable[Body]) -> int:
        self.calls += 1
        now = b"".join(parts)[: self.at_once]
        self.taken += now
        return len(now)

    def sendall(self, data: Body) -> None:
        self.calls += 1
        self.taken += data


@given(
    head=st.binary(min_size=1, max_size=300),
    size=st.sampled_from([0, 1, 200, LARGE - 1, LARGE, LARGE + 1, 3 * LARGE]),
    share=st.floats(0, 1),
    view=st.booleans(),
)
def test_all_of_a_frame_is_sent_once_and_in_order(
    head: bytes, size: int, share: float, view: bool
) -> None:
    body = bytes(index * 7 % 251 for index in range(size))
    kernel = Kernel(round(share * (len(head) + size)))
    send_frame(cast("socket.socket", kernel), head, memoryview(body) if view else body)
    assert kernel.taken == head + body
    assert kernel.calls <= (1 if size < LARGE else 3)


def test_a_kernel_that_takes_little_gets_the_rest_as_it_makes_room() -> None:
    body = bytes(range(256)) * (32 * 1024)
    ours, theirs = socket.socketpair()
    with ours, theirs, ThreadPoolExecutor(1) as pool:
        ours.settimeout(60)
        sent = pool.submit(send_frame, ours, b"head", memoryview(body))
        ours_end = len(body) + 4
        found = bytearray()
        while len(found) < ours_end:
            found += theirs.recv(1 << 20)
        sent.result()
    assert found == b"head" + body


def test_tls_gets_the_parts_one_after_the_other() -> None:
    class Encrypting(ssl.SSLSocket):
        def __init__(self) -> None:
            self.taken: list[bytes] = []

        def sendall(self, data: Body, flags: int = 0) -> None:  # type: ignore[override]
            self.taken.append(bytes(data))

        def fileno(self) -> int:
            return -1

    sock = Encrypting.__new__(Encrypting)
    Encrypting.__init__(sock)
    send_frame(sock, b"head", bytes(LARGE))
    send_frame(sock, b"head", b"body")
    assert sock.taken == [b"head", bytes(LARGE), b"headbody"]


def test_a_view_is_a_body_of_any_size() -> None:
    def echo(command: RemotingCommand, connection: Connection) -> None:
        answer(command, connection, 0, {}, bytes(command.body))

    with server(echo) as address:
        connection = BlockingConnection(address)
        for size in (1, LARGE - 1, LARGE, 3_000_000):
            body = bytes(index % 256 for index in range(100)) * (size // 100 + 1)
            assert connection.request(7, None, memoryview(body)[:size]).body == body[:size]
        connection.close()
