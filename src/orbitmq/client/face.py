"""What the faces of all clients, blocking and for asyncio, have in common."""

from __future__ import annotations

from typing import Any

from orbitmq.client.core import ClientCore


class ClientFace:
    """What a user holds of a client. Every use of it goes through ``_core``.

    That raises ClientStateError in a process forked after the start, whose connections and private
    loop are its parent's, and once the process ends.
    """

    _owner = True
    """Whether this is the face that is to be shut down."""

    def __init__(self, core: ClientCore) -> None:
        self._service = core
        if self._owner:
            core.has_face = True

    def __del__(self) -> None:
        core = self.__dict__.get("_service")  # None where the constructor failed
        if core is not None and self._owner and core.lifecycle.running:
            core.left_running()

    @property
    def _core(self) -> Any:
        core = self._service
        core.lifecycle.check_here()
        return core

    @_core.setter
    def _core(self, core: Any) -> None:
        self._service = core
