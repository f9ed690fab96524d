"""The bodies of what an operator asks about consumers: connections, progress, offsets reset.

Apart from :mod:`orbitmq.wire.bodies` because only tools, the broker's answers to them and the
consumers it asks in turn speak of these. The Java classes are those of
``org.apache.rocketmq.remoting.protocol.body`` and ``protocol.admin``.
"""

from __future__ import annotations

from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import (
    Body,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
    SubscriptionData,
    SubscriptionGroupConfig,
)

# Offsets: 220 to 223


class ResetOffsetBody(Body, frozen=True):
    """The offset that each queue is set to (220, and the answer to 222)."""

    offset_table: dict[MessageQueue, int] = {}


class MessageQueueForC(Body, frozen=True):
    """A queue with its offset, for clients that read standard JSON alone."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetBodyForC(Body, frozen=True):
    """As :class:`ResetOffsetBody`, sent when the tool that asks is written in C++ (220)."""

    offset_table: list[MessageQueueForC] = []


class GetConsumerStatusBody(Body, frozen=True):
    """What consumers have consumed: of the one asked (221), or by client id (223)."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}


# Settings of groups (225)


class SubscriptionGroupList(Body, frozen=True):
    """Several groups to make or change (225)."""

    group_config_list: list[SubscriptionGroupConfig] = []


# Connections: 203, 204


class Connection(Body, frozen=True):
    """One client of a group; ``client_addr`` is its ``host:port`` as the broker sees it."""

    client_id: str
    client_addr: str
    language: str = "JAVA"
    version: int = 0


class ConsumerConnection(Body, frozen=True):
    """The members of a consumer group, and what the group subscribes to (203)."""

    connection_set: list[Connection] = []
    subscription_table: dict[str, SubscriptionData] = {}
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


class ProducerConnection(Body, frozen=True):
    """The members of a producer group (204)."""

    connection_set: list[Connection] = []


# Progress: 208, 300, 345


class OffsetWrapper(Body, frozen=True):
    """A queue's end and how far a group is in it.

    ``last_timestamp`` is when the last message consumed was stored (ms; 0: none, or it is gone).
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0


class ConsumeStats(Body, frozen=True):
    """How far a group is in the queues of one broker (208)."""

    offset_table: dict[MessageQueue, OffsetWrapper] = {}
    consume_tps: float = 0.0


class GroupList(Body, frozen=True):
    """Names of groups (300)."""

    group_list: frozenset[str] = frozenset()


class QuerySubscriptionResponseBody(Body, frozen=True):
    """What a group subscribes to in a topic, None if it does not (345)."""

    group: str
    topic: str
    subscription_data: SubscriptionData | None = None


# Consume queues: 321


class ConsumeQueueData(Body, frozen=True):
    """One entry of a consume queue: where the message is, its size, its tags code.

    The rest belongs to the extended entries of a broker with enableConsumeQueueExt.
    """

    physic_offset: int
    physic_size: int
    tags_code: int
    extend_data_json: str | None = None
    bit_map: str | None = None
    eval: bool = False
    msg: str | None = None


class QueryConsumeQueueResponseBody(Body, frozen=True):
    """Entries of a consume queue, which has those from ``min_queue_index`` to ``max_queue_index``.

    ``subscription_data`` and ``filter_data`` (JSON, or why there is none) are those of the group
    that was named.
    """

    subscription_data: SubscriptionData | None = None
    filter_data: str | None = None
    queue_data: list[ConsumeQueueData] = []
    max_queue_index: int = 0
    min_queue_index: int = 0
