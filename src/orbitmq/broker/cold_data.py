"""Limits for groups that read what is no longer in memory, as operators set them.

Only kept and told: nothing here is slowed down by them, as on a broker of Apache's without
coldDataFlowControlEnable, its default. Follows ColdDataCgCtrService.
"""

from __future__ import annotations

from typing import Final

from orbitmq import codes
from orbitmq.errors import BrokerError
from orbitmq.names import check_group
from orbitmq.properties_file import parse_properties
from orbitmq.wire.topic_bodies import ColdDataFlowCtrInfo

MAX_LIMITS: Final = 10_000
"""For how many groups a limit is kept; Java's broker has none."""
_MAX_LONG: Final = (1 << 63) - 1


class ColdDataLimits:
    """Bytes of old messages a group may read a period, by group; in memory only."""

    def __init__(self) -> None:
        self._limits: dict[str, int] = {}

    def update(self, text: str) -> None:
        """Set the limits in ``text``, a property each; all or none. Raises BrokerError."""
        limits = {group: _limit(group, value) for group, value in parse_properties(text).items()}
        if len(self._limits.keys() | limits.keys()) > MAX_LIMITS:
            raise BrokerError(
                codes.INVALID_PARAMETER, f"there are limits for {MAX_LIMITS} groups at most"
            )
        self._limits.update(limits)

    def remove(self, group: str) -> None:
        """Forget the limit of a group; nothing when it has none."""
        self._limits.pop(group, None)

    def info(self) -> ColdDataFlowCtrInfo:
        """All limits; no group has read anything that counts."""
        return ColdDataFlowCtrInfo(config_table=dict(self._limits))


def _limit(group: str, text: str) -> int:
    check_group(group)
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) <= _MAX_LONG):
        raise BrokerError(
            codes.INVALID_PARAMETER,
            f"the limit of group {group} cannot be {text[:99]!r}: give a number of bytes",
        )
    return int(text)
