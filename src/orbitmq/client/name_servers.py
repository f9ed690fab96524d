"""The name servers of a client: one is asked, the next takes over when it fails."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from orbitmq.clock import Clock
from orbitmq.errors import ConnectError, NetworkError
from orbitmq.net.pool import ConnectionPool
from orbitmq.wire.command import Header, RemotingCommand

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")


class NameServers:
    """Asks the name server that answered last, and the others in turn when it does not.

    They are tried in a random order, so that many clients spread over them, and may change at any
    time (NettyRemotingClient.updateNameServerAddressList). Without ``addresses`` whoever asks
    waits until an address server has named some.
    """

    def __init__(self, addresses: Sequence[str], pool: ConnectionPool, clock: Clock) -> None:
        self.addresses = ";".join(addresses)
        self._order = random.sample(addresses, len(addresses))
        self._known = asyncio.Event()
        self._why_unknown = "the address server has not answered yet"
        if addresses:
            self._known.set()
        self._pool = pool
        self._clock = clock
        self._failing = False

    def update(self, addresses: Sequence[str]) -> None:
        """Ask these from now on; connections to those that are no longer among them end."""
        dropped = set(self._order) - set(addresses)
        if not dropped and len(addresses) == len(self._order):
            return
        log.info("the name servers are %s now, before %s", addresses, self.addresses or "unknown")
        self.addresses = ";".join(addresses)
        self._order = random.sample(addresses, len(addresses))
        self._known.set()
        for address in dropped:
            self._pool.disconnect(address)

    def not_named(self, error: ConnectError) -> None:
        """The address server gave none; those known stay."""
        self._why_unknown = str(error)

    async def all(self, *, timeout_ms: int) -> list[str]:
        """The addresses of all. Raises ConnectError where none is known in time."""
        if not self._known.is_set():
            await self._wait_until_known(timeout_ms)
        return sorted(self._order)

    async def ask(self, code: int, header: Header | None, *, timeout_ms: int) -> RemotingCommand:
        """The answer of the first that gives one; its response code is the caller's to judge.

        Each gets its share of the time. Raises ConnectError, naming them all, when none answers.
        """

        async def ask_one(address: str, share_ms: int) -> RemotingCommand:
            return await self._pool.call(address, code, header, timeout_ms=share_ms)

        return await self._first(ask_one, timeout_ms)

    async def check(self, *, timeout_ms: int) -> None:
        """Raise ConnectError, as :meth:`ask`, unless one of them can be connected to."""

        async def connect(address: str, share_ms: int) -> None:
            await self._pool.connect(address, timeout_ms=share_ms)

        await self._first(connect, timeout_ms)

    async def _first(self, attempt: Callable[[str, int], Awaitable[T]], timeout_ms: int) -> T:
        deadline = self._clock.monotonic() + timeout_ms / 1000
        if not self._known.is_set():
            await self._wait_until_known(timeout_ms)
        errors = []
        order = tuple(self._order)
        for tried, address in enumerate(order):
            left_ms = (deadline - self._clock.monotonic()) * 1000
            try:
                result = await attempt(address, max(1, int(left_ms / (len(order) - tried))))
            except NetworkError as error:
                errors.append(str(error))
                if self._order[:1] == [address]:
                    self._order.append(self._order.pop(0))
            else:
                self._succeeded(address)
                return result
        self._failing = True
        raise ConnectError(
            f"no name server answers: {'; '.join(errors)} (name_server={self.addresses!r})",
            self.addresses,
        )

    async def _wait_until_known(self, timeout_ms: int) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._known.wait()
        except TimeoutError:
            raise ConnectError(f"no name server is known: {self._why_unknown}") from None

    def _succeeded(self, address: str) -> None:
        if self._failing:
            self._failing = False
            log.info("the name server %s answers again", address)
