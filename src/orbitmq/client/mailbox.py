"""How calls and results cross from one thread to another.

An exception that a signal handler raises, Ctrl-C's or a time limit's, lands between any two steps
of the main thread. Nothing here keeps another thread waiting for a step that was not taken.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")


class Mailbox:
    """Calls handed to ``loop`` from other threads, in order, coalesced into few wake-ups.

    ``post`` may be called from any thread. Between a wake-up and the turn of the loop that follows
    it, further posts only append. A post that was interrupted may have left its call here without
    a wake-up: the next post makes up for it.
    """

    __slots__ = ("_calls", "_loop", "_turn", "_woken_in")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._turn = 0
        self._woken_in = -1

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have the loop call ``function(*args)``. Raises RuntimeError when the loop is closed."""
        self.put(function, args)

    def put(self, function: Callable[..., object], args: tuple[Any, ...] = ()) -> None:
        """As :meth:`post`."""
        self._calls.append((function, args))
        # In this order: who finds the mark of this turn knows that a wake-up came before the mark,
        # and that the turn it leads to, which begins by ending this one, is still to come.
        turn = self._turn
        if self._woken_in != turn:
            self._loop.call_soon_threadsafe(self._work_off)
            self._woken_in = turn

    def work_off_when_closed(self) -> None:
        """Make the calls that came too late for the loop; they know that it is closed."""
        self._turn += 1
        while self._calls:
            function, args = self._calls.popleft()
            try:
                function(*args)
            except Exception:
                log.debug("%r came after the end", function, exc_info=True)

    def _work_off(self) -> None:
        self._turn += 1
        calls = self._calls
        try:
            for _ in range(len(calls)):
                function, args = calls.popleft()
                try:
                    function(*args)
                except Exception:
                    log.exception("%r, handed to another thread, failed", function)
        except BaseException:  # raised by a signal handler, where the loop is the main thread's
            self._loop.call_soon(self._work_off)
            raise


class Waiter(Generic[T]):
    """What one thread waits on until another gives a result or an error; used once.

    ``wait`` ends with KeyboardInterrupt on Ctrl-C.
    """

    __slots__ = ("_error", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error: BaseException | None = None
        self._result: T

    def set_result(self, result: T) -> None:
        """End the wait."""
        self._result = result
        self._lock.release()

    def set_exception(self, error: BaseException) -> None:
        """End the wait with an error."""
        self._error = error
        self._lock.release()

    def wait(self, timeout_seconds: float | None = None) -> T:
        """The result, or the error raised. Raises TimeoutError when neither came in time."""
        if not self._lock.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds):
            raise TimeoutError(f"no result within {timeout_seconds} s")
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the traceback's frame would keep itself alive
        return self._result
