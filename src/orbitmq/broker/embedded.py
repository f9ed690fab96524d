"""A broker and name server inside a Python process, on a thread of their own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.node import Node
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import ClientStateError

_T = TypeVar("_T")


class EmbeddedBroker:
    """A real broker with its name server, for tests, tools and small programs.

    ``store`` is the directory to keep messages in; without one, a temporary directory that goes at
    the end. Ports of 0, the default, take any free one. Further settings are those of
    BrokerConfig, ``clock`` for tests that move the time. Runs while the ``with`` block does, or
    from :meth:`start` to :meth:`close`:

        with EmbeddedBroker() as broker:
            producer = Producer("tests", name_server=broker.name_server)

    The process's limit of open files stays as it is: raise it for hundreds of clients.

    Raises ConfigError for a setting, and StoreError for a store, that cannot be used.
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        port: int = 0,
        name_server_port: int = 0,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Any,
    ) -> None:
        self.config = BrokerConfig(
            store_directory=None if store is None else Path(store),
            port=port,
            name_server_port=name_server_port,
            **settings,
        )
        self._clock = clock
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread: threading.Thread

    @property
    def name_server(self) -> str:
        """The name server's ``host:port``, to be given to clients."""
        return self._running().name_server

    @property
    def address(self) -> str:
        """The broker's own ``host:port``."""
        return self._running().address

    @property
    def store(self) -> Path:
        """The directory messages are kept in."""
        return self._running().store_directory

    def start(self) -> Self:
        """Start the thread; returns when clients can connect."""
        if self._node is not None:
            raise ClientStateError("this broker runs already")
        started = threading.Event()
        failure: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run, args=(started, failure), name="orbitmq-broker", daemon=True
        )
        self._thread.start()
        started.wait()
        if failure:
            self._thread.join()
            raise failure[0]
        return self

    def close(self) -> None:
        """Stop the broker, save everything, and remove a temporary store. May be called twice."""
        if self._node is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._node = None

    def run_due(self) -> None:
        """Do what is due by the clock now: for tests, after they moved it."""
        self.call(lambda node: node.server.run_due())

    def call(self, function: Callable[[Node], _T]) -> _T:
        """Call ``function`` with the running node, on its thread; for looking into it."""
        node = self._running()

        async def on_loop() -> _T:
            return function(node)

        return asyncio.run_coroutine_threadsafe(on_loop(), self._loop).result()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> Node:
        if self._node is None:
            raise ClientStateError("this broker does not run: call start(), or use it by 'with'")
        return self._node

    def _run(self, started: threading.Event, failure: list[BaseException]) -> None:
        async def serve() -> None:
            node = Node(self.config, self._clock)
            await node.start()
            self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            self._node = node
            started.set()
            try:
                await self._stop.wait()
            finally:
                await node.close()

        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - it is raised where start() was called
            failure.append(error)
        finally:
            started.set()
