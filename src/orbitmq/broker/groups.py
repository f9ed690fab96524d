"""The consumer groups' settings. Follows SubscriptionGroupManager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.table import ConfigTable, TableChange
from orbitmq.errors import IllegalNameError
from orbitmq.names import check_group
from orbitmq.wire.bodies import SubscriptionGroupConfig

log = logging.getLogger("orbitmq.broker")

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

    def put(self, group: SubscriptionGroupConfig) -> None:
        """Create or change a group. Raises IllegalNameError."""
        check_group(group.group_name)
        self._put(group)

    def delete(self, group: str) -> None:
        """Forget a group; nothing if there is none."""
        if group in self.groups:
            self._drop(group)
            log.info("consumer group %s is deleted", group)

    def _put(self, group: SubscriptionGroupConfig) -> None:
        if group != self.groups.get(group.group_name):
            log.info("consumer group %s is made or changed", group.group_name)
            self._set(group.group_name, group)
