"""What all faces for coroutines have in common: start, shutdown and ``async with``."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from orbitmq.client.loop import loop_thread


class _Service(Protocol):
    """What a face needs to be started and shut down, on the private loop."""

    def start(self) -> Coroutine[Any, Any, None]:
        """Begin."""
        ...

    def shutdown(self) -> Coroutine[Any, Any, None]:
        """End."""
        ...

    def update_name_server_address(
        self, addresses: str | Sequence[str]
    ) -> Coroutine[Any, Any, None]:
        """Ask other name servers."""
        ...


class AsyncFace:
    """Start, shutdown and ``async with``, the same for all clients."""

    def __init__(self, service: _Service) -> None:
        self._service = service

    async def start(self) -> None:
        """Start. Raises ClientStateError when it was started before, or its group is in use."""
        await loop_thread().run_async(self._service.start())

    async def shutdown(self) -> None:
        """Finish what is under way, and leave the brokers. Does nothing the second time."""
        await loop_thread().run_async(self._service.shutdown())

    async def update_name_server_address(self, addresses: str | Sequence[str]) -> None:
        """Ask these name servers from now on: ``host:port``, several as a list or joined by ``;``.

        Also for the other clients with the same client id. Raises ClientStateError unless running,
        ConfigError for what is no address. (MQClientAPIImpl.updateNameServerAddressList)
        """
        await loop_thread().run_async(self._service.update_name_server_address(addresses))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.shutdown()
