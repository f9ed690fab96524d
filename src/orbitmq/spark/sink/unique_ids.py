"""Unique message ids for many rows at once."""

from __future__ import annotations

import os
import time
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.wire.ids import UniqueIdGenerator

_NS_A_MS: Final = 1_000_000
_COUNTS: Final = 0x10000
_COUNT_DIGITS: Final = 4


class UniqueIds:
    """Ids as :class:`~orbitmq.wire.ids.UniqueIdGenerator` makes them, a millisecond for a block."""

    def __init__(self) -> None:
        self._now = 0
        made_up_ip = os.urandom(4)
        self._generator = UniqueIdGenerator(made_up_ip, os.getpid(), self._clock_ns)

    def take(self, count: int) -> npt.NDArray[np.uint8]:
        """``count`` new ids, a row of 32 hexadecimal digits each."""
        blocks = [
            self._block(min(_COUNTS, count - begin)) for begin in range(0, count, _COUNTS)
        ] or [np.zeros((0, 32), np.uint8)]
        return np.concatenate(blocks) if len(blocks) > 1 else blocks[0]

    def _block(self, count: int) -> npt.NDArray[np.uint8]:
        digits = count_digits()[:count]
        begin = np.frombuffer(self._generator.next()[:-_COUNT_DIGITS].encode(), np.uint8)
        ids = np.empty((count, len(begin) + _COUNT_DIGITS), np.uint8)
        ids[:, : len(begin)] = begin
        ids[:, len(begin) :] = digits
        return ids

    def _clock_ns(self) -> int:
        """The time, each time at least a millisecond later, so that no two blocks share one."""
        self._now = max(time.time_ns(), self._now + _NS_A_MS)
        return self._now


@cache
def process_ids() -> UniqueIds:
    """Those of this process."""
    return UniqueIds()


@cache
def count_digits() -> npt.NDArray[np.uint8]:
    """The four hexadecimal digits of every number from 0 to 65535."""
    digits = "".join(f"{count:04X}" for count in range(_COUNTS))
    return np.frombuffer(digits.encode(), np.uint8).reshape(_COUNTS, _COUNT_DIGITS)


if hasattr(os, "register_at_fork"):
    # A child that kept its parent's salt would repeat the parent's ids.
    os.register_at_fork(after_in_child=process_ids.cache_clear)
