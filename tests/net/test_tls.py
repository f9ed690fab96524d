"""TLS on both sides: who is trusted, who is let in, and what is said to those who are not."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable

import pytest

from orbitmq.errors import ConfigError, ConnectError, NetworkError
from orbitmq.net.blocking import Access, BlockingConnection, ConnectionCache
from orbitmq.net.connection import Connection
from orbitmq.net.pool import ConnectionPool
from orbitmq.net.server import Server
from orbitmq.net.tls import ClientAuth, ClientTls, ServerTls, TlsMode
from orbitmq.wire.command import RemotingCommand, encode_response
from tests.net.certificates import PASSWORD, Certificates
from tests.net.test_pool import ignore
from tests.waiting import until

Scenario = Callable[[Server], Awaitable[None]]


def echo(command: RemotingCommand, connection: Connection) -> None:
    body = bytes(command.body)
    connection.send(encode_response(command, 0, body_length=len(body)), body)


def with_server(
    tls: ServerTls | None,
    scenario: Scenario,
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> None:
    async def main() -> None:
        server = Server(echo, tls=tls)
        await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(20):
                await scenario(server)
        finally:
            await server.close()
        assert not server.connections
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def ask(address: str, tls: ClientTls | None, body: bytes = b"hello") -> bytes:
    """What a client with these settings gets back."""
    pool = ConnectionPool(ignore, tls=None if tls is None else tls.context())
    try:
        answer = await pool.call(address, 1, None, body, timeout_ms=10_000)
        return bytes(answer.body)
    finally:
        await pool.close()


def server_tls(
    certificates: Certificates,
    mode: TlsMode = TlsMode.PERMISSIVE,
    client_auth: ClientAuth = ClientAuth.NONE,
) -> ServerTls:
    return ServerTls(
        cert_file=certificates.cert,
        key_file=certificates.key,
        mode=mode,
        client_auth=client_auth,
        ca_file=None if client_auth is ClientAuth.NONE else certificates.ca,
    )


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_permissive_server_takes_both_and_large_frames(
    certificates: Certificates, loop: str
) -> None:
    loop_factory = pytest.importorskip(loop).new_event_loop
    large = bytes(range(256)) * 8192

    async def scenario(server: Server) -> None:
        for tls in (None, ClientTls(ca_file=certificates.ca), ClientTls()):
            assert await ask(server.address, tls) == b"hello"
            assert await ask(server.address, tls, large) == large

    with_server(server_tls(certificates), scenario, loop_factory=loop_factory)


def test_an_enforcing_server_refuses_the_plain_and_says_why(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(server: Server) -> None:
        assert await ask(server.address, ClientTls()) == b"hello"
        with pytest.raises(NetworkError):
            await ask(server.address, None)
        assert "use_tls=True" in caplog.text

    with_server(server_tls(certificates, TlsMode.ENFORCING), scenario)


def test_a_disabled_server_needs_no_valid_files() -> None:
    async def scenario(server: Server) -> None:
        assert await ask(server.address, None) == b"hello"
        with pytest.raises(ConnectError, match="check that the server takes TLS"):
            await ask(server.address, ClientTls())

    with_server(ServerTls(cert_file="/nowhere", mode=TlsMode.DISABLED), scenario)


def test_an_unknown_certificate_is_refused_where_it_is_looked_at(
    certificates: Certificates,
) -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(ConnectError, match="not trusted .*tls_ca_file") as raised:
            await ask(server.address, ClientTls(verify=True))
        assert raised.value.address == server.address
        own = ClientTls(ca_file=certificates.ca, verify=False)
        assert await ask(server.address, own) == b"hello"
        with pytest.raises(ConnectError, match="not trusted"):
            await asyncio.to_thread(
                BlockingConnection, server.address, access=Access(tls=ClientTls(verify=True))
            )

    with_server(server_tls(certificates), scenario)


def test_the_name_in_a_certificate_counts_where_asked_for(certificates: Certificates) -> None:
    async def scenario(server: Server) -> None:
        by_name = f"localhost:{server.port}"
        strict = ClientTls(ca_file=certificates.ca, check_hostname=True)
        assert await ask(server.address, strict) == b"hello"
        with pytest.raises(ConnectError, match="localhost"):
            await ask(by_name, strict)
        assert await ask(by_name, ClientTls(ca_file=certificates.ca)) == b"hello"

    with_server(server_tls(certificates), scenario)


def test_clients_may_have_to_show_a_certificate(certificates: Certificates) -> None:
    async def scenario(server: Server) -> None:
        with pytest.raises(NetworkError):
            await ask(server.address, ClientTls(ca_file=certificates.ca))
        known = ClientTls(
            ca_file=certificates.ca,
            cert_file=certificates.cert,
            key_file=certificates.locked_key,
            key_password=PASSWORD,
        )
        assert await ask(server.address, known) == b"hello"

    with_server(server_tls(certificates, client_auth=ClientAuth.REQUIRE), scenario)


def test_a_server_ends_connections_that_have_said_nothing(certificates: Certificates) -> None:
    async def scenario(server: Server) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        half = socket.create_connection(("127.0.0.1", server.port))
        half.sendall(b"\x16\x03")
        assert await ask(server.address, None) == b"hello"
        await server.close()
        assert await reader.read() == b""
        writer.close()
        half.close()
        with pytest.raises(ConnectError):
            await ask(server.address, None)

    with_server(server_tls(certificates), scenario)


def test_who_hangs_up_in_the_middle_harms_nobody(
    certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.net")

    async def scenario(server: Server) -> None:
        for beginning in (b"", b"\x16", b"\x16" + b"x" * 600):
            with socket.create_connection(("127.0.0.1", server.port)) as client:
                client.sendall(beginning)
        assert await ask(server.address, ClientTls()) == b"hello"
        await until(lambda: caplog.text.count("made no connection") >= 2, "both complaints")

    with_server(server_tls(certificates), scenario)


def test_blocking_sockets_speak_it_too(certificates: Certificates) -> None:
    def talk(address: str) -> None:
        access = Access(tls=ClientTls(ca_file=certificates.ca))
        connection = BlockingConnection(address, access=access)
        assert connection.invoke(1, None, b"x" * 500_000).body == b"x" * 500_000
        assert len(connection.request_all([(1, None)] * 20)) == 20
        assert connection.is_alive()
        cache = ConnectionCache()
        cache.give_back(connection)
        assert cache.take(address, access) is connection
        connection.close()

    async def scenario(server: Server) -> None:
        await asyncio.to_thread(talk, server.address)

    with_server(server_tls(certificates, TlsMode.ENFORCING), scenario)


def test_files_that_do_not_fit_name_the_setting(certificates: Certificates) -> None:
    with pytest.raises(ConfigError, match="tls_ca_file='/nowhere'"):
        ClientTls(ca_file="/nowhere").context()
    with pytest.raises(ConfigError, match="tls_key_file='/nowhere'.*no such file"):
        ClientTls(cert_file=certificates.cert, key_file="/nowhere").context()
    for password in (None, "wrong"):
        locked = ClientTls(
            cert_file=certificates.cert, key_file=certificates.locked_key, key_password=password
        )
        with pytest.raises(ConfigError, match="tls_key_password does not fit"):
            locked.context()
    with pytest.raises(ConfigError, match="tls_cert_file"):
        ServerTls(cert_file=certificates.ca, key_file=certificates.key).context()
    with pytest.raises(ConfigError, match="client_auth='require'.*ca_file"):
        ServerTls(cert_file=certificates.cert, client_auth=ClientAuth.REQUIRE)


def test_passwords_are_shown_nowhere() -> None:
    assert "secret" not in repr(ClientTls(cert_file="c", key_password="secret"))
    assert "secret" not in repr(ServerTls(cert_file="c", key_password="secret"))
