"""Settings of the consumers, with Java's defaults (DefaultLitePullConsumer, DefaultMQPushConsumer).

Times are in milliseconds and sizes in MiB where the name does not say otherwise. What may be set,
and within which limits, is as in the Java classes' ``checkConfig``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

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

_ConfigT = TypeVar("_ConfigT", bound="ConsumerConfig")


class ConsumerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both consumers have besides."""

    message_model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING: the consumers of a group share the messages. BROADCASTING: each gets all."""
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group without an offset of a queue starts: at its end, its beginning, or a time."""
    consume_timestamp_ms: CountOrZero | None = None
    """That time, ms since the epoch. Default: half an hour before the consumer was made."""
    pull_threshold_for_queue: UpTo64Ki = 1000
    """A queue with more messages than this cached is not pulled."""
    pull_threshold_size_for_queue: UpTo1024 = 100
    """The same in MiB of records."""
    broker_suspend_max_time_ms: Millis = 20_000
    """How long a broker may hold a pull while there is no message."""
    consumer_timeout_when_suspend_ms: Millis = 30_000
    """How long the answer to such a pull may take."""
    pull_delay_when_error_ms: Millis = 1_000
    """How long a queue waits after a pull that failed."""
    handover_delay_ms: CountOrZero = 500
    """How long a queue that a running consumer gives up waits for its last offset before it is
    pulled here (Java pulls every new queue after 500 ms, from the offset as it was before)."""
    local_offset_dir: str | None = None
    """Where offsets are kept under BROADCASTING. Default: ``~/.rocketmq_offsets``."""


class LitePullConfig(ConsumerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a lite pull consumer has besides."""

    auto_commit: bool = True
    """Whether offsets of polled messages are committed without a call."""
    auto_commit_interval_ms: Annotated[int, Meta(ge=1000)] = 5_000
    """How often; it happens within ``poll``, for what earlier polls gave."""
    poll_timeout_ms: CountOrZero = 5_000
    """How long ``poll`` waits when it is not told."""
    pull_batch_size: UpTo1024 = 10
    """Messages a pull asks for; a poll gives those of one pull."""
    pull_threshold_for_all: Count = 10_000
    """With more messages than this cached of all queues together none is pulled."""
    consume_max_span: UpTo64Ki = 2000
    """A queue whose cached offsets span more than this is not pulled."""


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


class ConsumerSettings(ClientSettings, total=False):
    """The keyword arguments both consumers take; see ConsumerConfig."""

    message_model: MessageModel | str
    consume_from_where: ConsumeFromWhere | str
    consume_timestamp_ms: int | None
    pull_threshold_for_queue: int
    pull_threshold_size_for_queue: int
    broker_suspend_max_time_ms: int
    consumer_timeout_when_suspend_ms: int
    pull_delay_when_error_ms: int
    handover_delay_ms: int
    local_offset_dir: str | None
    pull_batch_size: int


class LitePullSettings(ConsumerSettings, total=False):
    """The keyword arguments a lite pull consumer takes; see LitePullConfig."""

    auto_commit: bool
    auto_commit_interval_ms: int
    poll_timeout_ms: int
    pull_threshold_for_all: int
    consume_max_span: int


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
