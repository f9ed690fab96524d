"""The consumer groups' settings. Follows SubscriptionGroupManager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.table import ConfigTable, TableChange, check_size
from orbitmq.errors import BrokerError, IllegalNameError
from orbitmq.names import check_group
from orbitmq.wire.bodies import SubscriptionGroupConfig

log = logging.getLogger("orbitmq.broker")

MAX_RETRY_QUEUES: Final = 1_024
"""The most queues a group's retry topic gets; Java's broker has no limit."""
_MAX_INT: Final = (1 << 31) - 1
_RANGES: Final = (
    ("retry_queue_nums", 0, MAX_RETRY_QUEUES),
    ("retry_max_times", -1, _MAX_INT),
    ("consume_timeout_minute", 0, _MAX_INT),
    ("group_sys_flag", -_MAX_INT - 1, _MAX_INT),
)
_BUILT_IN: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
)


class GroupChange(TableChange, frozen=True):
    """A group that was made, changed or deleted."""

    value: SubscriptionGroupConfig | None = None


class GroupTable(ConfigTable[SubscriptionGroupConfig]):
    """All consumer groups, ``groups`` by name."""

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        built_in = {name: SubscriptionGroupConfig(group_name=name) for name in _BUILT_IN}
        super().__init__(built_in, now_ms, GroupChange)
        self.groups = self.entries
        self.renew(config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._auto_create = config.auto_create_groups

    def __contains__(self, group: str) -> bool:
        return group in self.groups

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """The group's settings, made with defaults if the broker may; None if it may not.

        A group with an illegal name is never made.
        """
        known = self.groups.get(group)
        if known is None and self._auto_create:
            try:
                check_group(group)
            except IllegalNameError as error:
                log.warning("no group is made: %s", error)
                return None
            known = SubscriptionGroupConfig(group_name=group)
            self._put(known)
        return known

    def check(self, group: SubscriptionGroupConfig) -> None:
        """Refuse what no group can be. Raises IllegalNameError or BrokerError."""
        check_group(group.group_name)
        for name, lowest, highest in _RANGES:
            number = getattr(group, name)
            if not lowest <= number <= highest:
                raise BrokerError(
                    codes.INVALID_PARAMETER,
                    f"group {group.group_name} cannot have {name}={number}: {lowest} to {highest}",
                )
        check_size(group.group_name, group)

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Create or change a group. Raises IllegalNameError or BrokerError."""
        self.check(group)
        self._put(group)

    def mended(self, entry: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        """A saved group, with numbers that :meth:`check` allows."""
        fitting = {
            name: min(max(getattr(entry, name), lowest), highest)
            for name, lowest, highest in _RANGES
        }
        if all(number == getattr(entry, name) for name, number in fitting.items()):
            return entry
        log.warning("consumer group %s is taken with %s", entry.group_name, fitting)
        return msgspec.structs.replace(entry, **fitting)

    def delete(self, group: str) -> None:
        """Forget a group; nothing if there is none."""
        if group in self.groups:
            self._drop(group)
            log.info("consumer group %s is deleted", group)

    def _put(self, group: SubscriptionGroupConfig) -> None:
        if group != self.groups.get(group.group_name):
            log.info("consumer group %s is made or changed", group.group_name)
            self._set(group.group_name, group)
