"""How trace records get to the trace topic: in batches, by a producer of their own.

Shared by consumers and producers. Follows AsyncTraceDispatcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from typing import Final, NamedTuple, Protocol, cast

from orbitmq.client.background import Background
from orbitmq.client.config import ClientConfig
from orbitmq.client.loop import loop_thread
from orbitmq.errors import OrbitMQError
from orbitmq.message import Message
from orbitmq.names import MAX_GROUP_LENGTH, TRACE_TOPIC
from orbitmq.producer.config import ProducerSettings
from orbitmq.producer.core import ProducerCore
from orbitmq.producer.sender import ForgetfulSink

log = logging.getLogger("orbitmq.client.trace")

_CAPACITY: Final = 2048
_FLUSH_SECONDS: Final = 5.0
_MAX_MESSAGE_SIZE: Final = 128_000
_SEND_TIMEOUT_MS: Final = 5_000

_numbers = itertools.count(1)


class Traced(NamedTuple):
    """Records, the topic of the messages they are of, and what to find them by."""

    topic: str
    records: str
    keys: frozenset[str]


class TracingConfig(Protocol):
    """The settings of a client that traces, which are a ClientConfig's too."""

    @property
    def trace_topic(self) -> str | None:
        """Where to; None: RocketMQ's own topic."""
        ...

    @property
    def trace_batch_size(self) -> int:
        """How many records go in one message."""
        ...


class TraceDispatcher:
    """Sends records, some at a time, and never holds up who makes them (AsyncTraceDispatcher).

    They go when there are ``batch_size``, after 5 s, and at the end. While 2048 wait, more are
    dropped and counted. ``kind`` says of what: CONSUME or PRODUCE. Lives on the private loop;
    :meth:`append` is for any thread.
    """

    def __init__(self, group: str, kind: str, config: TracingConfig) -> None:
        self._topic = config.trace_topic or TRACE_TOPIC
        self._batch_size = config.trace_batch_size
        self._producer = ProducerCore(_producer_group(group, kind), _producer_settings(config))
        self._waiting: deque[Traced] = deque()
        self._dropped = 0
        self._wake = asyncio.Event()
        self._flushing: Background | None = None

    async def start(self) -> None:
        """Begin to send; does not wait for a name server."""
        await self._producer.start()
        self._flushing = Background(self._flush_again_and_again(), "sending of traces")

    async def shutdown(self) -> None:
        """Send what waits, and end."""
        if self._flushing is None:
            return
        await self._flushing.stop()
        self._flushing = None
        self._flush()
        await asyncio.sleep(0)  # what was just handed over begins
        await self._producer.shutdown(wait_for_callbacks=False)

    def append(self, traced: Traced) -> None:
        """Have it sent soon."""
        if len(self._waiting) >= _CAPACITY:
            self._dropped += 1
            if self._dropped % _CAPACITY == 1:
                log.warning(
                    "%d trace records were dropped: they come faster than %s takes them",
                    self._dropped,
                    self._topic,
                )
            return
        self._waiting.append(traced)
        if len(self._waiting) >= self._batch_size:
            loop_thread().post(self._wake.set)

    async def _flush_again_and_again(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FLUSH_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            self._flush()

    def _flush(self) -> None:
        """Send what waits: a message for each topic traced, or several where it gets too large."""
        while self._waiting:
            count = min(len(self._waiting), self._batch_size)
            by_topic: dict[str, list[Traced]] = {}
            for _ in range(count):
                traced = self._waiting.popleft()
                by_topic.setdefault(traced.topic, []).append(traced)
            for batch in by_topic.values():
                for part in _parts(batch):
                    self._send(part)

    def _send(self, batch: list[Traced]) -> None:
        body = "".join(traced.records for traced in batch).encode()
        keys = frozenset().union(*(traced.keys for traced in batch))
        producer = self._producer
        try:
            outgoing = producer.prepare(Message(self._topic, body, keys=sorted(keys)), None, None)
            producer.post(
                producer.sending(
                    outgoing,
                    ForgetfulSink(outgoing),
                    None,
                    producer.deadline(None),
                    retries=producer.config.retry_times_when_send_async_failed,
                )
            )
        except OrbitMQError as error:
            log.warning("%d trace records are lost: %s", len(batch), error)


def _parts(batch: list[Traced]) -> list[list[Traced]]:
    """``batch`` cut into parts that fit into a message, but for a record that is too large."""
    parts: list[list[Traced]] = [[]]
    size = 0
    for traced in batch:
        length = len(traced.records.encode())
        if parts[-1] and size + length > _MAX_MESSAGE_SIZE:
            parts.append([])
            size = 0
        parts[-1].append(traced)
        size += length
    return parts


def _producer_group(group: str, kind: str) -> str:
    """A group for each dispatcher, as in Java, cut to what a group's name may have."""
    number = f"-{kind}-{next(_numbers)}"
    return f"_INNER_TRACE_PRODUCER-{group}"[: MAX_GROUP_LENGTH - len(number)] + number


def _producer_settings(config: TracingConfig) -> ProducerSettings:
    """The producer reaches the brokers as its client does; its topic is in no namespace."""
    settings = {name: getattr(config, name) for name in ClientConfig.__struct_fields__}
    return cast(
        "ProducerSettings", {**settings, "namespace": "", "send_timeout_ms": _SEND_TIMEOUT_MS}
    )
