"""What all synchronous faces have in common: start, shutdown and ``with``."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

from orbitmq.client.loop import loop_thread


class Service(Protocol):
    """What a face needs to be started and shut down."""

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


class Face:
    """Start, shutdown and ``with``, the same for all clients."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def start(self) -> None:
        """Start. Raises ClientStateError when it was started before, or its group is in use."""
        loop_thread().run(self._service.start())

    def shutdown(self) -> None:
        """Finish what is under way, and leave the brokers. Does nothing the second time."""
        loop_thread().run(self._service.shutdown())

    def update_name_server_address(self, addresses: str | Sequence[str]) -> None:
        """Ask these name servers from now on: ``host:port``, several as a list or joined by ``;``.

        Also for the other clients with the same client id. Raises ClientStateError unless running,
        ConfigError for what is no address. (MQClientAPIImpl.updateNameServerAddressList)
        """
        loop_thread().run(self._service.update_name_server_address(addresses))

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()
