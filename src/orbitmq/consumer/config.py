"""Settings of the consumers, with Java's defaults (DefaultLitePullConsumer, DefaultMQPushConsumer).

Times are in milliseconds and sizes in MiB where the name does not say otherwise. What may be set,
and within which limits, is as in the Java classes' ``checkConfig``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from msgspec import Meta

from orbitmq.client.config import (
    ClientConfig,
    ClientSettings,
    Count,
    CountOrZero,
    Millis,
    make_config,
)
from orbitmq.errors import ConfigError
from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel

UpTo64Ki = Annotated[int, Meta(ge=1, le=65535)]
UpTo1024 = Annotated[int, Meta(ge=1, le=1024)]

_HALF_AN_HOUR_MS: Final = 30 * 60 * 1000
_JAVA_TIME: Final = "%Y%m%d%H%M%S"

_ConfigT = TypeVar("_ConfigT", bound="GroupConfig")


class GroupConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every consumer has besides."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: the consumers of a group share the messages. BROADCASTING: each gets all."""
    broker_suspend_max_time_ms: Millis = 20_000
    """How long a broker may hold a pull while there is no message."""
    consumer_timeout_when_suspend_ms: Millis = 30_000
    """How long the answer to such a pull may take."""
    pull_from_broker_id: CountOrZero | None = None
    """Which broker of a name is pulled: 0 the master, others the slaves; another stands in where
    it is missing. Default: the one the broker itself suggested last (``connectBrokerByUser``)."""
    local_offset_dir: str | None = None
    """Where offsets are kept under BROADCASTING. Default: ``~/.rocketmq_offsets``."""


class ConsumerConfig(GroupConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a consumer has besides whose queues are pulled in the background."""

    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group without an offset of a queue starts: at its end, its beginning, or a time."""
    consume_timestamp_ms: CountOrZero | None = None
    """That time, ms since the epoch. Default: half an hour before the consumer was made."""
    consume_timestamp: str | None = None
    """The same as Java writes it, ``yyyyMMddHHmmss`` in local time; one of the two, not both."""
    pull_threshold_for_queue: UpTo64Ki = 1000
    """A queue with more messages than this cached is not pulled."""
    pull_threshold_size_for_queue: UpTo1024 = 100
    """The same in MiB of records."""
    pull_delay_when_error_ms: Millis = 1_000
    """How long a queue waits after a pull that failed."""
    pull_delay_when_flow_control_ms: Millis = 50
    """How long a queue waits that holds too much, unless consumption makes room sooner."""
    handover_delay_ms: CountOrZero = 1_500
    """How long a queue that a running consumer gives up waits for its last offset before it is
    pulled here: Java's consumers take up to a second to notice that they shall give it up. (Java
    pulls every new queue after 500 ms, from the offset as it was before.)"""
    enable_trace: bool = False
    """Whether it tells the trace topic which messages it consumed, when and how."""
    trace_topic: str | None = None
    """The trace topic. Default: ``RMQ_SYS_TRACE_TOPIC``."""
    trace_batch_size: Annotated[int, Meta(ge=1, le=20)] = 10
    """Calls of listeners, or polls, told in one message of that topic (traceMsgBatchNum)."""

    def begin_ms(self, now_ms: int) -> int:
        """The time CONSUME_FROM_TIMESTAMP begins at. ConfigError for one that cannot be read."""
        if self.consume_timestamp is None:
            given = self.consume_timestamp_ms
            return now_ms - _HALF_AN_HOUR_MS if given is None else given
        if self.consume_timestamp_ms is not None:
            raise ConfigError(
                "consume_timestamp", self.consume_timestamp, "not beside consume_timestamp_ms"
            )
        try:
            return int(time.mktime(time.strptime(self.consume_timestamp, _JAVA_TIME))) * 1000
        except (ValueError, OverflowError):
            raise ConfigError(
                "consume_timestamp",
                self.consume_timestamp,
                "a time as yyyyMMddHHmmss, such as 20240131235959",
            ) from None


class LitePullConfig(ConsumerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a lite pull consumer has besides."""

    auto_commit: bool = True
    """Whether what was polled is committed without a call, once a later poll has settled it."""
    auto_commit_interval_ms: Annotated[int, Meta(ge=1000)] = 5_000
    """How often; it happens within ``poll``, for what earlier polls gave, and at the end."""
    poll_timeout_ms: CountOrZero = 5_000
    """How long ``poll`` waits when it is not told."""
    pull_batch_size: UpTo1024 = 10
    """Messages a pull asks for; a poll gives those of one pull."""
    pull_threshold_for_all: Count = 10_000
    """With more messages than this cached of all queues together none is pulled."""
    consume_max_span: UpTo64Ki = 2000
    """A queue whose cached offsets span more than this is not pulled."""
    pull_delay_when_paused_ms: Millis = 1_000
    """How often a paused queue is looked at; resuming it has it pulled at once."""
    topic_metadata_check_interval_ms: Millis = 30_000
    """How often the queues of topics with a TopicMessageQueueChangeListener are asked for; first
    after 10 s, or this where it is less."""


class PushConfig(ConsumerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a push consumer has besides."""

    orderly: bool = False
    """Whether the messages of a queue are consumed in order, one batch at a time."""
    consume_threads: UpTo1024 = 20
    """How many listeners run at once: threads for plain functions, tasks for coroutines."""
    consume_batch_size: UpTo1024 = 1
    """Messages a listener gets at once, at most (consumeMessageBatchMaxSize)."""
    pull_batch_size: UpTo1024 = 32
    """Messages a pull asks for."""
    pull_batch_bytes: Count = 256 * 1024
    """Bytes a pull asks for; brokers of RocketMQ 5 only."""
    pull_interval_ms: Annotated[int, Meta(ge=0, le=65535)] = 0
    """How long a queue waits after a pull that brought messages."""
    pull_threshold_for_topic: Annotated[int, Meta(ge=1, le=6_553_500)] | None = None
    """Cached messages of all queues, divided among them in place of pull_threshold_for_queue."""
    pull_threshold_size_for_topic: Annotated[int, Meta(ge=1, le=102_400)] | None = None
    """The same in MiB, in place of pull_threshold_size_for_queue."""
    consume_concurrently_max_span: UpTo64Ki = 2000
    """A queue whose cached offsets span more than this is not pulled, unless ``orderly``."""
    post_subscription_when_pull: bool = False
    """Whether each pull carries its subscription."""
    max_reconsume_times: CountOrZero | None = None
    """How often a message that fails is consumed again. Default: 16, without end in order."""
    suspend_current_queue_time_ms: Millis = 1_000
    """How long an orderly queue waits after a failure (10 ms to 30 s count)."""
    consume_timeout_ms: Annotated[int, Meta(ge=1000)] = 15 * 60 * 1000
    """A message in a listener for longer is sent back to be consumed again elsewhere."""
    shutdown_timeout_ms: CountOrZero = 30_000
    """How long shutdown waits for running listeners when it is not told (Java: not at all)."""
    broker_suspend_max_time_ms: Millis = 15_000
    pull_delay_when_error_ms: Millis = 3_000


class PullConfig(GroupConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pull consumer has besides."""

    consumer_pull_timeout_ms: Millis = 10_000
    """How long the answer to a pull may take that does not wait for messages."""
    max_reconsume_times: CountOrZero = 16
    """How often a message that is sent back is consumed again."""
    enable_rebalance: bool = True
    """Whether it shares in the queues of its topics; it may pull any queue at any time."""


class PullScheduleConfig(PullConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a schedule service of pulls has besides."""

    pull_thread_nums: UpTo1024 = 20
    """How many callbacks run at once."""
    handover_delay_ms: CountOrZero = 1_500
    """How long a queue that a running consumer gives up waits for its last offset before its
    callback is called here (Java calls it at once)."""
    shutdown_timeout_ms: CountOrZero = 30_000
    """How long shutdown waits for running callbacks (Java: not at all)."""


class GroupSettings(ClientSettings, total=False):
    """The keyword arguments every consumer takes; see GroupConfig."""

    message_model: MessageModel | str
    broker_suspend_max_time_ms: int
    consumer_timeout_when_suspend_ms: int
    pull_from_broker_id: int | None
    local_offset_dir: str | None


class ConsumerSettings(GroupSettings, total=False):
    """The keyword arguments of consumers that pull in the background; see ConsumerConfig."""

    consume_from_where: ConsumeFromWhere | str
    consume_timestamp_ms: int | None
    consume_timestamp: str | None
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    pull_delay_when_error_ms: int
    pull_delay_when_flow_control_ms: int
    handover_delay_ms: int
    enable_trace: bool
    trace_topic: str | None
    trace_batch_size: int
    pull_batch_size: int


class LitePullSettings(ConsumerSettings, total=False):
    """The keyword arguments a lite pull consumer takes; see LitePullConfig."""

    auto_commit: bool
    auto_commit_interval_ms: int
    poll_timeout_ms: int
    pull_threshold_for_all: int
    consume_max_span: int
    pull_delay_when_paused_ms: int
    topic_metadata_check_interval_ms: int


class PushSettings(ConsumerSettings, total=False):
    """The keyword arguments a push consumer takes; see PushConfig."""

    orderly: bool
    consume_threads: int
    consume_batch_size: int
    pull_batch_bytes: int
    pull_interval_ms: int
    pull_threshold_for_topic: int | None
    pull_threshold_size_for_topic: int | None
    consume_concurrently_max_span: int
    post_subscription_when_pull: bool
    max_reconsume_times: int | None
    suspend_current_queue_time_ms: int
    consume_timeout_ms: int
    shutdown_timeout_ms: int


class PullConsumerSettings(GroupSettings, total=False):
    """The keyword arguments a pull consumer takes; see PullConfig."""

    consumer_pull_timeout_ms: int
    max_reconsume_times: int
    enable_rebalance: bool


class PullScheduleSettings(PullConsumerSettings, total=False):
    """The keyword arguments a schedule service takes; see PullScheduleConfig."""

    pull_thread_nums: int
    handover_delay_ms: int
    shutdown_timeout_ms: int


def make_consumer_config(config_type: type[_ConfigT], settings: Mapping[str, Any]) -> _ConfigT:
    """A checked ``config_type`` from keyword arguments; errors as :func:`make_config`."""
    config = make_config(config_type, settings)
    if config.consumer_timeout_when_suspend_ms < config.broker_suspend_max_time_ms:
        raise ConfigError(
            "consumer_timeout_when_suspend_ms",
            config.consumer_timeout_when_suspend_ms,
            f"broker_suspend_max_time_ms ({config.broker_suspend_max_time_ms}) or more",
        )
    return config
