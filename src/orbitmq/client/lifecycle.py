"""The life of a client: made, running, shut down, in this order and once."""

from __future__ import annotations

from enum import Enum

from orbitmq.errors import ClientStateError


class ServiceState(Enum):
    """Where a client stands (Java's ``ServiceState``)."""

    CREATE_JUST = "made, not started"
    START_FAILED = "being started"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "shut down"


class Lifecycle:
    """What may be done when to ``name``, such as ``producer 'orders'``.

    A start that fails leaves the client as it was made.
    """

    __slots__ = ("_name", "state")

    def __init__(self, name: str) -> None:
        self._name = name
        self.state = ServiceState.CREATE_JUST

    @property
    def running(self) -> bool:
        """Whether it may be used."""
        return self.state is ServiceState.RUNNING

    def begin_start(self) -> None:
        """Raise ClientStateError unless it was never started."""
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                f"{self._name} cannot be started: its state is {self.state.name} "
                f"({self.state.value}); a client starts once, make a new one to start again"
            )
        self.state = ServiceState.START_FAILED

    def end_start(self, *, succeeded: bool) -> None:
        """Say how the start went."""
        self.state = ServiceState.RUNNING if succeeded else ServiceState.CREATE_JUST

    def begin_shutdown(self) -> bool:
        """Whether there is anything to shut down; it is no longer running then."""
        was_running = self.running
        if was_running:
            self.state = ServiceState.SHUTDOWN_ALREADY
        return was_running

    def check_running(self) -> None:
        """Raise ClientStateError unless it is running."""
        if self.state is not ServiceState.RUNNING:
            raise ClientStateError(
                f"{self._name} cannot be used: its state is {self.state.name} "
                f"({self.state.value}); call start(), or use it in a with statement"
            )
