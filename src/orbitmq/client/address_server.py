"""The address server: a plain HTTP page that says which name servers there are, asked regularly.

Follows DefaultTopAddressing and MQClientInstance.startScheduledTask; only for clients that are not
given the name servers themselves.
"""

from __future__ import annotations

import asyncio
import logging
from http.client import HTTPException
from typing import Final
from urllib.error import HTTPError
from urllib.request import OpenerDirector, ProxyHandler, build_opener

from orbitmq.client.config import name_servers
from orbitmq.client.name_servers import NameServers
from orbitmq.errors import ConfigError, ConnectError

log = logging.getLogger("orbitmq.client")

FIRST_POLL_MS: Final = 10_000
POLL_INTERVAL_MS: Final = 120_000
_TIMEOUT_SECONDS: Final = 3.0
_MOST_BYTES: Final = 64 * 1024


class AddressServer:
    """Keeps ``servers`` those that the page at ``url`` names.

    It is asked at once, then after ``first_poll_ms``, and then every ``poll_interval_ms``; while
    it has never named any, every ``first_poll_ms``.
    """

    def __init__(
        self,
        url: str,
        servers: NameServers,
        *,
        first_poll_ms: int = FIRST_POLL_MS,
        poll_interval_ms: int = POLL_INTERVAL_MS,
    ) -> None:
        self._url = url
        self._servers = servers
        self._first_poll_ms = first_poll_ms
        self._poll_interval_ms = poll_interval_ms

    async def run(self) -> None:
        """Ask again and again, until cancelled."""
        delay_ms = self._first_poll_ms
        while True:
            try:
                self._servers.update(await asyncio.to_thread(fetch_name_servers, self._url))
            except ConnectError as error:
                self._servers.not_named(error)
                log.warning("%s. Asking again in %g s", error, delay_ms / 1000)
            await asyncio.sleep(delay_ms / 1000)
            if self._servers.addresses:
                delay_ms = self._poll_interval_ms


def fetch_name_servers(url: str) -> tuple[str, ...]:
    """The name servers that the first line of the page at ``url`` names; waits for it.

    Raises ConnectError when there is no such page within 3 s, or it names none.
    """
    opener = build_opener(ProxyHandler({}))  # as Java: a proxy of the environment is not meant
    try:
        text = _read(opener, url).decode().strip()
        return name_servers(text.splitlines()[0] if text else "")
    except (OSError, HTTPException, UnicodeDecodeError) as error:
        raise ConnectError(
            f"the address server {url} does not answer: {error}; check address_server, or give "
            "name_server instead",
            url,
        ) from error
    except ConfigError as error:
        raise ConnectError(
            f"the address server {url} names no name servers (host:port;host:port...) but "
            f"{error.value!r}",
            url,
        ) from error


def _read(opener: OpenerDirector, url: str) -> bytes:
    try:
        with opener.open(url, timeout=_TIMEOUT_SECONDS) as page:
            content: bytes = page.read(_MOST_BYTES)
            return content
    except HTTPError as error:
        error.close()  # it is the answer, too
        raise
