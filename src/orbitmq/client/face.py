"""What the faces of all clients, blocking and for asyncio, have in common."""

from __future__ import annotations

from typing import Generic, TypeVar

from orbitmq.client.core import ClientCore

CoreT = TypeVar("CoreT", bound=ClientCore)


class ClientFace(Generic[CoreT]):
    """What a user holds of a client. Every use of it goes through ``_core``.

    That raises ClientStateError in a process forked after the start, whose connections and private
    loop are its parent's, and once the process ends. The ``owner`` is the face that is to be shut
    down.
    """

    def __init__(self, core: CoreT, *, owner: bool = True) -> None:
        self._service = core
        self._owner = owner
        if owner:
            core.has_face = True

    def __del__(self) -> None:
        core = self.__dict__.get("_service")  # None where the constructor failed
        if core is not None and self._owner and core.lifecycle.running:
            core.left_running()

    @property
    def _core(self) -> CoreT:
        core = self._service
        core.lifecycle.check_here()
        return core
