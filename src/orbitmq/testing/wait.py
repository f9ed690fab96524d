"""Waiting for something that happens elsewhere, with a deadline instead of a lucky sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")

_PAUSE_SECONDS = 0.005


def wait_until(condition: Callable[[], _T], what: str = "", *, timeout: float = 30) -> _T:
    """Ask ``condition`` every few milliseconds until it answers something true; return that.

    Raises:
        TimeoutError: it did not within ``timeout`` seconds; the text says ``what`` was awaited.
    """
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not (answer := condition()):
        if time.monotonic() > deadline:
            awaited = what or repr(condition)
            raise TimeoutError(f"{awaited} did not come true within {timeout} s")
        pause.wait(_PAUSE_SECONDS)
    return answer
