"""Tracing: a consumer tells a topic of RocketMQ's which messages it consumed, when, and how.

With ``enable_trace`` a hook around every listener call makes the records (``wire/trace.py``), and
a TraceDispatcher sends them in batches with a producer of its own. Follows
ConsumeMessageTraceHookImpl and AsyncTraceDispatcher.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from orbitmq.client.background import Background
from orbitmq.client.config import ClientConfig
from orbitmq.client.loop import loop_thread
from orbitmq.clock import Clock
from orbitmq.consumer.config import ConsumerConfig
from orbitmq.consumer.hooks import CONSUME_CONTEXT_TYPE, ConsumeMessageContext
from orbitmq.errors import OrbitMQError
from orbitmq.message import Message
from orbitmq.names import MAX_GROUP_LENGTH, TRACE_TOPIC
from orbitmq.producer.config import ProducerSettings
from orbitmq.producer.core import ForgetfulSink, ProducerCore
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import MSG_REGION, TRACE_SWITCH
from orbitmq.wire.trace import ConsumeTrace, ContextCode, TracedMessage

log = logging.getLogger("orbitmq.consumer.trace")

_NO_REGION: Final = "null"
"""What stands for the region that brokers of 4.9 do not tell: as the client of 4.9 writes it.
The client of 5.5 leaves such messages out."""
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


class TraceHook:
    """Makes the records; called where listeners run (ConsumeMessageTraceHookImpl)."""

    def __init__(self, append: Callable[[Traced], None], clock: Clock) -> None:
        self._append = append
        self._clock = clock

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Note who is about to consume what; messages whose trace switch is off are left out."""
        traced = [
            message for message in context.message_list if message.property(TRACE_SWITCH) != "false"
        ]
        if not traced:
            return
        region = traced[-1].property(MSG_REGION) or _NO_REGION
        trace = context.trace_context = ConsumeTrace.begin(
            context.consumer_group, region, self._clock.now_ms(), list(map(_traced, traced))
        )
        self._append(_to_send(trace, trace.before()))

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """Note how that ended, and how long a message took."""
        trace = context.trace_context
        if not isinstance(trace, ConsumeTrace):
            return
        now_ms = self._clock.now_ms()
        cost_ms = (now_ms - trace.timestamp_ms) // len(context.message_list)
        code = ContextCode[context.props.get(CONSUME_CONTEXT_TYPE, "SUCCESS")]
        self._append(_to_send(trace, trace.after(cost_ms, code, now_ms, success=context.success)))


class TraceDispatcher:
    """Sends records, some at a time, and never holds up who makes them (AsyncTraceDispatcher).

    They go when there are ``batch_size``, after 5 s, and at the end. While 2048 wait, more are
    dropped and counted. Lives on the private loop; :meth:`append` is for any thread.
    """

    def __init__(self, group: str, config: ConsumerConfig) -> None:
        self._topic = config.trace_topic or TRACE_TOPIC
        self._batch_size = config.trace_batch_size
        self._producer = ProducerCore(_producer_group(group), _producer_settings(config))
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


def _to_send(trace: ConsumeTrace, records: str) -> Traced:
    return Traced(trace.messages[0].topic, records, frozenset(trace.keys()))


def _traced(message: MessageView) -> TracedMessage:
    return TracedMessage(message.topic, message.message_id, message.keys, message.reconsume_times)


def _producer_group(group: str) -> str:
    """A group for each dispatcher, as in Java, cut to what a group's name may have."""
    number = f"-CONSUME-{next(_numbers)}"
    return f"_INNER_TRACE_PRODUCER-{group}"[: MAX_GROUP_LENGTH - len(number)] + number


def _producer_settings(config: ClientConfig) -> ProducerSettings:
    """The producer reaches the brokers as the consumer does; its topic is in no namespace."""
    settings = {name: getattr(config, name) for name in ClientConfig.__struct_fields__}
    return cast(
        "ProducerSettings", {**settings, "namespace": "", "send_timeout_ms": _SEND_TIMEOUT_MS}
    )
