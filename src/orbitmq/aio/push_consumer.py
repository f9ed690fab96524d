"""AsyncPushConsumer: the push consumer for asyncio code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Unpack

from orbitmq.aio.face import AsyncFace
from orbitmq.client.loop import loop_thread
from orbitmq.client.timeouts import patience_ms
from orbitmq.consumer.flow_control import FlowControlTimes
from orbitmq.consumer.hooks import ConsumeMessageHook, FilterMessageHook
from orbitmq.consumer.parts import PushArguments
from orbitmq.consumer.push.core import FunctionT, PushCore
from orbitmq.consumer.push.listeners import ListenerFunction
from orbitmq.filters.subscription import Expression
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.running_info import ConsumerRunningInfo, ConsumeStatusInfo


class AsyncPushConsumer(AsyncFace[PushCore]):
    """Has messages consumed by listeners; as :class:`orbitmq.PushConsumer`, which explains it.

        consumer = AsyncPushConsumer("mailers", name_server="127.0.0.1:9876")

        @consumer.subscribe("orders", "paid || sent")
        async def mail(messages): ...

        async with consumer:
            await until_stopped()

    Coroutine listeners run on the loop the consumer was started on, plain functions in threads.
    What a listener raises never ends that loop, not even SystemExit. Leave ``async with`` before
    the loop ends: once it is closed nothing is consumed, and the log says so again and again.
    """

    def __init__(
        self,
        group: str,
        listener: ListenerFunction | None = None,
        **arguments: Unpack[PushArguments],
    ) -> None:
        super().__init__(PushCore(group, arguments, listener=listener))

    async def start(self) -> None:
        """Start; ClientStateError without a listener, or started before, or its group in use."""
        self._core.listeners.loop = asyncio.get_running_loop()
        await super().start()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait for running listeners, at most ``timeout`` seconds; see PushConsumer.shutdown."""
        await self._shut_down(patience_ms(timeout))

    def subscribe(
        self, topic: str, expression: Expression = "*", listener: ListenerFunction | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Have messages of ``topic`` consumed; see PushConsumer.subscribe."""
        return self._core.subscribe(topic, expression, listener)

    def unsubscribe(self, topic: str) -> None:
        """Consume messages of ``topic`` no more."""
        self._core.remove_subscription(topic)

    @property
    def suspended(self) -> bool:
        """Whether it is suspended (Java's ``isPause``)."""
        return self._core.suspended

    def suspend(self) -> None:
        """Pull no more until :meth:`resume`; what is cached is still consumed."""
        self._core.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._core.resume()

    def update_core_pool_size(self, size: int) -> None:
        """Run ``size`` listeners at once from now on; see PushConsumer.update_core_pool_size."""
        self._core.update_core_pool_size(size)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called before and after each call of a listener."""
        self._core.consume_hooks.register(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` take out of what each pull brings what is not wanted."""
        self._core.filter_hooks.register(hook)

    # Queues and messages; see PushConsumer for all of them.

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``."""
        return await loop_thread().run_async(self._core.fetch_subscribe_message_queues(topic))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of ``queue`` still kept."""
        return await loop_thread().run_async(self._core.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of ``queue`` gets."""
        return await loop_thread().run_async(self._core.max_offset(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time (ms since the epoch) or later."""
        return await loop_thread().run_async(self._core.search_offset(queue, timestamp_ms))

    async def send_message_back(
        self, message: MessageView, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Have ``message`` stored in the retry topic of the group, to be consumed later."""
        await loop_thread().run_async(
            self._core.send_message_back(message, delay_level, broker_name)
        )

    async def reset_offset_by_timestamp(self, timestamp_ms: int) -> None:
        """Go on, in all queues it has now, at what was stored at that time (ms) or later."""
        await loop_thread().run_async(self._core.reset_offset_by_timestamp(timestamp_ms))

    def consume_status(self, topic: str) -> ConsumeStatusInfo:
        """How fast ``topic`` is consumed."""
        return self._core.consume_status(topic)

    def flow_control_times(self) -> FlowControlTimes:
        """How often pulls waited because too much was cached, since the consumer was made."""
        return self._core.flow_control_times()

    async def running_info(self, *, jstack: bool = False) -> ConsumerRunningInfo:
        """All that operators are told of the consumer."""
        return await loop_thread().run_async(self._core.running_info(jstack=jstack))
