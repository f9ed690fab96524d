"""What the cores of all clients have in common: how they are started and shut down."""

from __future__ import annotations

import asyncio
import logging
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence

from orbitmq.client.instance import ClientInstance
from orbitmq.client.lifecycle import Lifecycle, ServiceState
from orbitmq.client.loop import LoopThread, loop_thread
from orbitmq.errors import ClientStateError

log = logging.getLogger("orbitmq.client")


class ClientCore(ABC):
    """A client without a face; ``name`` is such as ``producer 'orders'``.

    Its coroutines run on the private loop.
    """

    def __init__(self, name: str) -> None:
        self.lifecycle = Lifecycle(name)
        self.thread: LoopThread
        self.instance: ClientInstance
        self.has_face = False
        """Whether a user is to shut it down."""
        self._starting: asyncio.Future[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin. Raises ClientStateError when it was started before, or its group is in use."""
        thread = loop_thread()
        self.lifecycle.begin_start(thread)
        self.thread = thread
        starting = self._starting = asyncio.get_running_loop().create_future()
        succeeded = False
        try:
            await self.bring_up()
            succeeded = True
        finally:
            self.lifecycle.end_start(succeeded=succeeded)
            starting.set_result(None)
        thread.clients.add(self)
        self.started()

    async def shutdown(self) -> None:
        """End; nothing to a client that does not run, or was made by the parent of this process.

        All callers wait for the same end. One who is cancelled waits no more, and it goes on.
        """
        if self.lifecycle.gone:
            return
        if self._starting is not None:
            await asyncio.wait([self._starting])
        if self._ending is None:
            if not self.lifecycle.running:
                return
            self._ending = asyncio.get_running_loop().create_task(self._end())
        await asyncio.shield(self._ending)

    async def _end(self) -> None:
        try:
            await self.take_down()
        except Exception:
            log.exception("the shutdown of %s went wrong", self.lifecycle.name)
            raise
        finally:
            self.lifecycle.begin_shutdown()
            self.thread.clients.discard(self)

    async def update_name_server_address(self, addresses: str | Sequence[str]) -> None:
        """Ask these name servers from now on."""
        self.lifecycle.check_running()
        self.instance.update_name_server_address(addresses)

    @abstractmethod
    async def bring_up(self) -> None:
        """Do what a start is; where it fails, leave nothing behind."""

    @abstractmethod
    def started(self) -> None:
        """It runs: begin what goes on in the background."""

    @abstractmethod
    async def take_down(self) -> None:
        """Do what a shutdown is; says when the client stops running, by its lifecycle."""

    # What the private loop asks at the end of the process

    def loop_ends(self, error: ClientStateError) -> None:  # noqa: B027 - most need no more
        """Nobody waits for an outcome, unless a subclass says otherwise."""

    def left_running(self) -> None:
        """Warn of a client that was not shut down."""
        if self.has_face and self.lifecycle.state is ServiceState.RUNNING:
            self.has_face = False  # told once
            warnings.warn(
                f"{self.lifecycle.name} was not shut down: call shutdown(), or use it in a with "
                "statement",
                ResourceWarning,
                stacklevel=2,
            )
