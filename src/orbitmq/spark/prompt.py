"""What Spark pickles into its Python workers makes them prompt.

The JVM sends a worker its task in two writes. Nagle's algorithm holds the second one back until the
first is acknowledged, and Linux puts that off for 40 ms on a connection on which this side answers
every request. So each micro-batch would take 40 ms longer. A worker unpickles its reader or writer
between the two, which is the moment to have the acknowledgment sent.

After each task a worker collects garbage. To look through all that its imports made takes 30 ms of
a processor, more than a small task, and the next task waits for it. So what the first tasks leave
is left out of collections: it stays for good anyway.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
from functools import cache
from typing import Any, Final

_DESCRIPTORS: Final = "/proc/self/fd"
_QUICK_ACK: Final = getattr(socket, "TCP_QUICKACK", None)
_REUSED: Final = "SPARK_REUSE_WORKER"
"""Set in a worker that serves one task after another, and collects garbage between them."""
_IMPORTING_TASKS: Final = 2
"""The second task finds what the first one imported, collected already."""


class Prompt:
    """To be inherited by what Spark pickles into its workers."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        acknowledge_at_once()
        _IMPORTED.leave_out_of_collections()


def acknowledge_at_once() -> int:
    """Send what acknowledgments this process's TCP connections put off; how many there are.

    Python does not tell which of them leads to the JVM; the others lose nothing. Only Linux has it.
    """
    if _QUICK_ACK is None or not os.path.isdir(_DESCRIPTORS):  # noqa: PTH112 - once a task
        return 0
    on = ctypes.c_int(1)
    # Not by Python's sockets: one made for a descriptor may make it non-blocking.
    results = [
        _libc().setsockopt(
            int(name), socket.IPPROTO_TCP, _QUICK_ACK, ctypes.byref(on), ctypes.sizeof(on)
        )
        for name in os.listdir(_DESCRIPTORS)  # noqa: PTH208 - names alone
    ]
    return results.count(0)  # others are files, or speak another protocol


class ImportedObjects:
    """What a worker's imports made, and garbage collections need not look through."""

    def __init__(self) -> None:
        self._tasks = 0

    def leave_out_of_collections(self) -> None:
        """To be called in each task; only the first ones of a reused worker change anything.

        Later ones would keep what they have in cycles themselves.
        """
        if self._tasks < _IMPORTING_TASKS and os.environ.get(_REUSED):
            self._tasks += 1
            gc.freeze()


_IMPORTED: Final = ImportedObjects()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
