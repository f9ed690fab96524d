"""AsyncPullConsumer: the pull consumer for asyncio code."""

from __future__ import annotations

from typing import Self, Unpack

from orbitmq.aio.face import AsyncFace
from orbitmq.client.loop import loop_thread
from orbitmq.consumer.hooks import ConsumeMessageHook, FilterMessageHook
from orbitmq.consumer.parts import PullArguments, QueueListener
from orbitmq.consumer.pull.core import PullCore, Topics
from orbitmq.consumer.pull_request import PullResult
from orbitmq.filters.subscription import Expression
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView


class AsyncPullConsumer(AsyncFace[PullCore]):
    """Pulls messages in asyncio code; as :class:`orbitmq.PullConsumer`, which explains it.

        async with AsyncPullConsumer("readers", name_server="127.0.0.1:9876") as consumer:
            for queue in await consumer.fetch_subscribe_message_queues("flights"):
                result = await consumer.pull(queue, "UA || AA", 0, 32)

    It may be used on any running loop.
    """

    def __init__(
        self, group: str, *, topics: Topics = (), **arguments: Unpack[PullArguments]
    ) -> None:
        super().__init__(PullCore(group, arguments, topics=topics))

    @classmethod
    def over(cls, core: PullCore) -> Self:
        """Another face of ``core``; for the schedule service."""
        face = cls.__new__(cls)
        AsyncFace.__init__(face, core, owner=False)
        return face

    def register_topics(self, topics: Topics) -> None:
        """Share in the queues of ``topics``; see PullConsumer.register_topics."""
        self._core.register_topics(topics)

    def register_message_queue_listener(
        self, topics: Topics, listener: QueueListener | None = None
    ) -> None:
        """As :meth:`register_topics`; ``listener`` replaces the one that hears of changes."""
        self._core.register_message_queue_listener(topics, listener)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called with what each pull brings."""
        self._core.consume_hooks.register(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` take out of what each pull brings what is not wanted."""
        self._core.filter_hooks.register(hook)

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``; TopicNotFoundError where there is none."""
        return await loop_thread().run_async(self._core.fetch_subscribe_message_queues(topic))

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that are this consumer's share now."""
        return self._core.message_queues_in_balance(topic)

    async def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> PullResult:
        """Messages of ``queue`` from ``offset`` on; see PullConsumer.pull."""
        core = self._core
        pull = core.prepare(
            queue, expression, offset, max_nums, max_bytes=max_bytes, timeout=timeout
        )
        return core.pulled(queue, await loop_thread().run_async(core.pull(pull)))

    async def pull_block_if_not_found(
        self, queue: MessageQueue, expression: Expression, offset: int, max_nums: int
    ) -> PullResult:
        """As :meth:`pull`, but the broker waits for a message if there is none."""
        core = self._core
        pull = core.prepare(queue, expression, offset, max_nums, block=True)
        return core.pulled(queue, await loop_thread().run_async(core.pull(pull)))

    async def fetch_consume_offset(self, queue: MessageQueue, from_store: bool = False) -> int:
        """The offset the group has, -1 for none; see PullConsumer.fetch_consume_offset."""
        return await loop_thread().run_async(self._core.fetch_consume_offset(queue, from_store))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset the group has; see PullConsumer.update_consume_offset."""
        self._core.update_consume_offset(queue, offset)

    async def persist(self, queue: MessageQueue) -> None:
        """Save the offset of ``queue`` now."""
        await loop_thread().run_async(self._core.persist(queue))

    async def send_message_back(
        self,
        message: MessageView,
        delay_level: int,
        broker_name: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Have ``message`` consumed again later; see PullConsumer.send_message_back."""
        await loop_thread().run_async(
            self._core.send_message_back(message, delay_level, broker_name, consumer_group)
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of ``queue`` still kept."""
        return await loop_thread().run_async(self._core.min_offset(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of ``queue`` gets."""
        return await loop_thread().run_async(self._core.max_offset(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time (ms since the epoch) or later."""
        return await loop_thread().run_async(self._core.search_offset(queue, timestamp_ms))

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message of ``queue`` was stored, ms since the epoch; -1 without one."""
        return await loop_thread().run_async(self._core.earliest_message_store_time(queue))
