"""How a lite pull consumer comes by its queues: it shares a topic's, or is told which to take.

The first call decides, for the consumer's whole life (Java's ``SubscriptionType``).
"""

from __future__ import annotations

import threading
from enum import Enum

from orbitmq.errors import ClientStateError


class SubscriptionType(Enum):
    """The two ways, and that none was chosen yet."""

    NONE = "none"
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"


class SubscriptionChoice:
    """The way of the consumer of ``group``; from any thread."""

    def __init__(self, group: str) -> None:
        self.type = SubscriptionType.NONE
        self._group = group
        self._lock = threading.Lock()

    def enter(self, type_: SubscriptionType) -> None:
        """Go this way. Raises ClientStateError when the other one was chosen before."""
        with self._lock:
            if self.type not in (SubscriptionType.NONE, type_):
                raise ClientStateError(
                    "Subscribe and assign are mutually exclusive: "
                    f"this consumer of group {self._group!r} uses {self.type.value}"
                )
            self.type = type_
