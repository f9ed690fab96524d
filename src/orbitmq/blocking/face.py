"""What all synchronous faces have in common: start, shutdown and ``with``."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from orbitmq.client.face import ClientFace
from orbitmq.client.loop import loop_thread


class Face(ClientFace):
    """Start, shutdown and ``with``, the same for all clients."""

    def start(self) -> None:
        """Start. Raises ClientStateError when it was started before, or its group is in use.

        Interrupted by Ctrl-C or a time limit, it is shut down again in the background.
        """
        core = self._service
        loop_thread().run(core.start(), undo=core.shutdown)

    def shutdown(self) -> None:
        """Finish what is under way, and leave the brokers. Does nothing the second time.

        Where another call is at it, this one waits for the same end. Ctrl-C ends the wait, not the
        shutdown. Does nothing either in a process forked after the start.
        """
        self._shut_down()

    def _shut_down(self, *args: Any, **how: Any) -> None:
        core: Any = self._service
        if not core.lifecycle.gone:
            loop_thread().run(core.shutdown(*args, **how), keep=True)

    def update_name_server_address(self, addresses: str | Sequence[str]) -> None:
        """Ask these name servers from now on: ``host:port``, several as a list or joined by ``;``.

        Also for the other clients with the same client id. Raises ClientStateError unless running,
        ConfigError for what is no address. (MQClientAPIImpl.updateNameServerAddressList)
        """
        loop_thread().run(self._core.update_name_server_address(addresses))

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
