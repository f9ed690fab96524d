"""The name servers of a client: one is asked, the next takes over when it fails."""

from __future__ import annotations

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

    They are tried in a random order, so that many clients spread over them
    (NettyRemotingClient.updateNameServerAddressList).
    """

    def __init__(self, addresses: Sequence[str], pool: ConnectionPool, clock: Clock) -> None:
        self.addresses = ";".join(addresses)
        self._order = random.sample(addresses, len(addresses))
        self._pool = pool
        self._clock = clock
        self._failing = False

    async def ask(self, code: int, header: Header, *, timeout_ms: int) -> RemotingCommand:
        """The answer of the first that gives one; its response code is the caller's to judge.

        Each gets its share of the time. Raises ConnectError, naming them all, when none answers.
        """

        async def ask_one(address: str, share_ms: int) -> RemotingCommand:
            connection = await self._pool.connect(address, timeout_ms=share_ms)
            return await connection.call(code, header, timeout_ms=share_ms)

        return await self._first(ask_one, timeout_ms)

    async def check(self, *, timeout_ms: int) -> None:
        """Raise ConnectError, as :meth:`ask`, unless one of them can be connected to."""

        async def connect(address: str, share_ms: int) -> None:
            await self._pool.connect(address, timeout_ms=share_ms)

        await self._first(connect, timeout_ms)

    async def _first(self, attempt: Callable[[str, int], Awaitable[T]], timeout_ms: int) -> T:
        deadline = self._clock.monotonic() + timeout_ms / 1000
        errors = []
        order = tuple(self._order)
        for tried, address in enumerate(order):
            left_ms = (deadline - self._clock.monotonic()) * 1000
            try:
                result = await attempt(address, max(1, int(left_ms / (len(order) - tried))))
            except NetworkError as error:
                errors.append(str(error))
                if self._order[0] == address:
                    self._order.append(self._order.pop(0))
            else:
                self._succeeded(address)
                return result
        self._failing = True
        raise ConnectError(
            f"no name server answers: {'; '.join(errors)} (name_server={self.addresses!r})",
            self.addresses,
        )

    def _succeeded(self, address: str) -> None:
        if self._failing:
            self._failing = False
            log.info("the name server %s answers again", address)
