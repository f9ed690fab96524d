"""AsyncPullConsumerScheduleService: the schedule service of pulls for asyncio code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Unpack

from orbitmq.aio.face import AsyncFace
from orbitmq.aio.pull_consumer import AsyncPullConsumer
from orbitmq.client.timeouts import patience_ms
from orbitmq.consumer.parts import PullScheduleArguments
from orbitmq.consumer.pull.schedule import CallbackT, PullScheduleCore, PullTaskCallback


class AsyncPullConsumerScheduleService(AsyncFace[PullScheduleCore]):
    """Calls a coroutine function for each queue in balance.

        service = AsyncPullConsumerScheduleService("readers", name_server="127.0.0.1:9876")

        @service.register_pull_task_callback("flights")
        async def work(queue, context): ...

        async with service:
            await until_stopped()

    As :class:`orbitmq.PullConsumerScheduleService`, which explains it; callbacks run on the loop
    the service was started on, and ``context.pull_consumer`` is an AsyncPullConsumer.
    """

    def __init__(self, group: str, **arguments: Unpack[PullScheduleArguments]) -> None:
        core = PullScheduleCore(group, arguments)
        super().__init__(core)
        self.pull_consumer = core.consumer = AsyncPullConsumer.over(core)

    def register_pull_task_callback(
        self, topic: str, callback: PullTaskCallback | None = None
    ) -> Callable[[CallbackT], CallbackT]:
        """Have ``await callback(queue, context)`` called for the queues of ``topic``.

        Also as a decorator; see PullConsumerScheduleService.register_pull_task_callback.
        """

        def register(function: CallbackT) -> CallbackT:
            self._core.register(topic, function, coroutine=True)
            return function

        if callback is not None:
            register(callback)
        return register

    async def start(self) -> None:
        """Start; ClientStateError when it was started before, or its group is in use."""
        self._core.callback_loop = asyncio.get_running_loop()
        await super().start()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """Wait for the calls under way, at most ``timeout`` seconds, and leave the group."""
        await self._shut_down(patience_ms(timeout))
