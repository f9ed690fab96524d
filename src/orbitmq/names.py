"""Topic and group names: what RocketMQ allows, and the names it keeps for itself.

Rules and system names are those of Java's ``TopicValidator`` and ``MixAll`` (5.x).
"""

from __future__ import annotations

import re
from typing import Final

from orbitmq.errors import IllegalNameError

RETRY_PREFIX: Final = "%RETRY%"
"""Messages a group is to consume again wait in the topic ``%RETRY%`` + group."""
DLQ_PREFIX: Final = "%DLQ%"
"""Messages a group has given up lie in the dead-letter topic ``%DLQ%`` + group."""

AUTO_CREATE_TOPIC: Final = "TBW102"
"""The topic whose settings new topics inherit."""
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SYSTEM_PREFIX: Final = "rmq_sys_"
ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of a name server's KV in which the order configurations of topics are."""

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        TRACE_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""Topics every broker has; topics named after a broker and its cluster come on top."""

UNSENDABLE_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    }
)
"""System topics no client may send to."""

MAX_TOPIC_LENGTH: Final = 127
MAX_DERIVED_TOPIC_LENGTH: Final = 255
"""The limit of ``%RETRY%`` and ``%DLQ%`` topics."""
MAX_GROUP_LENGTH: Final = 120

SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
SYSTEM_GROUPS: Final = frozenset(
    {
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "TOOLS_CONSUMER",
        "SCHEDULE_CONSUMER",
        "FILTERSRV_CONSUMER",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
        "SELF_TEST_P_GROUP",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PULL",
    }
)
"""Groups that are RocketMQ's own, besides those with SYSTEM_GROUP_PREFIX."""
TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The group in whose name tools pull."""

_ILLEGAL = re.compile(r"[^%|a-zA-Z0-9_-]")


def retry_topic(group: str) -> str:
    """The topic of the messages that ``group`` is to consume again."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """The topic of the messages that ``group`` has given up."""
    return DLQ_PREFIX + group


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ keeps ``topic`` for itself (broker and cluster names are not known here)."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIX)


def is_system_group(group: str) -> bool:
    """Whether RocketMQ keeps ``group`` for itself (isSysConsumerGroup, isPredefinedGroup)."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def check_topic(topic: str) -> None:
    """Raise IllegalNameError unless ``topic`` is a legal topic name."""
    derived = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    _check("topic", topic, MAX_DERIVED_TOPIC_LENGTH if derived else MAX_TOPIC_LENGTH)


def check_group(group: str) -> None:
    """Raise IllegalNameError unless ``group`` is a legal group name."""
    _check("group", group, MAX_GROUP_LENGTH)


def _check(kind: str, name: str, limit: int) -> None:
    if not name.strip():
        raise IllegalNameError(f"the {kind} name is blank: give it 1 to {limit} characters")
    if illegal := _ILLEGAL.search(name):
        raise IllegalNameError(
            f"the {kind} name {_shown(name)} has the illegal character {illegal.group()!r}: "
            "use letters, digits and _ - % | only"
        )
    if len(name) > limit:
        raise IllegalNameError(
            f"the {kind} name {_shown(name)} has {len(name)} characters: use {limit} at most"
        )


def _shown(name: str) -> str:
    return repr(name if len(name) <= 140 else name[:137] + "...")
