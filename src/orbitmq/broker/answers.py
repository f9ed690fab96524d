"""Answers that wait for the store: a message is acknowledged only once it is written.

All that one tick stages is written together, and its answers are let go together: after the
write, or with SYNC_FLUSH after the fdatasync that follows it. If the write fails, the same
requests are answered with the reason.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from typing import Final, NamedTuple

from orbitmq.broker.broker import Broker
from orbitmq.errors import StoreError
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import refusal
from orbitmq.store.config import FlushMode
from orbitmq.wire.command import RemotingCommand

log = logging.getLogger("orbitmq.broker")


class _Acknowledgements(NamedTuple):
    """What one connection gets when the write succeeds, and what it had asked."""

    answers: list[bytes]
    requests: list[RemotingCommand]


class WriteAnswers:
    """The answers of the current tick to requests that stored something."""

    def __init__(self, broker: Broker, loop: AbstractEventLoop) -> None:
        self._broker = broker
        self._store = broker.store
        self._loop = loop
        self._sync: Final = broker.config.store_config.flush_mode is FlushMode.SYNC
        self._waiting: dict[Connection, _Acknowledgements] = {}
        self._complaint = ""

    def add(self, connection: Connection, request: RemotingCommand, answer: bytes) -> None:
        """Send ``answer`` when what ``request`` staged is stored, or the reason why it is not."""
        waiting = self._waiting.get(connection)
        if waiting is None:
            waiting = self._waiting[connection] = _Acknowledgements([], [])
        waiting.answers.append(answer)
        waiting.requests.append(request)

    def settle(self) -> None:
        """Write what the tick staged, and let its answers go. Nothing is raised."""
        waiting = self._waiting
        if not waiting and not self._store.staged:
            return
        self._waiting = {}
        try:
            self._broker.write()
        except StoreError as error:
            self._complain(str(error))
            self._release(waiting, error)
            return
        self._complaint = ""
        if self._sync and waiting:
            self._store.request_flush(
                lambda error: self._loop.call_soon_threadsafe(self._release, waiting, error)
            )
        else:
            self._release(waiting, None)

    def _complain(self, reason: str) -> None:
        """Log why messages are refused: once, not for every tick while it lasts."""
        if reason != self._complaint:
            self._complaint = reason
            log.error("messages are refused: %s", reason)

    def _release(
        self, waiting: dict[Connection, _Acknowledgements], error: StoreError | None
    ) -> None:
        for connection, (answers, requests) in waiting.items():
            if error is None:
                connection.send(*answers)
            else:
                connection.send(*(refusal(request, connection, error) for request in requests))
