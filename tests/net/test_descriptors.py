"""A process short of descriptors: connections are refused, files are not."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import descriptors
from orbitmq.net.server import Server
from tests.net.raw import connect
from tests.net.test_idle import ask, echo
from tests.waiting import until


def highest_descriptor() -> int:
    return max(int(file.name) for file in Path("/dev/fd").iterdir())


async def is_refused(server: Server, peer: socket.socket) -> bool:
    """Whether a connection made just now comes to nothing."""
    known = len(server.connections)
    end = asyncio.ensure_future(asyncio.get_running_loop().sock_recv(peer, 1))
    await until(lambda: end.done() or len(server.connections) > known, "an outcome")
    if end.done():
        return end.result() == b""
    end.cancel()
    await asyncio.gather(end, return_exceptions=True)
    return False


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    """How many connections this process may have now, about: a few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = (highest_descriptor() + 40) * 4 // 3
    if hard < limit:
        pytest.skip(f"the hard limit of open files is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    yield limit
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_connections_leave_descriptors_for_files(
    few_descriptors: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server(echo)
        await server.start("127.0.0.1", 0)
        first = await connect(server)
        peers: list[socket.socket] = []
        refused = 0
        while refused < 3:
            peer = socket.create_connection((server.host, server.port))
            peer.setblocking(False)
            peers.append(peer)
            refused += await is_refused(server, peer)
        assert (
            highest_descriptor() < few_descriptors - descriptors.reserve() + 8
        )  # the peers are here, too
        await ask(first)
        (complaint,) = [record for record in caplog.records if "is refused" in record.message]
        assert f"may have {few_descriptors} files and connections open" in complaint.message
        assert "ulimit -n" in complaint.message
        for peer in peers:
            peer.close()
        await until(lambda: len(server.connections) == 1, "the end of the others")
        last = await connect(server)
        await ask(last)
        first.close()
        last.close()
        await server.close()

    with caplog.at_level(logging.WARNING, "orbitmq.net"):
        asyncio.run(main())


def test_accepting_pauses_when_nothing_is_left(
    few_descriptors: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = Server(echo)
        await server.start("127.0.0.1", 0)
        peer = socket.socket()
        peer.setblocking(False)
        taken = []
        try:
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        except OSError:
            pass
        await asyncio.get_running_loop().sock_connect(peer, (server.host, server.port))
        await until(lambda: "accepting pauses for 1 s" in caplog.text, "the pause")
        assert not server.connections
        for fd in taken:
            os.close(fd)
        await until(lambda: server.connections, "the end of the pause")
        assert caplog.text.count("accepting pauses") == 1
        await ask(peer)
        peer.close()
        await server.close()

    with caplog.at_level(logging.WARNING, "orbitmq.net"):
        asyncio.run(main())


def test_the_limit_is_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, reserve, queue_files in ((256, 64, 32), (1024, 256, 128), (1 << 20, 2048, 1024)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        assert descriptors.limit() == limit
        assert (descriptors.reserve(), descriptors.queue_files()) == (reserve, queue_files)
    infinite = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _: infinite)
    assert descriptors.limit() > 1 << 30
    assert descriptors.reserve() == 2048


def test_the_limit_is_raised_as_far_as_allowed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, hard - 1), hard))
        descriptors.raise_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1 << 40))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    descriptors.raise_limit()
    assert "stays at 256" in caplog.text
    assert "ulimit -n" in caplog.text
