"""What every process is given that is a broker and nothing else: its loop, its log, its signals."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Coroutine
from typing import Any

from orbitmq import descriptors


def log_to_stderr(level: str, who: str = "") -> None:
    """Have what is logged from ``level`` on told on stderr, of a process known as ``who``."""
    told_by = f"{who} " if who else ""
    logging.basicConfig(
        level=level.upper(), format=f"%(asctime)s %(levelname)s {told_by}%(name)s: %(message)s"
    )


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run ``main`` to its end, with as many files and connections as this user may have open."""
    descriptors.raise_limit()
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(main)


def started() -> None:
    """Say that its brokers serve: what is there now stays as long as the process does.

    The garbage collector need not look for garbage in it, which would hold up the loop for 25 ms
    now and then, and for longer with many topics.
    """
    gc.freeze()


def told_to_stop() -> asyncio.Event:
    """What is set when the process is told to stop, by SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return stop


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
