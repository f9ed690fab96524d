"""Memory for frames that are being received: a bound for all connections together.

A frame may have 16 MiB, and takes memory as it arrives. Clients that begin many and finish none
are cut off before that is felt: the one that holds most goes first.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable
from typing import Final, Protocol

from orbitmq.net.burst import Burst

log = logging.getLogger("orbitmq.net")

MOST_BYTES: Final = 256 << 20


class Receiver(Hashable, Protocol):
    """A connection that receives a frame."""

    peer: str

    def abort(self) -> None:
        """End the connection."""


class Receiving:
    """The bytes of unfinished frames, ``most`` at the most, which may be changed."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self.total = 0
        self._held: dict[Receiver, int] = {}
        self._burst = Burst(log)

    def note(self, receiver: Receiver, held: int) -> None:
        """A connection holds that much of a frame now; may end it, or others."""
        self.total += held - self._held.get(receiver, 0)
        if held:
            self._held[receiver] = held
        else:
            self._held.pop(receiver, None)
        while self.total > self.most:
            largest = max(self._held, key=self._held.__getitem__)
            self._burst.tell(
                "%d bytes of frames are being received, %d are the most: the connection of %s is "
                "closed, which holds %d; send smaller messages, or raise the limit "
                "(maxReceivingBytes)",
                self.total, self.most, largest.peer, self._held[largest],
            )  # fmt: skip
            self.total -= self._held.pop(largest)
            largest.abort()
