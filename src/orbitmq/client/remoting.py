"""How the requests of a client leave: to which port, over which connections, signed by whom.

What MQClientAPIImpl and NettyRemotingClient are for Java's client instance.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq import codes
from orbitmq.client.config import ClientConfig, name_servers
from orbitmq.client.name_servers import NameServers
from orbitmq.client.routes import RouteTable
from orbitmq.clock import Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, NetworkError, for_code
from orbitmq.net.addresses import vip_address
from orbitmq.net.connection import Connection, RequestHandler, describe_code
from orbitmq.net.pool import ConnectionPool
from orbitmq.wire.command import Header, RemotingCommand

log = logging.getLogger("orbitmq.client")

_NEVER_VIP: Final = {
    RequestCode.HEART_BEAT,
    RequestCode.UNREGISTER_CLIENT,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.END_TRANSACTION,
}
"""What goes to a broker's first port although the VIP channel is on (MQClientAPIImpl)."""


class RemotingClient:
    """Asks brokers and name servers on behalf of one client id, on the private loop.

    ``on_request`` and ``on_connected`` are the ConnectionPool's. Raises ConfigError where the files
    of the TLS settings cannot be used.
    """

    def __init__(
        self,
        config: ClientConfig,
        clock: Clock,
        *,
        on_request: RequestHandler,
        on_connected: Callable[[str, Connection], None],
    ) -> None:
        self.config = config
        self.clock = clock
        self.routes = RouteTable()
        self.hook = config.hook
        """What every request carries besides its own fields; those who encode requests themselves
        apply it."""
        self.pool = ConnectionPool(
            on_request,
            connect_timeout_ms=config.connect_timeout_ms,
            on_connected=on_connected,
            hook=self.hook,
            tls=None if config.tls is None else config.tls.context(),
        )
        self.name_servers = NameServers(config.name_servers, self.pool, clock)
        self.send_address: Callable[[str], str | None] = (
            self._vip_master if config.vip_channel_enabled else self.routes.master_address
        )
        """Where the master of a broker name takes sends; None where no route names it."""

    def update_name_server_address(self, addresses: str | Sequence[str]) -> None:
        """Ask these name servers from now on; several as in ``name_server``, or one by one.

        Where an address server is asked too, its next answer replaces them. Raises ConfigError for
        one that is not ``host:port``.
        """
        text = addresses if isinstance(addresses, str) else ";".join(addresses)
        self.name_servers.update(name_servers(text))

    async def invoke(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """The answer of the server at ``address``, whatever its code.

        ``timeout_ms`` (default ``api_timeout_ms``) includes connecting. Raises NetworkError.
        """
        return await self.pool.call(
            self._channel(address, code),
            code,
            header,
            body,
            timeout_ms=self.config.api_timeout_ms if timeout_ms is None else timeout_ms,
        )

    async def request(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        timeout_ms: int | None = None,
    ) -> RemotingCommand:
        """As :meth:`invoke`, raising the BrokerError of any answer but success."""
        answer = await self.invoke(address, code, header, body, timeout_ms=timeout_ms)
        if answer.code != codes.SUCCESS:
            raise self.error_of(answer, address)
        return answer

    def error_of(self, answer: RemotingCommand, address: str) -> BrokerError:
        """The error that an answer other than success stands for."""
        return for_code(answer.code, answer.remark, address, self.config.access_key)

    def oneway(
        self, address: str, code: int, header: Header | None = None, body: bytes = b""
    ) -> None:
        """Send a request that gets no answer; that it could not be sent is only logged."""

        def ready(connection: Connection | NetworkError) -> None:
            if isinstance(connection, NetworkError):
                log.warning("%s was not sent to %s: %s", describe_code(code), address, connection)
            else:
                connection.oneway(code, header, body)

        self.pool.acquire(self._channel(address, code), ready)

    def _channel(self, address: str, code: int) -> str:
        """Which of a broker's two ports a request goes to."""
        if not self.config.vip_channel_enabled or code in _NEVER_VIP:
            return address
        return vip_address(address)

    def _vip_master(self, broker_name: str) -> str | None:
        address = self.routes.master_address(broker_name)
        return None if address is None else vip_address(address)
