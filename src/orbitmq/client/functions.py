"""Functions of the user's: looked at where they are given, so that what is wrong is said there.

A coroutine function called as a plain one would never run, and one with other parameters would
fail at the first message.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from orbitmq.errors import ConfigError

_SUSPENDED: Final = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


def is_coroutine_function(function: object) -> bool:
    """Whether calling ``function``, or the object that stands for one, gives a coroutine."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(_body(function))


def can_take(function: Callable[..., Any], count: int) -> bool:
    """Whether ``function`` can be called with ``count`` positional arguments.

    True for what does not tell its parameters, as some built-in functions.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * count)
    except TypeError:
        return False
    return True


def check_function(name: str, function: object, allowed: str) -> None:
    """Raise ConfigError where the argument ``name`` cannot be called, or its call does nothing.

    ``allowed`` says what it must be.
    """
    if not callable(function):
        raise ConfigError(name, function, allowed)
    body = _body(function)
    if inspect.isgeneratorfunction(body) or inspect.isasyncgenfunction(body):
        raise ConfigError(name, function, f"{allowed}; this one yields, so its body never runs")


def check_plain_function(name: str, function: object, allowed: str) -> None:
    """As :func:`check_function`; and ConfigError for a coroutine function, which never ran."""
    code = getattr(function, "__code__", None)
    if code is not None and not code.co_flags & _SUSPENDED:
        return  # soon, because this is asked for each message sent
    check_function(name, function, allowed)
    if is_coroutine_function(function):
        raise ConfigError(
            name, function, f"{allowed}; this is a coroutine function, which is not awaited here"
        )


def _body(function: object) -> object:
    """What runs when ``function`` is called: a partial's function, an object's ``__call__``."""
    while isinstance(function, partial):
        function = function.func
    if inspect.isroutine(function):
        return function
    return getattr(type(function), "__call__", None)  # noqa: B004 - to look at it
