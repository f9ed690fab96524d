"""Typed headers: the ``extFields`` of each request and response OrbitMQ speaks.

Names are those of Java's ``remoting.protocol.header`` package. Required fields have no default;
None means absent. ``bname`` names the broker a 5.x client means, as Java's ``RpcRequestHeader``.
A number is one of Java's: what does not fit is refused, as there.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

from orbitmq.codes import RequestCode
from orbitmq.wire.command import Header, decode_at_once

Int: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]
"""Java's int."""
Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""Java's long."""


class SendMessageRequestHeader(Header):
    """SEND_MESSAGE (10)."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    batch: bool | None = None
    bname: str | None = None


class SendMessageRequestHeaderV2(
    Header,
    rename={
        "producer_group": "a",
        "topic": "b",
        "default_topic": "c",
        "default_topic_queue_nums": "d",
        "queue_id": "e",
        "sys_flag": "f",
        "born_timestamp": "g",
        "flag": "h",
        "properties": "i",
        "reconsume_times": "j",
        "unit_mode": "k",
        "max_reconsume_times": "l",
        "batch": "m",
        "bname": "n",
    },
):
    """SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320): the same fields under short names."""

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: Int
    queue_id: Int
    sys_flag: Int
    born_timestamp: Long
    flag: Int
    properties: str | None = None
    reconsume_times: Int | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    batch: bool | None = None
    bname: str | None = None


decode_at_once(RequestCode.SEND_MESSAGE, SendMessageRequestHeader)
decode_at_once(RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2)
decode_at_once(RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2)


class SendMessageResponseHeader(Header):
    """The answer to 10, 310 and 320."""

    msg_id: str
    queue_id: Int
    queue_offset: Long
    transaction_id: str | None = None
    batch_uniq_id: str | None = None
    recall_handle: str | None = None
    msg_region: str | None = msgspec.field(default=None, name="MSG_REGION")
    trace_on: str | None = msgspec.field(default=None, name="TRACE_ON")


class PullMessageRequestHeader(Header):
    """PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361). Times are in ms."""

    consumer_group: str
    topic: str
    queue_id: Int
    queue_offset: Long
    max_msg_nums: Int
    sys_flag: Int
    commit_offset: Long
    suspend_timeout_millis: Long
    sub_version: Long
    subscription: str | None = None
    expression_type: str | None = None
    max_msg_bytes: Int | None = None
    bname: str | None = None


decode_at_once(RequestCode.PULL_MESSAGE, PullMessageRequestHeader)
decode_at_once(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader)


class PullMessageResponseHeader(Header):
    """The answer to a pull, whatever its code."""

    suggest_which_broker_id: Long
    next_begin_offset: Long
    min_offset: Long
    max_offset: Long
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None


class QueryConsumerOffsetRequestHeader(Header):
    """QUERY_CONSUMER_OFFSET (14)."""

    consumer_group: str
    topic: str
    queue_id: Int
    set_zero_if_not_found: bool | None = None
    bname: str | None = None


class UpdateConsumerOffsetRequestHeader(Header):
    """UPDATE_CONSUMER_OFFSET (15)."""

    consumer_group: str
    topic: str
    queue_id: Int
    commit_offset: Long
    bname: str | None = None


class TopicQueueRequestHeader(Header):
    """GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME (30, 31, 32).

    ``committed`` of 30 asks for the largest offset that may be consumed (5.x).
    """

    topic: str
    queue_id: Int
    committed: bool | None = None
    bname: str | None = None


class SearchOffsetRequestHeader(Header):
    """SEARCH_OFFSET_BY_TIMESTAMP (29); ``boundary_type`` is LOWER (default) or UPPER."""

    topic: str
    queue_id: Int
    timestamp: Long
    boundary_type: str | None = None
    bname: str | None = None


class OffsetResponseHeader(Header):
    """The answer to 14, 29, 30 and 31."""

    offset: Long


class TimestampResponseHeader(Header):
    """The answer to 32, in ms."""

    timestamp: Long


class UnregisterClientRequestHeader(Header):
    """UNREGISTER_CLIENT (35)."""

    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None
    bname: str | None = None


class ConsumerSendMsgBackRequestHeader(Header):
    """CONSUMER_SEND_MSG_BACK (36); ``offset`` is the message's commit-log offset."""

    offset: Long
    group: str
    delay_level: Int
    origin_msg_id: str | None = None
    origin_topic: str | None = None
    unit_mode: bool | None = None
    max_reconsume_times: Int | None = None
    bname: str | None = None


class RecallMessageRequestHeader(Header):
    """RECALL_MESSAGE (370); ``recall_handle`` is that of the answer to the send."""

    topic: str
    recall_handle: str
    producer_group: str | None = None
    bname: str | None = None


class RecallMessageResponseHeader(Header):
    """The answer to RECALL_MESSAGE: the recalled message's unique key."""

    msg_id: str


class EndTransactionRequestHeader(Header):
    """END_TRANSACTION (37); ``commit_or_rollback`` is 8, 12 or 0."""

    producer_group: str
    tran_state_table_offset: Long
    commit_log_offset: Long
    commit_or_rollback: Int
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool | None = None
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionStateRequestHeader(Header):
    """CHECK_TRANSACTION_STATE (39), broker to producer."""

    tran_state_table_offset: Long
    commit_log_offset: Long
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None


class ConsumerGroupRequestHeader(Header):
    """GET_CONSUMER_LIST_BY_GROUP and NOTIFY_CONSUMER_IDS_CHANGED (38, 40)."""

    consumer_group: str
    bname: str | None = None


class CheckClientRequestHeader(Header):
    """CHECK_CLIENT_CONFIG (46): the request is all in the body."""


class GetRouteInfoRequestHeader(Header):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None


class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER (103); the body is deflated where ``compressed``."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    ha_server_addr: str
    broker_id: Long
    heartbeat_timeout_millis: Long | None = None
    enable_acting_master: bool | None = None
    compressed: bool = False
    body_crc32: Int = 0


class RegisterBrokerResponseHeader(Header):
    """The answer to 103."""

    ha_server_addr: str | None = None
    master_addr: str | None = None


class BrokerRequestHeader(Header):
    """UNREGISTER_BROKER and QUERY_DATA_VERSION (104, 322)."""

    broker_name: str
    broker_addr: str
    cluster_name: str
    broker_id: Long


class QueryDataVersionResponseHeader(Header):
    """The answer to 322: whether the broker must register anew."""

    changed: bool


class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT (904), sent by 5.x brokers."""

    cluster_name: str
    broker_addr: str
    broker_name: str
    broker_id: Long | None = None
    heartbeat_timeout_mills: Long | None = None


class TopicRequestHeader(Header):
    """Requests about one topic: 202, 215, 216, 217, 351."""

    topic: str
    cluster_name: str | None = None


class CreateTopicRequestHeader(Header):
    """UPDATE_AND_CREATE_TOPIC (17); ``perm`` is 2 write + 4 read."""

    topic: str
    default_topic: str
    read_queue_nums: Int
    write_queue_nums: Int
    perm: Int
    topic_filter_type: str
    topic_sys_flag: Int | None = None
    order: bool = False
    attributes: str | None = None


class ClusterRequestHeader(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class BrokerNameRequestHeader(Header):
    """Requests to a name server about one broker name: 205, 327, 901."""

    broker_name: str
    cluster_name: str | None = None


class TopicCountResponseHeader(Header):
    """The answer to 205 and 327: how many topics have changed."""

    wipe_topic_count: Int | None = None
    add_topic_count: Int | None = None


class DeleteSubscriptionGroupRequestHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP (207).

    ``clean_offset`` also drops what the group committed; before 5 it is named ``remove_offset``.
    """

    group_name: str
    clean_offset: bool = False
    remove_offset: bool = False


# What an operator asks of a broker about consumers, and what the broker then asks of these


class ResetOffsetRequestHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET and RESET_CONSUMER_CLIENT_OFFSET (222, 220).

    ``timestamp`` is in ms, negative for the end of the queues. ``is_force`` lets offsets move
    forward too. ``queue_id`` (-1: all) and ``offset`` (over ``timestamp``) are of 5.x.
    """

    topic: str
    group: str
    timestamp: Long
    is_force: bool = False
    queue_id: Int = -1
    offset: Long | None = None
    bname: str | None = None


class GetConsumerStatusRequestHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS and GET_CONSUMER_STATUS_FROM_CLIENT (223, 221).

    ``client_addr`` is the one client id to ask; without it all of the group are.
    """

    topic: str
    group: str
    client_addr: str | None = None
    bname: str | None = None


class GetConsumerRunningInfoRequestHeader(Header):
    """GET_CONSUMER_RUNNING_INFO (307); ``jstack_enable`` asks for the stacks of all threads."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False
    bname: str | None = None


class ConsumeMessageDirectlyResultRequestHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY (309); on its way to the client the body is the message.

    The broker fills in ``broker_name`` and the flags of topic and group.
    """

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: Int | None = None
    group_sys_flag: Int | None = None
    bname: str | None = None


class ProducerGroupRequestHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST (204)."""

    producer_group: str
    bname: str | None = None


class GetConsumeStatsRequestHeader(Header):
    """GET_CONSUME_STATS (208): of ``topic_list`` (separated by ``;``), else ``topic``, else all."""

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    bname: str | None = None


class QueryMessageRequestHeader(Header):
    """QUERY_MESSAGE (12): messages of ``topic`` with ``key``, stored in a time, ms.

    ``unique_key_query`` is "true" when ``key`` is a unique key. ``index_type`` (5.4 on) is ``K``
    for keys, ``U`` for unique keys and ``T`` for tags; ``last_key`` means something to the RocksDB
    index alone.
    """

    topic: str
    key: str
    max_num: Int
    begin_timestamp: Long
    end_timestamp: Long
    index_type: str | None = None
    last_key: str | None = None
    unique_key_query: str | None = msgspec.field(default=None, name="_UNIQUE_KEY_QUERY")
    bname: str | None = None


class QueryMessageResponseHeader(Header):
    """The answer to 12: the newest message in the key index, its store time in ms and its offset.

    Both are 0 when nothing was found.
    """

    index_last_update_timestamp: Long = 0
    index_last_update_phyoffset: Long = 0


class QueryConsumeQueueRequestHeader(Header):
    """QUERY_CONSUME_QUEUE (321): ``count`` entries of a queue from ``index`` on."""

    topic: str
    queue_id: Int
    index: Long
    count: Int
    consumer_group: str | None = None
    bname: str | None = None


class ViewMessageRequestHeader(Header):
    """VIEW_MESSAGE_BY_ID (33); ``offset`` is the message's commit-log offset."""

    offset: Long
    topic: str | None = None


class GroupRequestHeader(Header):
    """Requests about one group, and for some about one of its topics: 343, 345, 352."""

    group: str
    topic: str | None = None
    bname: str | None = None


class CloneGroupOffsetRequestHeader(Header):
    """CLONE_GROUP_OFFSET (314); ``offline`` skips the check of what the source subscribes to."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False
    bname: str | None = None
