"""Outcomes of what was begun without waiting for it, given to a future or to a callback.

The private loop has them; functions of the user's get them on the callback thread.
"""

from __future__ import annotations

import threading
from _thread import RLock
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures._base import PENDING
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from orbitmq.client.functions import check_plain_function

T = TypeVar("T")


class CallsBack(Protocol):
    """Has functions of the user's called: the LoopThread, or who counts what it is asked for."""

    def call_back(self, function: Callable[..., object], /, *args: Any) -> None:
        """Have the callback thread call ``function(*args)``."""
        ...

    def expect_callbacks(self) -> None:
        """Have the callback thread run by then."""
        ...


class _Guard(RLock):  # type: ignore[misc]  # it may be subclassed, by name it is a function
    """The lock of a future, in place of its Condition.

    Python steps into a Condition's methods and may be interrupted there by a signal, with the
    lock held for ever and the private loop waiting for it. None waits by this one.
    """

    __slots__ = ()

    def notify_all(self) -> None:
        """Tell nobody."""

    def wait(self, timeout: float | None = None) -> bool:
        """Not here; the time is over."""
        return False


class OutcomeFuture(Future[T]):
    """The outcome of a request. It cannot be cancelled: the request is on its way.

    Functions added by ``add_done_callback`` run on the callback thread, so that they may take
    their time.
    """

    def __init__(self, caller: CallsBack) -> None:
        # As Future.__init__, which would make a Condition first.
        self._condition = _Guard()  # type: ignore[assignment]
        self._state = PENDING
        self._result = None
        self._exception = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []
        self._parked: list[Callable[[], None]] = []
        self._caller = caller

    def result(self, timeout: float | None = None) -> T:
        """The result, or the error raised. Raises TimeoutError after ``timeout`` seconds."""
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error, None where there is none. Raises TimeoutError after ``timeout`` seconds."""
        self._wait(timeout)
        return super().exception(0)

    def set_result(self, result: T) -> None:
        """It is this."""
        Future.set_result(self, result)
        if self._parked:
            self._wake()

    def set_exception(self, exception: BaseException | None) -> None:
        """There is none."""
        Future.set_exception(self, exception)
        if self._parked:
            self._wake()

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        parked = threading.Lock()
        parked.acquire()
        self._parked.append(parked.release)
        if not self.done():
            parked.acquire(timeout=-1 if timeout is None else max(0.0, timeout))

    def _wake(self) -> None:
        while self._parked:
            self._parked.pop()()

    def cancel(self) -> bool:
        """Do nothing, and say so."""
        return False

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Have ``fn(future)`` called when the outcome is there."""
        self._caller.expect_callbacks()
        super().add_done_callback(partial(self._caller.call_back, fn))


class CallbackSink(Struct, Generic[T], frozen=True, eq=False, gc=False):
    """Gives an outcome to ``callback(result, error)``, on the callback thread.

    ConfigError for a coroutine function, which would never run. A Struct that the garbage collector
    need not look at, because thousands may be on their way.
    """

    callback: Callable[[T | None, BaseException | None], object]
    caller: CallsBack

    def __post_init__(self) -> None:
        check_plain_function("callback", self.callback, "a plain function of a result and an error")
        self.caller.expect_callbacks()

    def set_result(self, result: T | None) -> None:
        """It is this."""
        self.caller.call_back(self.callback, result, None)

    def set_exception(self, error: BaseException) -> None:
        """There is none."""
        self.caller.call_back(self.callback, None, error)
