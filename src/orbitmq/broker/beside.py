"""Encoding whole tables in a thread beside the loop, which goes on meanwhile.

A thread that computes gives the interpreter up every 5 ms at most, so that each system call of the
loop would take so long. It is made to give it up more often here, and long enough to be taken.
"""

from __future__ import annotations

import time
from typing import Final

from orbitmq.wire.bodies import Body

BIG_TABLE: Final = 1_000
"""From how many entries on a table takes a millisecond or more to be encoded."""
_PAUSE_SECONDS: Final = 50e-6


def encode_beside(body: Body) -> bytes:
    """As ``body.encode()``, for a thread beside the loop."""
    return body.encode(pause=_pause)


def _pause() -> None:
    time.sleep(_PAUSE_SECONDS)
