"""ListenerLoop: an event loop for coroutine listeners of users who have none."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from typing import Final

from orbitmq.client.loop import new_event_loop

log = logging.getLogger("orbitmq.client.functions")

_END_SECONDS: Final = 1.0


class ListenerLoop:
    """An event loop on a thread of its own, called ``name``.

    It runs until it is told to stop, whatever its tasks raise or do to it: asyncio ends a loop
    where a task raises SystemExit or KeyboardInterrupt.
    """

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._stopping = False
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise

    def is_here(self) -> bool:
        """Whether the caller runs on it."""
        return threading.current_thread() is self._thread

    def stop(self) -> concurrent.futures.Future[None]:
        """Begin to end it: what still runs is cancelled. The future is done once it has ended."""
        self._stopping = True
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.loop.stop)
        return self._ended

    async def end(self) -> None:
        """Stop it; one that a listener keeps busy is left behind after a second, with a warning."""
        ended = asyncio.wrap_future(self.stop())
        done, _ = await asyncio.wait([ended], timeout=_END_SECONDS)
        if done:
            self._thread.join()
        else:
            log.warning(
                "%s is left behind: a listener blocks its event loop, or goes on although it was "
                "cancelled",
                self._thread.name,
            )

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
                runner.get_loop()
                while not self._stopping:
                    self._run_on()
        except BaseException:
            log.exception("the tasks of %s were not ended in order", self._thread.name)
        finally:
            self._ended.set_result(None)

    def _run_on(self) -> None:
        try:
            self.loop.run_forever()
        except BaseException:
            log.exception("a task raised this on %s, which goes on", self._thread.name)
