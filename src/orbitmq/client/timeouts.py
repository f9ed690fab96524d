"""How long a call may take, as users say it: in seconds, as everywhere in Python.

Settings are in milliseconds, as Java's, and say so in their names.
"""

from __future__ import annotations

import math

from orbitmq.errors import ConfigError


def in_ms(timeout: float) -> int:
    """``timeout`` in whole milliseconds, 1 at least. Raises ConfigError unless it is positive."""
    if not 0 < timeout < math.inf:
        raise ConfigError("timeout", timeout, "a positive number of seconds")
    return max(1, round(timeout * 1000))


def patience_ms(timeout: float | None) -> int | None:
    """The same for what need not wait at all: 0 may be given, or None for a default."""
    if timeout is None:
        return None
    return in_ms(timeout) if timeout else 0
