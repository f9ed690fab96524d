"""Answers that wait for the store: a message is acknowledged only once it is written.

All that one turn of the loop stages is written together, and its answers are let go together: after
the write, or with SYNC_FLUSH after the fdatasync that follows it. If the write fails, the same
requests are answered with the reason. If the write works and the flush does not, the messages are
stored and delivered: sends are answered FLUSH_DISK_TIMEOUT, which clients take for sent, so none
comes twice (CommitLog.GroupCommitService). Unlike Java's broker, also with ASYNC_FLUSH while the
disk is known to fail.
"""

from __future__ import annotations

import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from orbitmq import codes
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, StoreError
from orbitmq.net.burst import Burst
from orbitmq.net.connection import Connection
from orbitmq.net.dispatcher import refusal
from orbitmq.store.config import FlushMode
from orbitmq.wire.command import RemotingCommand, decode_command, encode_response
from orbitmq.wire.plain_sends import Noted

log = logging.getLogger("orbitmq.broker")

_HEADER: Final = 8
"""Where a frame's header begins."""
_FRAME: Final = 1024
"""About what a request takes besides its body, bytes."""


_Waiting: TypeAlias = tuple[Connection, RemotingCommand, bytes]
"""A request, and what its connection gets when the write succeeds."""

_connection: Final[Callable[[_Waiting], Connection]] = itemgetter(0)


class WriteAnswers:
    """The answers of the current turn to requests that stored something.

    ``send_now`` has answers leave that are let go later, by a flush.
    """

    def __init__(
        self, broker: Broker, loop: AbstractEventLoop, send_now: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._store = broker.store
        self._loop = loop
        self._send_now = send_now
        self._sync: Final = broker.config.store_config.flush_mode is FlushMode.SYNC
        self._waiting: list[_Waiting] = []
        self._complaint = ""
        self._burst = Burst(log)
        self._unanswered: dict[Connection, int] = {}
        self.unanswered = 0
        self.renew(broker.config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._most = config.max_unanswered_bytes
        self._most_of_one = config.max_unanswered_bytes_per_connection
        self._refuses = config.fast_failure

    def check_room(self, connection: Connection) -> None:
        """Raise BrokerError when too much waits for the disk already, of all or of one connection.

        To be asked before what is to wait is staged, where ``unanswered``, the bytes that wait, is
        not 0. Java's broker answers so when its queue of sends is full (BrokerFastFailure).
        """
        waits, most, key = self.unanswered, self._most, "maxUnansweredBytes"
        if waits < most:
            waits, most = self._unanswered.get(connection, 0), self._most_of_one
            key = "maxUnansweredBytesPerConnection"
        if waits >= most and self._refuses:
            self._burst.tell(
                "%d bytes of messages wait for the disk, and sends are refused until they are "
                "flushed (%s): use a faster disk, or raise the limit", waits, key,
            )  # fmt: skip
            raise BrokerError(
                codes.SYSTEM_BUSY,
                f"[OVERLOAD]system busy, start flow control for a while: {waits} bytes wait for "
                f"the disk ({key})",
            )

    def add(self, connection: Connection, request: RemotingCommand, answer: bytes) -> None:
        """Send ``answer`` when what ``request`` staged is stored, or the reason why it is not."""
        self._waiting.append((connection, request, answer))

    def add_all(self, noted: Sequence[Noted], answers: Sequence[bytes | None]) -> None:
        """As add(), for requests noted with their connection; None is no answer."""
        self._waiting += [
            (connection, request, answer)
            for (request, _, connection), answer in zip(noted, answers, strict=True)
            if answer is not None
        ]

    def settle(self) -> None:
        """Write what the turn staged, and let its answers go. Nothing is raised."""
        waiting = self._waiting
        if not waiting and not self._store.staged:
            return
        self._waiting = []
        try:
            self._broker.write()
        except StoreError as error:
            self._complain(str(error))
            _refuse(waiting, error)
            return
        self._complaint = ""
        if self._sync and waiting:
            self._await_flush(waiting)
        else:
            _release(waiting, self._store.flush_failure)

    def _await_flush(self, waiting: list[_Waiting]) -> None:
        """Let the answers go once what they tell of is on the disk."""
        sizes: dict[Connection, int] = {}
        for connection, request, _ in waiting:
            sizes[connection] = sizes.get(connection, 0) + _FRAME + len(request.body)
        for connection, size in sizes.items():
            self._unanswered[connection] = self._unanswered.get(connection, 0) + size
            self.unanswered += size

        def release(error: StoreError | None) -> None:
            for connection, size in sizes.items():
                self.unanswered -= size
                left = self._unanswered[connection] - size
                if left:
                    self._unanswered[connection] = left
                else:
                    del self._unanswered[connection]
            _release(waiting, error)
            self._send_now()

        self._store.request_flush(lambda error: self._loop.call_soon_threadsafe(release, error))

    def _complain(self, reason: str) -> None:
        """Log why messages are refused: once, not for every turn while it lasts."""
        if reason != self._complaint:
            self._complaint = reason
            log.error("messages are refused: %s", reason)


def _refuse(waiting: list[_Waiting], error: StoreError) -> None:
    for connection, request, _ in waiting:
        connection.send(refusal(request, connection, error))


def _release(waiting: list[_Waiting], unflushed: StoreError | None) -> None:
    for connection, answers in groupby(waiting, _connection):
        connection.send(
            *[
                answer if unflushed is None else _in_doubt(request, answer)
                for _, request, answer in answers
            ]
        )


def _in_doubt(request: RemotingCommand, answer: bytes) -> bytes:
    """``answer`` to a request whose message is stored, but not flushed.

    To a consumer that sent a message back only success means that it is stored.
    """
    if request.code == RequestCode.CONSUMER_SEND_MSG_BACK:
        return answer
    fields = decode_command(request.serialize_type, answer[_HEADER:], b"").ext_fields
    return encode_response(
        request, codes.FLUSH_DISK_TIMEOUT, fields, remark="stored, but the disk cannot be flushed"
    )
