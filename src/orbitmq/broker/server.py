"""The broker on a port: requests to handlers, turns to the store, time to the periodic jobs."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final

from orbitmq.broker.answers import WriteAnswers
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.handlers.client import ClientHandlers
from orbitmq.broker.handlers.groups import GroupHandlers
from orbitmq.broker.handlers.offset import OffsetHandlers
from orbitmq.broker.handlers.operator import OperatorHandlers
from orbitmq.broker.handlers.pull import PullHandlers
from orbitmq.broker.handlers.query import QueryHandlers
from orbitmq.broker.handlers.relay import RelayHandlers
from orbitmq.broker.handlers.replicas import ReplicaHandlers
from orbitmq.broker.handlers.reply import ReplyHandlers
from orbitmq.broker.handlers.send import SendHandlers
from orbitmq.broker.handlers.settings import SettingsHandlers
from orbitmq.broker.handlers.statistics import StatisticsHandlers
from orbitmq.broker.handlers.timers import TimerHandlers
from orbitmq.broker.handlers.topics import TopicHandlers
from orbitmq.broker.handlers.transaction import TransactionHandlers
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import Dispatcher
from orbitmq.net.receiving import Receiving
from orbitmq.net.server import Server
from orbitmq.net.turn import Turn

log = logging.getLogger("orbitmq.broker")

_LONGEST_SLEEP_SECONDS: Final = 5.0
"""An upper bound, because the wall clock that delayed messages wait for may be set."""


class BrokerServer:
    """Serves ``broker`` to remoting clients; made and used on its loop.

    A tick is what one read of one connection brings: its requests are carried out. What all ticks
    of a turn of the loop stored is written once, and then their answers leave. ``busy_poll`` is for
    a process in which nothing else runs (see :mod:`orbitmq.net.busy_poll`).
    """

    def __init__(self, broker: Broker, *, busy_poll: bool = False) -> None:
        self.broker = broker
        self._loop = asyncio.get_running_loop()
        self._turn = Turn(self._turn_ends, busy_poll=busy_poll)
        self._answers = WriteAnswers(broker, self._loop, self._turn.end)
        self._clients = ClientHandlers(broker)
        self._sends = SendHandlers(broker, self._answers)
        self._pulls = PullHandlers(broker)
        self._settings = SettingsHandlers(broker)
        broker.answer_ready = self._pulls.answer_ready
        broker.every(lambda: broker.config.scan_interval_ms, self._clients.drop_silent)
        families = (
            self._sends,
            TransactionHandlers(broker, self._answers),
            self._pulls,
            OffsetHandlers(broker),
            self._clients,
            TopicHandlers(broker),
            GroupHandlers(broker),
            ReplicaHandlers(broker),
            self._settings,
            StatisticsHandlers(broker),
            OperatorHandlers(broker),
            QueryHandlers(broker),
            RelayHandlers(broker),
            ReplyHandlers(broker),
            TimerHandlers(broker, self._answers),
        )
        handlers = {
            code: handler for family in families for code, handler in family.table().items()
        }
        dispatch = Dispatcher(handlers).dispatch
        self._server, self._fast_server = (
            Server(
                dispatch,
                on_tick_end=self._pulls.tick_end,
                on_closed=self._closed,
                tls=broker.config.tls,
                idle_ms=broker.config.connection_idle_ms,
                turn=self._turn,
            )
            for _ in range(2)
        )
        broker.every(lambda: broker.config.scan_interval_ms, self._hang_up_on_idle)
        broker.settings.watch(self._renew)
        self._receiving = Receiving()
        self._timer: asyncio.TimerHandle | None = None
        self._renew(broker.config)
        self._losses_to_tell = False
        self._timer_due_ms: int | None = None

    async def start(
        self, listener: socket.socket, fast_listener: socket.socket | None = None
    ) -> None:
        """Serve who connects to the listeners, the second the VIP channel's; it closes both."""
        await self._server.serve(listener)
        if fast_listener is not None:
            await self._fast_server.serve(fast_listener)
        self._run_later()

    async def close(self) -> None:
        """Stop listening, hang up, and run no more jobs; the broker itself stays open."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        await self._fast_server.close()
        await self._server.close()
        self._settings.close()

    def run_due(self) -> None:
        """Do what is due by the broker's clock, and set the timer for what comes next.

        It writes, too, which must not bring to the log what nobody has settled yet.
        """
        self._turn.end()
        self.broker.run_due()
        self._run_later()

    def _turn_ends(self) -> bool:
        broker = self.broker
        self._sends.carry_out()
        self._answers.settle()
        self._pulls.tick_end()
        broker.saved.save_changes()
        broker.saved.save_small_tables()
        if broker.due_ms != self._timer_due_ms:
            self._run_later()
        return self._answers.unanswered > 0

    def _renew(self, config: BrokerConfig) -> None:
        """Have what serves connections take new settings."""
        self._sends.renew(config)
        self._pulls.renew(config)
        for server in (self._server, self._fast_server):
            server.idle_ms = config.connection_idle_ms
            server.max_connections = config.max_connections
            server.receiving = self._receiving
        self._receiving.most = config.max_receiving_bytes
        self._answers.renew(config)
        if self._timer is not None:
            self._run_later()

    def _hang_up_on_idle(self) -> None:
        for server in (self._server, self._fast_server):
            server.sweep(self.broker.now_ms())

    def _run_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = self.broker.due_ms
        seconds = min(self.broker.wait_ms() / 1000, _LONGEST_SLEEP_SECONDS)
        self._timer = self._loop.call_later(seconds, self.run_due)

    def _closed(self, connection: Connection, _error: Exception | None) -> None:
        self._clients.disconnected(connection)
        if not self._losses_to_tell:
            self._losses_to_tell = True
            self._loop.call_soon(self._tell_of_losses)

    def _tell_of_losses(self) -> None:
        """After all the connections that were lost at the same time."""
        self._losses_to_tell = False
        self._clients.tell_of_losses()
