"""AsyncPushConsumer: the push consumer for asyncio code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Unpack

from orbitmq.allocate import AllocateStrategy
from orbitmq.client.async_face import AsyncFace
from orbitmq.client.consumer import QueueListener
from orbitmq.client.consumer_config import PushSettings
from orbitmq.client.listeners import ListenerFunction
from orbitmq.client.loop import loop_thread
from orbitmq.client.offsets import OffsetStore
from orbitmq.client.push_consumer import FunctionT, PushCore
from orbitmq.filters.subscription import Expression


class AsyncPushConsumer(AsyncFace):
    """Has messages consumed by listeners; as :class:`orbitmq.PushConsumer`, which explains it.

        consumer = AsyncPushConsumer("mailers", name_server="127.0.0.1:9876")

        @consumer.subscribe("orders", "paid || sent")
        async def mail(messages): ...

        async with consumer:
            await until_stopped()

    Coroutine listeners run on the loop the consumer was started on, plain functions in threads.
    """

    def __init__(
        self,
        group: str,
        listener: ListenerFunction | None = None,
        *,
        allocate: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        queue_listener: QueueListener | None = None,
        **settings: Unpack[PushSettings],
    ) -> None:
        self._core = PushCore(
            group,
            settings,
            listener=listener,
            allocate=allocate,
            offset_store=offset_store,
            queue_listener=queue_listener,
        )
        super().__init__(self._core)

    async def start(self) -> None:
        """Start; ClientStateError without a listener, or started before, or its group in use."""
        self._core.listener_loop = asyncio.get_running_loop()
        await super().start()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait for running listeners, at most ``timeout`` seconds; see PushConsumer.shutdown."""
        timeout_ms = None if timeout is None else int(timeout * 1000)
        await loop_thread().run_async(self._core.shutdown(timeout_ms))

    def subscribe(
        self, topic: str, expression: Expression = "*", listener: ListenerFunction | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Have messages of ``topic`` consumed; see PushConsumer.subscribe."""
        return self._core.subscribe(topic, expression, listener)

    def unsubscribe(self, topic: str) -> None:
        """Consume messages of ``topic`` no more."""
        self._core.remove_subscription(topic)

    def suspend(self) -> None:
        """Pull no more until :meth:`resume`; what is cached is still consumed."""
        self._core.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._core.resume()
