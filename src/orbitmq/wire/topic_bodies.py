"""What operators ask of a broker about topics and groups: headers and bodies, with Java's names.

Also what they ask about their modes (401, 402), replicas (907) and cold data (2001 to 2003). The
Java classes are those of ``remoting.protocol.header``, ``protocol.body`` and
``protocol.subscription``.
"""

from __future__ import annotations

from orbitmq.wire.bodies import Body, TopicConfig
from orbitmq.wire.command import Header
from orbitmq.wire.headers import Int

# Topics: 18, 21


class CreateTopicListRequestBody(Body, frozen=True):
    """Several topics to make or change (18); their attributes are changes, with signs."""

    topic_config_list: list[TopicConfig] = []


class GetAllTopicConfigRequestHeader(Header):
    """GET_ALL_TOPIC_CONFIG (21); with any field set, a page of the topics by name.

    ``topic_seq`` is the place of the first, ``data_version`` the version of the table that place
    was counted in, as JSON.
    """

    topic_seq: Int | None = None
    data_version: str | None = None
    max_topic_num: Int | None = None


class GetAllTopicConfigResponseHeader(Header):
    """The answer to 21: how many topics there are in all."""

    total_topic_num: Int


# Groups: 201, 207, 353


class GetAllSubscriptionGroupRequestHeader(Header):
    """GET_ALL_SUBSCRIPTIONGROUP_CONFIG (201), in pages as 21."""

    group_seq: Int | None = None
    data_version: str | None = None
    max_group_num: Int | None = None


class GetAllSubscriptionGroupResponseHeader(Header):
    """The answer to 201: how many groups there are in all."""

    total_group_num: Int


class UpdateGroupForbiddenRequestHeader(Header):
    """UPDATE_AND_GET_GROUP_FORBIDDEN (353); without ``readable`` nothing changes."""

    group: str
    topic: str
    readable: bool | None = None


class GroupForbidden(Body, frozen=True):
    """Whether a group may read a topic (353)."""

    topic: str
    group: str
    readable: bool


# Modes: 401, 402


class SetMessageRequestModeBody(Body, frozen=True):
    """How a group is to get the messages of a topic (401): ``PULL`` or ``POP``.

    With pop, ``pop_share_queue_num`` consumers share a queue.
    """

    topic: str
    consumer_group: str
    mode: str = "PULL"
    pop_share_queue_num: int = 0


class MessageRequestModeSerializeWrapper(Body, frozen=True):
    """All modes by topic and group; the form of ``config/messageRequestMode.json`` (402)."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeBody]] = {}


# Replicas


class HAClientRuntimeInfo(Body, frozen=True):
    """A slave's connection to its master."""

    activated: bool = False
    last_read_timestamp: int = 0
    last_write_timestamp: int = 0
    master_addr: str | None = None
    master_flush_offset: int = 0
    max_offset: int = 0
    transferred_byte_in_second: int = 0


class HAConnectionRuntimeInfo(Body, frozen=True):
    """A master's connection to one of its slaves."""

    addr: str
    diff: int = 0
    in_sync: bool = False
    slave_ack_offset: int = 0
    transfer_from_where: int = 0
    transferred_byte_in_second: int = 0


class HARuntimeInfo(Body, frozen=True):
    """A broker's replicas (907)."""

    ha_client_runtime_info: HAClientRuntimeInfo = HAClientRuntimeInfo()
    ha_connection_info: list[HAConnectionRuntimeInfo] = []
    in_sync_slave_nums: int = 0
    master: bool = True
    master_commit_log_max_offset: int = 0


# Cold data: 2003


class ColdDataFlowCtrInfo(Body, frozen=True):
    """Which groups read how much of what is no longer in memory, bytes, and their limits (2003)."""

    runtime_table: dict[str, dict[str, int]] = {}
    config_table: dict[str, int] = {}
    cg_cold_read_threshold: int = 3 << 20
    global_cold_read_threshold: int = 100 << 20
    global_acc: int = 0
