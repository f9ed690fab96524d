"""Settings of the producers, with Java's defaults (DefaultMQProducer).

Times are in milliseconds, sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from orbitmq import codes
from orbitmq.client.config import ClientConfig, ClientSettings, Count, CountOrZero, Millis
from orbitmq.errors import ConfigError
from orbitmq.producer.fault_strategy import LATENCY_MAX_MS, NOT_AVAILABLE_DURATION_MS
from orbitmq.wire.compress import CompressionType, check_compression


class ProducerConfig(ClientConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a producer has besides (Java's ``DefaultMQProducer``)."""

    send_timeout_ms: Millis = 3_000
    """How long a send may take in all, retries included; and how long may pass without anything
    acknowledged while others wait for room."""
    send_max_timeout_per_request_ms: Millis | None = None
    """How long one attempt may take while another can follow. Default: all the time left."""
    retry_times_when_send_failed: CountOrZero = 2
    """How often ``send`` tries again, on another broker where there is one. Not counted is a broker
    that cannot be connected to."""
    retry_times_when_send_async_failed: CountOrZero = 2
    """The same for ``send_async`` and AsyncProducer."""
    retry_another_broker_when_not_store_ok: bool = False
    """Whether to try again when the broker stored the message but could not flush or replicate."""
    retry_response_codes: frozenset[int] = frozenset(
        {
            codes.TOPIC_NOT_EXIST,
            codes.SERVICE_NOT_AVAILABLE,
            codes.SYSTEM_ERROR,
            codes.SYSTEM_BUSY,
            codes.NO_PERMISSION,
            codes.NO_BUYER_ID,
            codes.NOT_IN_CURRENT_UNIT,
            codes.GO_AWAY,
        }
    )
    """The response codes after which another attempt is made."""
    max_message_size: Count = 4 * 1024 * 1024
    """The largest body, or batch, that is sent; brokers refuse more than 4 MiB by default."""
    compress_over_bytes: Count = 4096
    """Bodies of at least this size are compressed if that makes them smaller. Batches are not."""
    compress_level: CountOrZero = 5
    """0 to 9 for ZLIB, 1 to 22 for ZSTD; LZ4 has none."""
    compress_type: CompressionType | Literal["ZLIB", "LZ4", "ZSTD"] = CompressionType.ZLIB
    """A CompressionType or its name. Anything but ZLIB needs brokers and consumers of RocketMQ 5,
    and an extra package here."""
    create_topic_key: str = "TBW102"
    """The topic whose route an unknown topic starts with, where brokers create topics by need."""
    default_topic_queue_nums: Count = 4
    """How many queues a topic created so gets, at most."""
    topics: tuple[str, ...] = ()
    """Topics whose routes are fetched at the start, and kept: the brokers of these topics hear of
    the producer before it sends anything, which lets them ask it about transactions of producers
    that died."""
    max_in_flight: Count = 1024
    """Messages sent asynchronously and not answered yet, and callbacks not called yet; the next
    send waits (``backPressureForAsyncSendNum``; Java does not limit them unless told to)."""
    max_in_flight_bytes: Count = 100 * 1024 * 1024
    """The same in bytes of body (``backPressureForAsyncSendSize``)."""
    auto_batch: bool = False
    """Whether messages wait a little for others to the same queue or topic, with the same tag, and
    go as one batch. Not those with a ``timeout``, a delay or a transaction, nor one-way."""
    batch_max_delay_ms: Annotated[int, Meta(ge=1, le=30_000)] = 10
    """How long they wait at most."""
    batch_max_bytes: Annotated[int, Meta(ge=1, le=2 * 1024 * 1024)] = 32 * 1024
    """A batch that has more than this leaves at once."""
    total_batch_max_bytes: Count = 32 * 1024 * 1024
    """While more than this is held back or on its way in such batches, messages go one by one."""
    send_latency_fault_enable: bool = False
    """Whether brokers that were slow or failed are left alone for a while
    (sendLatencyFaultEnable, sendLatencyEnable)."""
    latency_max_ms: tuple[CountOrZero, ...] = LATENCY_MAX_MS
    """The latencies from which a broker is left alone, ascending; a failure counts as 10 s."""
    not_available_duration_ms: tuple[CountOrZero, ...] = NOT_AVAILABLE_DURATION_MS
    """For how long, for each of these latencies."""
    start_detector_enable: bool = False
    """Whether a broker that was not reached is left alone until it answers again, which is asked
    every 3 s."""
    detect_interval_ms: Millis = 2_000
    """The least time between two such questions to a broker."""
    detect_timeout_ms: Millis = 200
    """How long its answer may take."""
    enable_trace: bool = False
    """Whether it tells the trace topic which messages it sent, when and how."""
    trace_topic: str | None = None
    """The trace topic. Default: ``RMQ_SYS_TRACE_TOPIC``."""
    trace_batch_size: Annotated[int, Meta(ge=1, le=20)] = 10
    """Messages told of in one message of that topic (traceMsgBatchNum)."""

    @property
    def compression(self) -> CompressionType:
        """What ``compress_type`` says."""
        chosen = self.compress_type
        return chosen if isinstance(chosen, CompressionType) else CompressionType[chosen]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_compression(self.compression, self.compress_level)
        if self.auto_batch and self.batch_max_delay_ms >= self.send_timeout_ms:
            raise ConfigError(
                "batch_max_delay_ms",
                self.batch_max_delay_ms,
                f"less than send_timeout_ms={self.send_timeout_ms}, which it is a part of",
            )
        if list(self.latency_max_ms) != sorted(self.latency_max_ms):
            raise ConfigError("latency_max_ms", self.latency_max_ms, "ascending latencies")
        if len(self.not_available_duration_ms) != len(self.latency_max_ms):
            raise ConfigError(
                "not_available_duration_ms",
                self.not_available_duration_ms,
                f"as many as latency_max_ms has: {len(self.latency_max_ms)}",
            )
        if self.start_detector_enable and not self.send_latency_fault_enable:
            raise ConfigError(
                "start_detector_enable",
                self.start_detector_enable,
                "it has no effect without send_latency_fault_enable=True",
            )


class TransactionProducerConfig(
    ProducerConfig, frozen=True, kw_only=True, forbid_unknown_fields=True
):
    """What a producer of transactions has besides (Java's ``TransactionMQProducer``)."""

    check_threads: Count = 1
    """How many checks run at once, in threads or as tasks (checkThreadPoolMaxSize)."""
    check_request_hold_max: Count = 2000
    """How many checks may wait; further ones are left out, and the broker asks again
    (checkRequestHoldMax)."""

    @property
    def compression(self) -> CompressionType:
        """What ``compress_type`` says."""
        chosen = self.compress_type
        return chosen if isinstance(chosen, CompressionType) else CompressionType[chosen]


class ProducerSettings(ClientSettings, total=False):
    """The keyword arguments a producer takes; see ProducerConfig."""

    send_timeout_ms: int
    send_max_timeout_per_request_ms: int | None
    retry_times_when_send_failed: int
    retry_times_when_send_async_failed: int
    retry_another_broker_when_not_store_ok: bool
    retry_response_codes: frozenset[int]
    max_message_size: int
    compress_over_bytes: int
    compress_level: int
    compress_type: CompressionType | Literal["ZLIB", "LZ4", "ZSTD"]
    create_topic_key: str
    default_topic_queue_nums: int
    topics: tuple[str, ...]
    max_in_flight: int
    max_in_flight_bytes: int
    auto_batch: bool
    batch_max_delay_ms: int
    batch_max_bytes: int
    total_batch_max_bytes: int
    send_latency_fault_enable: bool
    latency_max_ms: tuple[int, ...]
    not_available_duration_ms: tuple[int, ...]
    start_detector_enable: bool
    detect_interval_ms: int
    detect_timeout_ms: int
    enable_trace: bool
    trace_topic: str | None
    trace_batch_size: int


class TransactionProducerSettings(ProducerSettings, total=False):
    """The keyword arguments a producer of transactions takes; see TransactionProducerConfig."""

    check_threads: int
    check_request_hold_max: int
