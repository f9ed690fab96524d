"""Messages a group is to consume again: what comes back, how late, and when the group gives up.

Follows AbstractSendMessageProcessor.consumerSendMsgBack and SendMessageProcessor.handleRetryAndDLQ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol

from orbitmq import codes
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.groups import GroupTable
from orbitmq.broker.locks import QueueLocks
from orbitmq.broker.redraft import redraft
from orbitmq.broker.schedule import postpone
from orbitmq.broker.topics import PERM_WRITE, UNIT_SUB_TOPIC, TopicTable, any_queue
from orbitmq.errors import BrokerError
from orbitmq.names import RETRY_PREFIX, dlq_topic, retry_topic
from orbitmq.store.delay_levels import DelayLevels
from orbitmq.store.message_store import MessageStore
from orbitmq.wire.bodies import SubscriptionGroupConfig
from orbitmq.wire.ids import offset_message_id
from orbitmq.wire.properties import (
    DELAY,
    ORIGIN_MESSAGE_ID,
    RETRY_TOPIC,
    UNIQ_KEY,
    decode_properties,
    encode_properties,
)
from orbitmq.wire.record import Draft

log = logging.getLogger("orbitmq.broker")

DLQ_QUEUES: Final = 1
"""A dead-letter topic has one queue."""
_FIRST_LEVEL: Final = 3
"""The delay level of a message's first retry; each further one is a level higher."""


class SendBackRequest(Protocol):
    """A message that a consumer wants to get again later, named by its commit-log offset.

    ``delay_level`` 0 leaves the delay to the broker, a negative one gives the message up.
    """

    offset: int
    group: str
    delay_level: int
    unit_mode: bool | None
    max_reconsume_times: int | None


class Retrying:
    """Takes messages back. ``store_host`` is this broker's address as records hold it.

    ``on_sent_back`` is told of each: the group, the topic it came from, and whether it was given
    up.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        locks: QueueLocks,
        delays: DelayLevels,
        now_ms: Callable[[], int],
        store_host: bytes,
    ) -> None:
        self.renew(config)
        self._store = store
        self._topics = topics
        self._groups = groups
        self._locks = locks
        self._delays = delays
        self._now_ms = now_ms
        self._store_host = store_host
        self.on_sent_back: Callable[[str, str, bool], object] = _nothing

    def renew(self, config: BrokerConfig) -> None:
        """Go by these settings from now on."""
        self._permission = config.broker_permission

    def send_back(self, request: SendBackRequest) -> None:
        """Stage a consumed message again for its group: delayed, or into its dead-letter topic.

        Raises BrokerError when the group or the message is not there, or its retry topic may not
        be written.
        """
        group = self._group(request.group)
        if not self._permission & PERM_WRITE:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"the broker takes no messages back: its brokerPermission is {self._permission}",
            )
        if group.retry_queue_nums <= 0:
            return
        sys_flag = UNIT_SUB_TOPIC if request.unit_mode else 0
        topic = self._topics.create_derived(
            retry_topic(request.group), group.retry_queue_nums, sys_flag
        )
        if not topic.perm & PERM_WRITE:
            raise BrokerError(
                codes.NO_PERMISSION,
                f"topic {topic.topic_name} may not be written: its permission is {topic.perm}",
            )
        record = self._store.record_at(request.offset)
        if record is None:
            raise BrokerError(
                codes.SYSTEM_ERROR,
                f"no message begins at commit-log offset {request.offset}: it was deleted, or the "
                "offset is not one this broker gave",
            )
        draft = redraft(record)
        properties = decode_properties(draft.properties)
        properties.setdefault(RETRY_TOPIC, draft.topic)
        properties.setdefault(
            ORIGIN_MESSAGE_ID, offset_message_id(draft.store_host, request.offset)
        )
        draft.store_host = self._store_host
        level = request.delay_level or _FIRST_LEVEL + draft.reconsume_times
        maximum = _either(request.max_reconsume_times, group.retry_max_times)
        draft.topic = topic.topic_name
        is_dead = draft.reconsume_times >= maximum or level < 0
        if is_dead:
            self.give_up(draft, properties)
        else:
            draft.queue_id = any_queue(topic)
            postpone(draft, properties, level, self._delays)
        draft.reconsume_times += 1
        draft.properties = encode_properties(properties)
        self._store.append(draft)
        self.on_sent_back(request.group, properties[RETRY_TOPIC], is_dead)

    def is_exhausted(self, draft: Draft, max_reconsume_times: int | None) -> bool:
        """Whether a message sent to a retry topic belongs into the dead-letter topic.

        It was retried often enough, or its group consumes in order, where nothing comes later.
        """
        name = draft.topic.removeprefix(RETRY_PREFIX)
        maximum = _either(max_reconsume_times, self._group(name).retry_max_times)
        return draft.reconsume_times > maximum or self._locks.any_held(name, self._now_ms())

    def give_up(self, draft: Draft, properties: dict[str, str]) -> None:
        """Turn a message of a retry topic to the dead-letter topic of its group."""
        topic = dlq_topic(draft.topic.removeprefix(RETRY_PREFIX))
        log.warning(
            "message %s goes to %s after %d retries",
            properties.get(UNIQ_KEY, "without a key"), topic, draft.reconsume_times,
        )  # fmt: skip
        self._topics.create_derived(topic, DLQ_QUEUES)
        draft.topic = topic
        draft.queue_id = 0
        properties[DELAY] = "0"

    def _group(self, name: str) -> SubscriptionGroupConfig:
        group = self._groups.find(name)
        if group is None:
            raise BrokerError(
                codes.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"consumer group {name!r} does not exist: create it, or check its name",
            )
        return group


def _nothing(_group: str, _topic: str, _is_dead: bool) -> None:
    """Nobody counts."""


def _either(asked: int | None, default: int) -> int:
    return default if asked is None else asked
