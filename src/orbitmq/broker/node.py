"""One process's broker and name server, started and stopped together, or a broker alone."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Final

from orbitmq.broker import place
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.registrar import REGISTER_MS, Registrar
from orbitmq.broker.server import BrokerServer
from orbitmq.broker.worker_plan import check_lone
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.nameserver.routes import BrokerId, Registration, RouteTable
from orbitmq.nameserver.server import NameServer
from orbitmq.net.server import listen
from orbitmq.store.file_ops import FILE_OPS, FileOps
from orbitmq.wire.bodies import MASTER_ID, TopicConfig
from orbitmq.wire.headers import BrokerRequestHeader
from orbitmq.wire.ids import host_bytes

_FOR_EVER_MS: Final = 1 << 62


class Node:
    """A broker and the name server that knows it, on the running loop.

    ``name_server`` and ``address`` are their ``host:port`` as clients reach them,
    ``store_directory`` where the broker keeps everything. Where ``config`` gives name servers, the
    broker registers at those, and there is none here. ``busy_poll`` is for a process that is a
    broker and nothing else (see :mod:`orbitmq.net.busy_poll`).
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock = SYSTEM_CLOCK,
        file_ops: FileOps = FILE_OPS,
        *,
        busy_poll: bool = False,
    ) -> None:
        self.config = config
        self._busy_poll = busy_poll
        self._file_ops = file_ops
        self.name_server = ""
        self.address = ""
        self.store_directory = Path()
        self.broker: Broker
        self.server: BrokerServer
        self.routes = RouteTable()
        self._clock = clock
        self._open = AsyncExitStack()

    async def start(self) -> None:
        """Open the store, listen on both ports, and register the broker.

        Raises ConfigError or StoreError when that cannot be as ``config`` says; nothing stays
        open then.
        """
        async with AsyncExitStack() as undo:
            await self._start(undo)
            self._open = undo.pop_all()

    async def close(self) -> None:
        """Stop listening, save everything, and remove a temporary store."""
        await self._open.aclose()

    async def _start(self, undo: AsyncExitStack) -> None:
        config = self.config
        host = place.advertised(config)
        self.store_directory = place.directory(config, undo)
        check_lone(self.store_directory)
        listener = undo.enter_context(closing(listen(config.host, config.port)))
        fast_listener = None
        if config.fast_listen_port is not None:
            fast_listener = undo.enter_context(
                closing(listen(config.host, config.fast_listen_port))
            )
        port = listener.getsockname()[1]
        name_server = None
        if not config.name_servers:
            name_server = await place.start_name_server(
                config, self.store_directory, self._clock, self.routes, undo
            )
        self.broker = Broker(
            config,
            self.store_directory,
            host_bytes(host.numeric, port),
            self._clock,
            self._file_ops,
        )
        undo.callback(self.broker.close)
        self.address = place.address(host.name, port)
        self.server = BrokerServer(self.broker, busy_poll=self._busy_poll)
        await self.server.start(listener, fast_listener)
        undo.push_async_callback(self.server.close)
        if name_server is None:
            self.name_server = ";".join(config.name_servers)
            await self._start_registrar(undo)
        else:
            self.name_server = place.address(host.name, name_server.port)
            self._register(self.broker.topics.topics.values())
            self.broker.topics.on_change = self._register
            self.broker.every(REGISTER_MS, lambda: self._take_order_config(name_server))
            self._take_order_config(name_server)

    async def _start_registrar(self, undo: AsyncExitStack) -> None:
        config = self.config
        identity = BrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=self.address,
            cluster_name=config.cluster_name,
            broker_id=MASTER_ID,
        )
        topics = self.broker.topics
        tls = config.name_server_tls
        registrar = Registrar(
            config.name_servers, identity, topics, tls=None if tls is None else tls.context()
        )
        topics.on_change = registrar.topics_changed
        undo.push_async_callback(registrar.close)
        await registrar.start()

    def _take_order_config(self, name_server: NameServer) -> None:
        """Learn of ordered topics, as a broker elsewhere does when it registers."""
        self.broker.topics.mark_ordered(name_server.order_config() or ())

    def _register(self, topics: Iterable[TopicConfig]) -> None:
        """Tell the name server of topics; being in one process, it needs no heartbeat."""
        config = self.config
        self.routes.register(
            Registration(
                BrokerId(config.cluster_name, self.address),
                config.broker_name,
                MASTER_ID,
                timeout_ms=_FOR_EVER_MS,
                acting_master=False,
            ),
            map(self.broker.topics.announced, topics),
            self.broker.topics.version,
            connection=None,
            now_ms=0,
        )
