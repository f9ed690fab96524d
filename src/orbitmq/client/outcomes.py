"""Outcomes of what was begun without waiting for it, given to a future or to a callback.

The private loop has them; functions of the user's get them on the callback thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

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


class OutcomeFuture(Future[T]):
    """The outcome of a request. It cannot be cancelled: the request is on its way.

    Functions added by ``add_done_callback`` run on the callback thread, so that they may take
    their time.
    """

    def __init__(self, caller: CallsBack) -> None:
        super().__init__()
        self._caller = caller

    def cancel(self) -> bool:
        """Do nothing, and say so."""
        return False

    def add_done_callback(self, fn: Callable[[Future[T]], Any]) -> None:
        """Have ``fn(future)`` called when the outcome is there."""
        self._caller.expect_callbacks()
        super().add_done_callback(partial(self._caller.call_back, fn))


class CallbackSink(Generic[T]):
    """Gives an outcome to ``callback(result, error)``, on the callback thread.

    ConfigError for a coroutine function, which would never run.
    """

    __slots__ = ("_callback", "_caller")

    def __init__(
        self, callback: Callable[[T | None, BaseException | None], object], caller: CallsBack
    ) -> None:
        check_plain_function("callback", callback, "a plain function of a result and an error")
        self._callback = callback
        self._caller = caller
        caller.expect_callbacks()

    def set_result(self, result: T | None) -> None:
        """It is this."""
        self._caller.call_back(self._callback, result, None)

    def set_exception(self, error: BaseException) -> None:
        """There is none."""
        self._caller.call_back(self._callback, None, error)
