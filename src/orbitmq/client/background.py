"""Background: a task beside everything else, whose failure is not missed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("orbitmq.client")


class Background:
    """Runs ``coroutine`` on the running loop until it ends or :meth:`stop` ends it.

    ``what`` names it in the log, where what it raises is told.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, None], what: str) -> None:
        self._what = what
        self._task = asyncio.get_running_loop().create_task(coroutine)
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended."""
        self._task.cancel()
        await asyncio.wait([self._task])

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s ended by an error; please report this", self._what, exc_info=error)
