"""A broker and name server inside a Python process, on a thread of their own."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.node import Node
from orbitmq.broker.settings import load_config
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import ClientStateError

_T = TypeVar("_T")


class EmbeddedBroker:
    """A real broker with its name server, for tests, tools and small programs.

    ``store`` is the directory to keep messages in; without one, a temporary directory that goes at
    the end. Ports of 0 take any free one, which is the default. ``settings_file`` is a
    ``broker.conf`` with Apache's keys; what is given here goes before it. Further settings are
    those of BrokerConfig, ``clock`` for tests that move the time. Runs while the ``with`` block
    does, or from :meth:`start` to :meth:`close`:

        with EmbeddedBroker() as broker:
            producer = Producer("tests", name_server=broker.name_server)

    In a forked child it does not run: its copy leaves store and ports to the process that started
    it. The process's limit of open files stays as it is: raise it for hundreds of clients.

    Raises ConfigError for a setting, and StoreError for a store, that cannot be used.
    """

    def __init__(
        self,
        store: str | Path | None = None,
        *,
        port: int | None = None,
        name_server_port: int | None = None,
        settings_file: str | Path | None = None,
        clock: Clock = SYSTEM_CLOCK,
        **settings: Any,
    ) -> None:
        given: dict[str, Any] = {
            "store_directory": None if store is None else Path(store),
            "port": port,
            "name_server_port": name_server_port,
        }
        settings |= {name: value for name, value in given.items() if value is not None}
        any_port: dict[str, Any] = {"port": 0, "name_server_port": 0}
        if settings_file is None:
            self.config = BrokerConfig(**any_port | settings)
        else:
            self.config = load_config(Path(settings_file), BrokerConfig(**any_port), settings)
        self._clock = clock
        self._node: Node | None = None
        self._process = 0
        self._failure: BaseException | None = None
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

    @property
    def flush_failure(self) -> str:
        """Why the disk does not take what is stored; empty while it does.

        Until it does again, sends are answered FLUSH_DISK_TIMEOUT.
        """
        return str(self._running().broker.store.flush_failure or "")

    def start(self) -> Self:
        """Start the thread; returns when clients can connect."""
        if self._is_running():
            raise ClientStateError("this broker runs already")
        started = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(started,), name="orbitmq-broker", daemon=True
        )
        self._node, self._failure = None, None
        self._process = os.getpid()
        self._thread.start()
        started.wait()
        if self._node is None:
            self._thread.join()
            self._raise_failure()
        return self

    def close(self) -> None:
        """Stop the broker, save everything, and remove a temporary store.

        Raises StoreError, or what else went wrong, when not everything was saved; the broker is
        stopped all the same. Does nothing the second time, nor in a forked child.
        """
        if self._is_running():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
            self._node = None
            self._raise_failure()

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

    def _is_running(self) -> bool:
        return self._node is not None and self._process == os.getpid()

    def _running(self) -> Node:
        if self._node is None or self._process != os.getpid():
            raise ClientStateError(
                "this broker does not run in this process: call start(), or use it by 'with'"
            )
        return self._node

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _run(self, started: threading.Event) -> None:
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
        except BaseException as error:  # noqa: BLE001 - it is raised where start() or close() was called
            self._failure = error
        finally:
            started.set()
