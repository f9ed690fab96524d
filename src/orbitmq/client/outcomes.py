"""Outcomes of what was begun without waiting for it, given to a future or to a callback.

The private loop has them; functions of the user's get them on the callback thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, TypeVar

from orbitmq.client.functions import check_plain_function
from orbitmq.client.loop import LoopThread

T = TypeVar("T")


class OutcomeFuture(Future[T]):
    """The outcome of a request. It cannot be cancelled: the request is on its way.

    Functions added by ``add_done_callback`` run on the callback thread, so that they may take
    their time.
    """

    def __init__(self, thread: LoopThread) -> None:
        super().__init__()
        self._thread = thread

    def cancel(self) -> bool:
        """Do nothing, and say so."""
        return False

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Have ``fn(future)`` called when the outcome is there."""
        super().add_done_callback(partial(self._thread.call_back, fn))


class CallbackSink(Generic[T]):
    """Gives an outcome to ``callback(result, error)``, on the callback thread.

    ConfigError for a coroutine function, which would never run.
    """

    __slots__ = ("_callback", "_thread")

    def __init__(
        self, callback: Callable[[T | None, BaseException | None], object], thread: LoopThread
    ) -> None:
        check_plain_function("callback", callback, "a plain function of a result and an error")
        self._callback = callback
        self._thread = thread

    def set_result(self, result: T | None) -> None:
        """It is this."""
        self._thread.call_back(self._callback, result, None)

    def set_exception(self, error: BaseException) -> None:
        """There is none."""
        self._thread.call_back(self._callback, None, error)
