"""What all faces for coroutines have in common: start, shutdown and ``async with``."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from orbitmq.client.face import ClientFace
from orbitmq.client.loop import loop_thread


class AsyncFace(ClientFace):
    """Start, shutdown and ``async with``, the same for all clients."""

    async def start(self) -> None:
        """Start. Raises ClientStateError when it was started before, or its group is in use.

        Cancelled, it is shut down again in the background.
        """
        core = self._service
        await loop_thread().run_async(core.start(), undo=core.shutdown)

    async def shutdown(self) -> None:
        """Finish what is under way, and leave the brokers. Does nothing the second time.

        Where another call is at it, this one waits for the same end. A cancel ends the wait, not
        the shutdown. Does nothing either in a process forked after the start.
        """
        await self._shut_down()

    async def _shut_down(self, *args: Any, **how: Any) -> None:
        core: Any = self._service
        if not core.lifecycle.gone:
            await loop_thread().run_async(core.shutdown(*args, **how), keep=True)

    async def update_name_server_address(self, addresses: str | Sequence[str]) -> None:
        """Ask these name servers from now on: ``host:port``, several as a list or joined by ``;``.

        Also for the other clients with the same client id. Raises ClientStateError unless running,
        ConfigError for what is no address. (MQClientAPIImpl.updateNameServerAddressList)
        """
        await loop_thread().run_async(self._core.update_name_server_address(addresses))

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
