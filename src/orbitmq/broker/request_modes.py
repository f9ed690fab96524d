"""How groups are to get the messages of topics: by pull or by pop.

Follows MessageRequestModeManager.
"""

from __future__ import annotations

from typing import Final

from orbitmq import codes
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.topics import TopicTable
from orbitmq.errors import BrokerError
from orbitmq.names import RETRY_PREFIX
from orbitmq.wire.topic_bodies import MessageRequestModeSerializeWrapper, SetMessageRequestModeBody

MAX_MODES: Final = 100_000
"""For how many pairs of topic and group a mode is kept; Java's broker has no limit."""


class RequestModes:
    """The modes operators have set, by topic and group; ``changed``: they are not saved yet."""

    def __init__(self, topics: TopicTable, groups: GroupTable) -> None:
        self.table: dict[str, dict[str, SetMessageRequestModeBody]] = {}
        self.changed = False
        self._topics = topics
        self._groups = groups

    def load(self, table: dict[str, dict[str, SetMessageRequestModeBody]]) -> None:
        """Take in what was saved."""
        self.table.update(table)

    def set(self, mode: SetMessageRequestModeBody) -> None:
        """Set the mode of a group in a topic. Raises BrokerError when one of them is not there."""
        topic, group = mode.topic, mode.consumer_group
        if topic.startswith(RETRY_PREFIX):
            raise BrokerError(
                codes.NO_PERMISSION, f"{topic} is a retry topic: those have no mode of their own"
            )
        if topic not in self._topics.topics:
            raise BrokerError(codes.TOPIC_NOT_EXIST, f"this broker has no topic {topic!r}")
        if self._groups.find(group) is None:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST, f"this broker has no consumer group {group!r}"
            )
        known = self.table.get(topic, {})
        if group not in known and sum(map(len, self.table.values())) >= MAX_MODES:
            raise BrokerError(
                codes.INVALID_PARAMETER, f"there are {MAX_MODES} modes already, as many as may be"
            )
        self.table[topic] = {**known, group: mode}  # a snapshot may have the other
        self.changed = True

    def snapshot(self) -> MessageRequestModeSerializeWrapper:
        """All as it is now, untouched by later changes."""
        return MessageRequestModeSerializeWrapper(dict(self.table))
