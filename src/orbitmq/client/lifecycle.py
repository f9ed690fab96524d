"""The life of a client: made, running, shut down, in this order and once."""

from __future__ import annotations

from enum import Enum

from orbitmq.client.loop import LoopThread
from orbitmq.errors import ClientStateError


class ServiceState(Enum):
    """Where a client stands (Java's ``ServiceState``)."""

    CREATE_JUST = "made, not started"
    START_FAILED = "being started"
    RUNNING = "running"
    SHUTDOWN_ALREADY = "shut down"


class Lifecycle:
    """What may be done when to ``name``, such as ``producer 'orders'``.

    A start that fails leaves the client as it was made. What was started belongs to the private
    loop it was started on, and is gone with it: at the end of the process, and in a forked child.
    """

    __slots__ = ("name", "state", "thread")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ServiceState.CREATE_JUST
        self.thread: LoopThread | None = None

    @property
    def gone(self) -> bool:
        """Whether the loop it was started on is of no use here and now."""
        return self.thread is not None and self.thread.gone is not None

    @property
    def running(self) -> bool:
        """Whether it may be used."""
        return self.state is ServiceState.RUNNING and not self.gone

    def begin_start(self, thread: LoopThread) -> None:
        """Raise ClientStateError unless it was never started."""
        self.check_here()
        if self.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                f"{self.name} cannot be started: its state is {self.state.name} "
                f"({self.state.value}); a client starts once, make a new one to start again"
            )
        self.state = ServiceState.START_FAILED
        self.thread = thread

    def end_start(self, *, succeeded: bool) -> None:
        """Say how the start went."""
        self.state = ServiceState.RUNNING if succeeded else ServiceState.CREATE_JUST

    def begin_shutdown(self) -> None:
        """It is no longer running."""
        self.state = ServiceState.SHUTDOWN_ALREADY

    def check_running(self) -> None:
        """Raise ClientStateError unless it is running."""
        thread = self.thread
        if self.state is ServiceState.RUNNING and (thread is None or thread.gone is None):
            return
        self.check_here()
        raise ClientStateError(
            f"{self.name} cannot be used: its state is {self.state.name} "
            f"({self.state.value}); call start(), or use it in a with statement"
        )

    def check_here(self) -> None:
        """Raise ClientStateError where the loop it was started on is of no use."""
        thread = self.thread
        if thread is not None and thread.gone is not None:
            raise ClientStateError(f"{self.name} cannot be used: {thread.gone}")
