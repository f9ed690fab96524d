"""Blocking connections ask, pipeline, time out, break and are kept for the next borrower."""

from __future__ import annotations

import socket
import threading

import pytest

from orbitmq.errors import (
    ConfigError,
    ConnectError,
    ConnectionLostError,
    FrameError,
    RequestTimeoutError,
    TopicNotFoundError,
)
from orbitmq.net.blocking import BlockingConnection, ConnectionCache
from orbitmq.net.connection import Connection
from orbitmq.wire.command import RemotingCommand
from tests.spark.fake_cluster import answer, server


def echo(command: RemotingCommand, connection: Connection) -> None:
    answer(command, connection, 0, command.ext_fields, bytes(command.body))


def silent(command: RemotingCommand, connection: Connection) -> None:
    """Take a request and never answer."""


def test_a_request_gets_its_answer_however_large() -> None:
    with server(echo) as address:
        connection = BlockingConnection(address)
        body = bytes(range(256)) * 8192
        found = connection.request(7, {"name": "value"}, body)
        assert bytes(found.body) == body
        assert found.ext_fields == {"name": "value"}
        connection.oneway(7)
        connection.close()


def test_many_requests_under_way_are_answered_in_the_order_asked_for() -> None:
    waiting: list[tuple[RemotingCommand, Connection]] = []

    def backwards(command: RemotingCommand, connection: Connection) -> None:
        waiting.append((command, connection))
        if len(waiting) == 3:
            for item in reversed(waiting):
                echo(*item)

    with server(backwards) as address:
        connection = BlockingConnection(address)
        found = connection.request_all([(7, {"n": str(n)}) for n in range(3)])
        assert [one.ext_fields["n"] for one in found] == ["0", "1", "2"]
        assert connection.outstanding == 0
        connection.close()


def test_an_error_answer_is_raised_with_the_address() -> None:
    with server(lambda command, connection: answer(command, connection, 17)) as address:
        connection = BlockingConnection(address)
        with pytest.raises(TopicNotFoundError) as caught:
            connection.request(7)
        assert caught.value.address == address
        assert connection.invoke(7).code == 17
        connection.close()


def test_no_answer_in_time_ends_the_connection() -> None:
    with server(silent) as address:
        connection = BlockingConnection(address)
        with pytest.raises(RequestTimeoutError, match=f"{address} did not answer within 30 ms"):
            connection.request(7, timeout_ms=30)
        assert connection.closed
        with pytest.raises(ConnectionLostError, match="is closed"):
            connection.request(7)


def test_a_peer_that_leaves_is_noticed() -> None:
    def leave(command: RemotingCommand, connection: Connection) -> None:
        connection.close()

    with server(leave) as address:
        connection = BlockingConnection(address)
        with pytest.raises(ConnectionLostError, match=f"{address} closed the connection"):
            connection.request(7)


def test_a_peer_that_speaks_something_else_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak() -> None:
            peer, _ = listening.accept()
            with peer:
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                peer.recv(1024)

        thread = threading.Thread(target=speak)
        thread.start()
        connection = BlockingConnection(f"127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(FrameError, match="may not speak the remoting protocol"):
            connection.receive()
        assert connection.closed
        thread.join()


def test_an_address_nobody_listens_on_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConnectError, match=f"cannot connect to {address}: Connection refused"):
        BlockingConnection(address)


@pytest.mark.parametrize("address", ["nowhere", "host:", ":1", "host:99999"])
def test_an_address_must_have_a_host_and_a_port(address: str) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        BlockingConnection(address)


def test_a_connection_is_kept_for_the_next_borrower() -> None:
    cache = ConnectionCache()
    with server(echo) as address:
        with cache.borrow(address) as first:
            first.request(7)
            with cache.borrow(address) as second:
                assert second is not first
        with cache.borrow(address) as again:
            assert again in (first, second)
        cache.close()
        assert first.closed
        assert second.closed


def test_a_connection_left_in_disorder_is_not_kept() -> None:
    cache = ConnectionCache()
    with server(silent) as address:
        with cache.borrow(address) as unanswered:
            unanswered.send(7)
        assert unanswered.closed
        with pytest.raises(ZeroDivisionError), cache.borrow(address) as failed:
            raise ZeroDivisionError
        assert failed.closed
        cache.close()


def test_a_kept_connection_that_died_is_replaced() -> None:
    cache = ConnectionCache()
    ending = threading.Event()

    def last(command: RemotingCommand, connection: Connection) -> None:
        echo(command, connection)
        if command.code == 8:
            connection.close()
            ending.set()

    with server(last) as address:
        with cache.borrow(address) as first:
            first.request(8)
        ending.wait(10)
        while first.is_alive():
            pass
        with cache.borrow(address) as second:
            assert second is not first
            second.request(7)
        cache.close()
