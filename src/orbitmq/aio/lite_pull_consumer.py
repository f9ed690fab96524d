"""AsyncLitePullConsumer: the lite pull consumer for asyncio code."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import Self, Unpack

from orbitmq.aio.face import AsyncFace
from orbitmq.client.loop import loop_thread
from orbitmq.client.runners import Turn
from orbitmq.consumer.flow_control import FlowControlTimes
from orbitmq.consumer.hooks import ConsumeMessageHook, FilterMessageHook
from orbitmq.consumer.lite_pull.core import Commits, LitePullCore, poll_seconds
from orbitmq.consumer.lite_pull.topic_watch import TopicMessageQueueChangeListener
from orbitmq.consumer.parts import LitePullArguments, QueueListener
from orbitmq.filters.subscription import Expression
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView


class AsyncLitePullConsumer(AsyncFace[LitePullCore]):
    """Polls messages in asyncio code; as :class:`orbitmq.LitePullConsumer`, which explains it.

        async with AsyncLitePullConsumer("readers", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("flights", "UA || AA")
            async for message in consumer: ...

    It may be used on any running loop; what it does in the background runs on a thread of its own.
    A cancelled call has taken no message. However much is cached, polls and ``async for`` give
    the loop's other tasks a turn every few milliseconds.
    """

    def __init__(self, group: str, **arguments: Unpack[LitePullArguments]) -> None:
        super().__init__(LitePullCore(group, arguments))
        self._turn = Turn()

    @property
    def is_running(self) -> bool:
        """Whether it was started and not shut down."""
        return self._service.lifecycle.running

    def subscribe(
        self,
        topic: str,
        expression: Expression = "*",
        queue_listener: QueueListener | None = None,
    ) -> None:
        """Share the queues of ``topic`` with the group; see LitePullConsumer.subscribe."""
        self._core.subscribe(topic, expression, queue_listener)

    def unsubscribe(self, topic: str) -> None:
        """Share them no more."""
        self._core.unsubscribe(topic)

    def assign(self, queues: Collection[MessageQueue], expression: Expression = None) -> None:
        """Take exactly these queues; see LitePullConsumer.assign."""
        self._core.assign(queues, expression)

    def set_sub_expression_for_assign(self, topic: str, expression: Expression) -> None:
        """Choose the messages of ``topic`` for :meth:`assign`; only before the start."""
        self._core.set_sub_expression_for_assign(topic, expression)

    def build_subscriptions_for_heartbeat(self, expressions: Mapping[str, Expression]) -> None:
        """Tell the brokers of these; see LitePullConsumer.build_subscriptions_for_heartbeat."""
        self._core.build_subscriptions_for_heartbeat(expressions)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Have ``listener(topic, queues)`` called, on the callback thread, when they change."""
        self._core.register_topic_message_queue_change_listener(topic, listener)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called with what each poll gives, before and after at once."""
        self._core.consume_hooks.register(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` take out of what each pull brings what is not wanted."""
        self._core.filter_hooks.register(hook)

    def assignment(self) -> set[MessageQueue]:
        """The queues held now."""
        return self._core.assigned_queues()

    async def poll(self, timeout: float | None = None) -> list[MessageView]:  # noqa: ASYNC109
        """The messages of one pull, none after ``timeout`` seconds; see LitePullConsumer.poll."""
        core = self._core
        core.check_running()
        deadline = asyncio.get_running_loop().time() + poll_seconds(core, timeout)
        core.begin_poll()
        await self._turn.end()
        messages = core.poll_now()
        while messages is None and core.lifecycle.running:
            try:
                async with asyncio.timeout_at(deadline):
                    await self._wait()
            except TimeoutError:
                break
            messages = core.poll_now()
        return [] if messages is None else messages

    def __aiter__(self) -> AsyncIterator[MessageView]:
        self._core.check_running()
        return _Messages(self._next)

    async def __anext__(self) -> MessageView:
        self._core.check_running()
        return await anext(_Messages(self._next))

    async def _next(self) -> MessageView | None:
        """The next message, None when the consumer is shut down."""
        core = self._core
        core.begin_poll()
        await self._turn.end()
        message = core.next_now()
        while message is None and core.lifecycle.running:
            await self._wait()
            message = core.next_now()
        return message

    async def _wait(self) -> None:
        """Return when there may be messages."""
        answer = self._core.thread.answer_to_running_loop()

        def wake() -> None:
            answer.set_result(None)

        try:
            if self._core.assignment.wait(wake):
                await answer.future
        finally:
            self._core.assignment.give_up(wake)

    def commit(self, what: Commits = None, *, persist: bool = False) -> None:
        """Commit, to be saved within 5 s, or now; see LitePullConsumer.commit."""
        self._core.commit(what, persist=persist)

    async def commit_sync(self, what: Commits = None) -> None:
        """Commit, and return when the brokers have it."""
        await loop_thread().run_async(self._core.commit_sync(what))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset the group has of ``queue``, None where it has none."""
        return await loop_thread().run_async(self._core.committed(queue))

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``; see LitePullConsumer.seek."""
        await loop_thread().run_async(self._core.seek(queue, offset))

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of ``queue``."""
        await loop_thread().run_async(self._core.seek_to_begin(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the messages still to come."""
        await loop_thread().run_async(self._core.seek_to_end(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Where a time lies in ``queue``; see LitePullConsumer.offset_for_timestamp."""
        return await loop_thread().run_async(self._core.search_offset(queue, timestamp_ms))

    async def fetch_message_queues(self, topic: str) -> Sequence[MessageQueue]:
        """The queues of ``topic``, asked of a name server."""
        return await loop_thread().run_async(self._core.fetch_message_queues(topic))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more; what is cached of them is still polled."""
        self._core.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        self._core.resume(queues)

    def paused(self) -> set[MessageQueue]:
        """The queues that are paused."""
        return self._core.paused()

    def flow_control_times(self) -> FlowControlTimes:
        """How often pulls waited because too much was cached."""
        return self._core.flow_control_times()


class _Messages:
    """One ``async for``: it ends once the consumer is shut down."""

    def __init__(self, take: Callable[[], Awaitable[MessageView | None]]) -> None:
        self._take = take

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> MessageView:
        message = await self._take()
        if message is None:
            raise StopAsyncIteration
        return message
