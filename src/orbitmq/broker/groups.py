"""The consumer groups' settings. Follows SubscriptionGroupManager."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import msgspec

from orbitmq import codes
from orbitmq.broker.attributes import GROUP_ATTRIBUTES, altered
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


PERM_READ_INDEX: Final = 2
"""The bit of what a group may not do in a topic that says reading (PermName.INDEX_PERM_READ)."""
MAX_FORBIDDEN: Final = 1_000
"""In how many topics a group may be forbidden something; Java's broker has no limit."""


class GroupChange(TableChange, frozen=True):
    """A group that was made, changed or deleted; or only what it may not do, ``forbidden``."""

    value: SubscriptionGroupConfig | None = None
    forbidden: dict[str, int] | None = None


class GroupTable(ConfigTable[SubscriptionGroupConfig]):
    """All consumer groups, ``groups`` by name.

    ``forbidden`` has, by group and topic, the bits of what the group may not do there.
    """

    limit = "maxGroups"

    def __init__(self, config: BrokerConfig, now_ms: Callable[[], int]) -> None:
        built_in = {name: SubscriptionGroupConfig(group_name=name) for name in _BUILT_IN}
        super().__init__(built_in, now_ms, GroupChange)
        self.groups = self.entries
        self.forbidden: dict[str, dict[str, int]] = {}
        self.renew(config)

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._auto_create = config.auto_create_groups
        self.most = config.max_groups

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

    def _name_of(self, group: SubscriptionGroupConfig) -> str:
        return group.group_name

    def _updated(self, group: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        known = self.groups.get(group.group_name)
        attributes = altered(
            known.attributes if known else None, group.attributes, GROUP_ATTRIBUTES
        )
        updated = msgspec.structs.replace(group, attributes=attributes)
        self.check(updated)
        return updated

    def may_read(self, group: str, topic: str) -> bool:
        """Whether a group may read a topic."""
        return not self.forbidden.get(group, {}).get(topic, 0) & 1 << PERM_READ_INDEX

    def set_readable(self, group: str, topic: str, *, readable: bool) -> None:
        """Allow or forbid a group to read a topic (updateForbidden). Raises BrokerError."""
        before = self.forbidden.get(group, {})
        bits = before.get(topic, 0)
        bits = bits & ~(1 << PERM_READ_INDEX) if readable else bits | 1 << PERM_READ_INDEX
        if bits == before.get(topic, 0):
            return
        if topic not in before and len(before) >= MAX_FORBIDDEN:
            raise BrokerError(
                codes.INVALID_PARAMETER,
                f"group {group} is forbidden {len(before)} topics already, as many as may be",
            )
        after = {**before, topic: bits}
        self._forbid(group, {name: bits for name, bits in after.items() if bits})

    def _forbid(self, group: str, topics: dict[str, int]) -> None:
        if topics:
            self.forbidden[group] = topics
        else:
            self.forbidden.pop(group, None)
        log.info("consumer group %s may not do in topics: %s", group, topics)
        before = self.version
        self.version = before.next(self._now_ms())
        self.changes.append(GroupChange(group, before, self.version, forbidden=topics))
        self.changed = True

    def replay(self, change: TableChange) -> bool:
        """As of any table; also what a group may not do."""
        if not isinstance(change, GroupChange) or change.forbidden is None:
            made = super().replay(change)
            if made and change.value is None:
                self.forbidden.pop(change.name, None)
            return made
        if change.before != self.version:
            return False
        self.forbidden[change.name] = change.forbidden
        if not change.forbidden:
            del self.forbidden[change.name]
        self.version = change.after
        return True

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
        """Forget a group, and what it may not do; nothing if there is none."""
        if group in self.forbidden:
            self._forbid(group, {})
        if group in self.groups:
            self._drop(group)
            log.info("consumer group %s is deleted", group)

    def _put(self, group: SubscriptionGroupConfig) -> bool:
        if group == self.groups.get(group.group_name):
            return False
        log.info("consumer group %s is made or changed", group.group_name)
        self._set(group.group_name, group)
        return True
