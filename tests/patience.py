"""How long tests wait for programs of their own, and for what they do.

Long, because a busy machine is no failure: a wait ends when what is awaited happens, or when it
cannot happen any more, so only a test that fails waits to the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 0.02

_T = TypeVar("_T")


def eventually(
    condition: Callable[[], _T], what: str, saw: Callable[[], object] | None = None
) -> _T:
    """Ask ``condition``, named ``what``, until it answers something true; return that.

    Raises:
        TimeoutError: it did not; the text ends with what ``saw`` answers then.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (answer := condition()):
        if time.monotonic() > deadline:
            seen = "" if saw is None else f"; seen: {saw()}"
            raise TimeoutError(f"{what} did not come within {PATIENCE_SECONDS:g} s{seen}")
        time.sleep(_PAUSE_SECONDS)
    return answer
