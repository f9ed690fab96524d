"""The JSON bodies of commands, typed, with Java's field names.

Each body is a value: ``Type.decode(command.body)`` reads it from standard JSON or fastjson's
dialect, and ``body.encode()`` writes what Java's class of the same name writes, byte for byte.
Reading is as forgiving as fastjson is: unknown fields are skipped, absent ones and nulls take
their defaults, and a number may come as a string (the C++ client sends ``subVersion`` so).
The Java classes are those of ``org.apache.rocketmq.remoting.protocol`` in 5.x.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import Any, Self

import msgspec
from msgspec import field

from orbitmq.errors import BodyError
from orbitmq.message import MessageQueue
from orbitmq.wire import fastjson

MASTER_ID = 0
"""The broker id of a master; other ids are its slaves (MixAll.MASTER_ID)."""


class Body(msgspec.Struct, frozen=True, rename="camel"):
    """What all bodies can do."""

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        """Read a body.

        Raises:
            BodyError: not JSON in either form, or a field of another type; the text says which.
        """
        try:
            return _decoder(cls).decode(data)  # type: ignore[no-any-return]
        except RecursionError:
            raise BodyError(f"{cls.__name__}: the body nests too deep") from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            return cls._decode_tolerantly(bytes(data))

    @classmethod
    def _decode_tolerantly(cls, data: bytes) -> Self:
        """Read what the fast decoder refused: the dialect, and nulls in place of defaults."""
        try:
            value = _without_nulls(fastjson.decode(data, _queue_of))
            return msgspec.convert(value, cls, strict=False, str_keys=True, dec_hook=_from_json)
        except (BodyError, msgspec.ValidationError) as error:
            raise BodyError(f"{cls.__name__}: {error}") from error

    def encode(self, *, standard: bool = False, pause: Callable[[], None] | None = None) -> bytes:
        """The body as bytes; ``standard`` quotes the integer keys fastjson leaves bare.

        ``pause`` is called now and then where it is long.
        """
        return fastjson.encode(self, standard=standard, pause=pause)


class MessageQueues(frozenset[MessageQueue]):
    """A set of queues, in JSON an array of objects."""

    __slots__ = ()


# Routes: 105, 106


class QueueData(Body, frozen=True):
    """How many queues of a topic a broker has, and whether they may be read (4) or written (2)."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class BrokerData(Body, frozen=True):
    """The addresses of one broker name, by broker id: 0 is the master."""

    cluster: str
    broker_name: str
    broker_addrs: dict[int, str]
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def master_address(self) -> str | None:
        """The master's ``host:port``, None while it is away."""
        return self.broker_addrs.get(MASTER_ID)


class TopicQueueMappingInfo(Body, frozen=True):
    """Which of a static topic's logical queues (keys) a broker holds, as which of its own."""

    topic: str | None = None
    scope: str = "__global__"
    total_queues: int = 0
    bname: str | None = None
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = {}


class TopicRouteData(Body, frozen=True):
    """Where a topic's queues are (105)."""

    queue_datas: list[QueueData] = []
    broker_datas: list[BrokerData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


class ClusterInfo(Body, frozen=True):
    """All brokers by name, and the broker names of each cluster (106)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, frozenset[str]] = {}


# Clients: 34, 38, 46


class ConsumeType(StrEnum):
    """How a consumer gets messages: by polling (lite pull, pull) or by a listener (push)."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    """Whether each consumer of a group gets every message, or they share them."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """Where a group starts that has no offset yet. Java deprecates the three in the middle."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = (
        "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    )
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class SubscriptionData(Body, frozen=True):
    """One topic of a consumer, with its filter; made by :mod:`orbitmq.filters`.

    ``sub_version`` is the time in ms the subscription was made: the broker keeps the newest.
    """

    topic: str
    sub_string: str
    tags_set: frozenset[str] = frozenset()
    code_set: frozenset[int] = frozenset()
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


class ProducerData(Body, frozen=True):
    """A producer group of a client."""

    group_name: str


class ConsumerData(Body, frozen=True):
    """A consumer group of a client, and what it subscribes to."""

    group_name: str
    consume_type: ConsumeType = ConsumeType.CONSUME_PASSIVELY
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False


class HeartbeatData(Body, frozen=True):
    """Everything a client is, sent to every broker (34).

    A client that sends a fingerprint other than 0 may later send ``without_sub``, a heartbeat
    whose subscriptions are left out because they did not change.
    """

    client_id: str | None = field(default=None, name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class GetConsumerListByGroupResponseBody(Body, frozen=True):
    """The client ids of a group's consumers (38)."""

    consumer_id_list: list[str] = []


class CheckClientRequestBody(Body, frozen=True):
    """A subscription whose filter the broker shall check (46)."""

    client_id: str
    group: str
    subscription_data: SubscriptionData
    namespace: str | None = None


# Queue locks: 41, 42


class LockBatchRequestBody(Body, frozen=True):
    """The queues a client wants to have for itself (41)."""

    consumer_group: str
    client_id: str
    mq_set: MessageQueues = MessageQueues()
    only_this_broker: bool = False


class LockBatchResponseBody(Body, frozen=True):
    """The queues it got."""

    lock_ok_mq_set: MessageQueues = field(default=MessageQueues(), name="lockOKMQSet")


class UnlockBatchRequestBody(LockBatchRequestBody, frozen=True):
    """The queues a client gives back (42)."""


# Topics, groups and offsets: 17, 21, 103, 200, 201, 202, and the files in config/


class DataVersion(Body, frozen=True):
    """The age of a table, compared to see whether it changed; ``timestamp`` in ms."""

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def next(self, now_ms: int, state_version: int = 0) -> DataVersion:
        """The version after a change at ``now_ms``."""
        return DataVersion(state_version, now_ms, self.counter + 1)


class TopicConfig(Body, frozen=True):
    """A topic on one broker; ``perm`` adds up 4 (read), 2 (write) and 1 (inherit)."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = {}


class TopicConfigSerializeWrapper(Body, frozen=True):
    """All topics of a broker by name; the form of ``config/topics.json`` (21)."""

    topic_config_table: dict[str, TopicConfig] = {}
    data_version: DataVersion = DataVersion()


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper, frozen=True):
    """All topics of a broker, with the queues of static topics."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = {}
    topic_queue_mapping_detail_map: dict[str, Any] = {}
    mapping_data_version: DataVersion = DataVersion()


class ExponentialRetryPolicy(Body, frozen=True):
    """Delays in ms that grow by ``multiplier`` from ``initial`` to ``max``."""

    initial: int = 5_000
    max: int = 7_200_000
    multiplier: int = 2


class CustomizedRetryPolicy(Body, frozen=True):
    """The delay in ms before each redelivery."""

    next: list[int] = []


class GroupRetryPolicy(Body, frozen=True):
    """How a group's failed messages come again; ``type`` names the policy that holds."""

    type: str = "CUSTOMIZED"
    exponential_retry_policy: ExponentialRetryPolicy | None = None
    customized_retry_policy: CustomizedRetryPolicy | None = None


class SimpleSubscriptionData(Body, frozen=True):
    """A subscription an operator set for a group."""

    topic: str
    expression_type: str
    expression: str
    version: int = 0


class SubscriptionGroupConfig(Body, frozen=True):
    """A consumer group on one broker (200)."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: int = 1
    retry_max_times: int = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: int = MASTER_ID
    which_broker_when_consume_slowly: int = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: int = 0
    consume_timeout_minute: int = 15
    subscription_data_set: list[SimpleSubscriptionData] | None = None
    attributes: dict[str, str] = {}


class SubscriptionGroupWrapper(Body, frozen=True):
    """All groups of a broker; the form of ``config/subscriptionGroup.json`` (201).

    ``forbidden_table`` holds, by group and topic, the bits of what the group may not do there.
    """

    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}
    forbidden_table: dict[str, dict[str, int]] = {}
    data_version: DataVersion = DataVersion()


class ConsumerOffsetSerializeWrapper(Body, frozen=True):
    """Offsets by ``topic@group`` and queue id; the form of ``config/consumerOffset.json``."""

    offset_table: dict[str, dict[int, int]] = {}
    data_version: DataVersion | None = None


class TopicOffset(Body, frozen=True):
    """The range of a queue, and when it was last written (ms; 0 when it is empty)."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStatsTable(Body, frozen=True):
    """The ranges of a topic's queues on one broker (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class QueueFields(msgspec.Struct, rename="camel"):
    """A queue as JSON has it."""

    topic: str
    broker_name: str
    queue_id: int

    def queue(self) -> MessageQueue:
        """The queue itself."""
        return MessageQueue(self.topic, self.broker_name, self.queue_id)


def _queue_of(key: object) -> MessageQueue:
    """A queue from a key of the dialect."""
    return msgspec.convert(key, QueueFields, strict=False).queue()


def _from_json(wanted: type, value: object) -> object:
    """Make the one type of the bodies that msgspec does not know."""
    if wanted is not MessageQueues:
        raise TypeError(f"no rule for {wanted}")
    try:
        queues = msgspec.convert(value, list[QueueFields], strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None  # to which msgspec adds the name of the field
    return MessageQueues(fields.queue() for fields in queues)


@cache
def _decoder(body: type[Body]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(body, strict=False, dec_hook=_from_json)


def _without_nulls(value: Any) -> Any:
    """A copy without the null members: fastjson gives such fields their defaults."""
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
