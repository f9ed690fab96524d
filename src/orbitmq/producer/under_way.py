"""What a producer has under way when it ends: it gets its time, and what is left is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from orbitmq.client.loop import LoopThread
from orbitmq.producer.in_flight import InFlight
from orbitmq.producer.sender import Sender

log = logging.getLogger("orbitmq.producer")


class UnderWay:
    """Waits for messages, those that wait for room included, and callbacks.

    ``patience`` is how many seconds may pass without any of them ending. Lives on the private
    loop.
    """

    def __init__(
        self,
        group: str,
        sender: Sender,
        in_flight: InFlight,
        thread: LoopThread,
        *,
        patience: float,
    ) -> None:
        self._group = group
        self._sender = sender
        self._in_flight = in_flight
        self._thread = thread
        self._patience = patience

    async def end(self, *, with_callbacks: bool) -> None:
        """Wait for every outcome, and for callbacks as long as they end."""
        await self._wait(with_callbacks=False)
        self._tell_messages(self._left())
        if with_callbacks:
            await self._wait(with_callbacks=True)
            self._tell_callbacks()

    async def end_at_exit(self) -> None:
        """The same with a limit: messages have the patience in all, and then callbacks have it."""
        failed = self._sender.failed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._wait(with_callbacks=False)
        self._tell_messages(self._left() + self._sender.failed - failed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience):
                await self._wait(with_callbacks=True)
        self._tell_callbacks()

    async def _wait(self, *, with_callbacks: bool) -> None:
        idle = asyncio.Event()
        self._sender.on_idle = idle.set
        self._in_flight.on_idle = partial(self._thread.post, idle.set)
        try:
            while self._left() or (with_callbacks and self._in_flight.callbacks):
                before = self._progress()
                try:
                    async with asyncio.timeout(self._patience):
                        await idle.wait()
                    idle.clear()
                except TimeoutError:
                    if self._progress() == before and not self._sender.pending:
                        return  # whoever was given room has gone, or a callback does not end
        finally:
            self._sender.on_idle = self._in_flight.on_idle = None

    def _left(self) -> int:
        """How many messages have no outcome; some may be in hand-over, or wait for room."""
        in_flight = self._in_flight
        return len(self._sender.pending.union(in_flight.holders())) + in_flight.waiting

    def _progress(self) -> tuple[int, ...]:
        in_flight = self._in_flight
        return (
            in_flight.messages,
            in_flight.waiting,
            len(self._sender.pending),
            self._thread.callbacks_called,
        )

    def _tell_messages(self, lost: int) -> None:
        if lost:
            log.warning(
                "producer %s: %d messages that were on their way or waited for room were not "
                "acknowledged; wait for their outcome before the end",
                self._group,
                lost,
            )

    def _tell_callbacks(self) -> None:
        left = self._in_flight.callbacks
        if left:
            log.warning(
                "producer %s: %d callbacks have not returned, waited for %g s in vain: make them "
                "shorter",
                self._group,
                left,
                self._patience,
            )
