"""Waiting in a coroutine, as `orbitmq.testing.wait` does in a thread."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_SECONDS = 60


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Let the loop run until ``condition`` holds, for what happens there or elsewhere.

    Raises:
        TimeoutError: it did not within 60 s; the text says ``what`` was awaited.
    """
    deadline = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what or condition!r} did not come true within {_SECONDS} s")
        await asyncio.sleep(0.002)
