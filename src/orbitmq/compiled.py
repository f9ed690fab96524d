"""Which functions run compiled: those that the optional distribution ``orbitmq-speed`` has.

Each of them is written in Python first, where it says what it means, and what the compiled one is
tested against. The environment variable ``ORBITMQ_SPEED=0`` leaves the compiled ones alone.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeVar

log = logging.getLogger("orbitmq")

INTERFACE: Final = 2
"""The number of the interface between OrbitMQ and its compiled core."""

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])


def _load() -> ModuleType | None:
    if os.environ.get("ORBITMQ_SPEED") == "0":
        return None
    try:
        module = importlib.import_module("orbitmq_speed")
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        log.warning("orbitmq-speed cannot be loaded, Python code runs instead: %s", error)
        return None
    if module.INTERFACE != INTERFACE:
        log.warning(
            "orbitmq-speed has interface %s, this OrbitMQ needs %d, and Python code runs instead: "
            "install the version that belongs to it (pip install 'orbitmq[speed]')",
            module.INTERFACE, INTERFACE,
        )  # fmt: skip
        return None
    return module


_MODULE: Final = _load()

CORE: Final = "compiled" if _MODULE is not None else "plain Python"
"""Which core runs: ``compiled`` or ``plain Python``."""

TWINS: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]]] = {}
"""By name, a function as it is written in Python, and its compiled twin if there is one."""


def compiled(function: _FunctionT) -> _FunctionT:
    """A decorator: the function's compiled twin where there is one, else the function itself."""
    twin = getattr(_MODULE, function.__name__, None)
    TWINS[function.__name__] = function, twin
    return function if twin is None else twin
