"""The end of a producer: what is under way gets its time, and what is left is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from orbitmq.client.loop import LoopThread
from orbitmq.producer.sending import Sender, Sending

log = logging.getLogger("orbitmq.producer")


class Ending:
    """Waits for the messages of a producer, those that wait for room included, and its callbacks.

    Lives on the private loop, but for :meth:`on_idle`.
    """

    def __init__(self, group: str, sender: Sender, thread: LoopThread, patience: float) -> None:
        """``patience`` is how many seconds may pass without the end of anything waited for."""
        self._group = group
        self._sender = sender
        self._in_flight = sender.in_flight
        self._thread = thread
        self._patience = patience
        self._idle = asyncio.Event()

    def on_idle(self) -> None:
        """Look again: nothing of a kind is under way any more. For any thread."""
        self._thread.post(self._idle.set)

    async def shutdown(self, *, with_callbacks: bool) -> None:
        """Wait for every outcome, and until callbacks have been called as long as they end."""
        await self._wait(with_callbacks=False)
        self._tell_messages(self._left())
        if with_callbacks:
            await self._wait(with_callbacks=True)
            self._tell_callbacks()

    async def at_exit(self) -> None:
        """As :meth:`shutdown`, but messages have the patience in all, and then callbacks."""
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
        in_flight = self._in_flight
        while True:
            self._idle.clear()
            before = self._progress()
            if not (
                self._sender.pending
                or in_flight.messages
                or in_flight.waiting
                or (with_callbacks and in_flight.callbacks)
            ):
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    await self._idle.wait()
            if self._progress() == before and not self._sender.pending:
                return  # whoever was given room has gone, or a callback does not end

    def _progress(self) -> tuple[int, ...]:
        in_flight = self._in_flight
        return (
            in_flight.messages,
            in_flight.waiting,
            self._sender.pending,
            self._thread.callbacks_called,
        )

    def _left(self) -> int:
        """How many messages have no outcome; a few of them may not even have begun."""
        in_flight = self._in_flight
        begun = sum(isinstance(held, Sending) and held.begun for held in in_flight.holders())
        not_begun = in_flight.messages - begun + in_flight.waiting
        return self._sender.pending + not_begun

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
                "producer %s: %d callbacks have not returned, and none did within %g s: make them "
                "shorter",
                self._group,
                left,
                self._patience,
            )
