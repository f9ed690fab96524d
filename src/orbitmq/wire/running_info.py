"""What a consumer tells operators: how it runs (307), and how it took one message (309).

The bodies that ``mqadmin consumerStatus`` and the dashboard show, in the JSON of Java's
ConsumerRunningInfo, ProcessQueueInfo, ConsumeStatus and ConsumeMessageDirectlyResult (package
``org.apache.rocketmq.remoting.protocol.body``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from msgspec import field

from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import Body, SubscriptionData

# Keys of ConsumerRunningInfo.properties that tools rely on.
PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


class ProcessQueueInfo(Body, frozen=True):
    """A queue a consumer holds. Times in ms since the epoch; offsets are 0 where nothing is held.

    What is "transaction" in Java's names are the messages being consumed in order.
    ``try_unlock_times``: how often it could not be given back because a listener was at work.
    """

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    dropped: bool = field(default=False, name="droped")
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopProcessQueueInfo(Body, frozen=True):
    """A queue a consumer pops messages of, which no consumer of OrbitMQ does."""

    wait_ack_count: int = 0
    dropped: bool = field(default=False, name="droped")
    last_pop_timestamp: int = 0


class ConsumeStatusInfo(Body, frozen=True):
    """How fast a topic is consumed (Java's ConsumeStatus): the last minute, failures of the hour.

    RT are mean times in ms, of a pull that brought messages and of a listener's call; TPS are
    messages a second; ``consume_failed_msgs`` counts the messages that failed.
    """

    pull_rt: float = field(default=0.0, name="pullRT")
    pull_tps: float = field(default=0.0, name="pullTPS")
    consume_rt: float = field(default=0.0, name="consumeRT")
    consume_ok_tps: float = field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = field(default=0.0, name="consumeFailedTPS")
    consume_failed_msgs: int = 0


class ConsumerRunningInfo(Body, frozen=True):
    """Everything about a running consumer (307); made by :func:`running_info`.

    ``properties`` are its settings and the PROP_ keys above; ``user_consumer_info`` is for a
    consumer to say more; ``jstack`` has the stacks of all its threads, when they were asked for.
    """

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: dict[MessageQueue, PopProcessQueueInfo] = {}
    status_table: dict[str, ConsumeStatusInfo] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


def running_info(
    properties: Mapping[str, str],
    subscriptions: Iterable[SubscriptionData],
    queues: Mapping[MessageQueue, ProcessQueueInfo],
    jstack: str | None = None,
) -> ConsumerRunningInfo:
    """A ConsumerRunningInfo with its tables sorted, as Java's are trees, and no figures yet."""
    return ConsumerRunningInfo(
        dict(properties),
        sorted(subscriptions, key=lambda item: f"{item.topic}@{item.sub_string}"),
        dict(sorted(queues.items())),
        jstack=jstack,
    )


class CMResult(StrEnum):
    """How a listener took a message it was given directly."""

    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class ConsumeMessageDirectlyResult(Body, frozen=True):
    """The answer to an operator who had one message consumed (309).

    ``order``: by an orderly listener; ``remark``: what it raised; ``spent_time_mills`` in ms.
    """

    order: bool = False
    auto_commit: bool = True
    consume_result: CMResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0
