"""AsyncProducer: the producer for coroutines, on whatever loop they run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Unpack

from orbitmq.aio.face import AsyncFace
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.names import check_topic
from orbitmq.producer.config import ProducerSettings
from orbitmq.producer.core import ForgetfulSink, Messages, ProducerCore
from orbitmq.producer.outgoing import Outgoing
from orbitmq.producer.selectors import QueueSelector
from orbitmq.producer.sending import Deadline


class AsyncProducer(AsyncFace):
    """Sends messages from coroutines. May be shared by several loops.

        async with AsyncProducer("orders", name_server="127.0.0.1:9876") as producer:
            result = await producer.send(Message("flights", b"..."))

    Settings and behaviour are those of :class:`orbitmq.Producer`. The network lives on a loop of
    OrbitMQ's own, so a blocked loop of the user's costs no heartbeat.
    """

    _core: ProducerCore

    def __init__(self, group: str, **settings: Unpack[ProducerSettings]) -> None:
        self._core = ProducerCore(group, settings)
        super().__init__(self._core)

    async def send(
        self,
        message: Messages,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, or several as a batch, and return where it went.

        As :meth:`orbitmq.Producer.send`, with ``retry_times_when_send_async_failed``. Waits for
        room while ``max_in_flight`` messages are on their way. A cancelled send may still be
        carried out.
        """
        core = self._core
        deadline = core.deadline(timeout_ms)
        outgoing = core.prepare(message, selector, queue)
        if selector is not None:
            queue = core.select(
                selector, await self._queues(outgoing.topic, deadline), message, arg
            )
        room = await self._enter(outgoing, deadline)
        answer = core.thread.answer_to_running_loop()
        core.post(
            outgoing,
            answer,
            queue,
            deadline,
            retries=core.config.retry_times_when_send_async_failed,
            room=room,
        )
        result: SendResult = await answer.future
        return result

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send ``messages`` as one batch."""
        return await self.send(messages, queue=queue, timeout_ms=timeout_ms)

    async def send_oneway(
        self,
        message: Messages,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without asking for an answer, as :meth:`orbitmq.Producer.send_oneway`."""
        core = self._core
        deadline = core.deadline(None)
        outgoing = core.prepare(message, selector, queue)
        if selector is not None:
            queue = core.select(
                selector, await self._queues(outgoing.topic, deadline), message, arg
            )
        first = core.known_queues(outgoing.topic) is None
        room = await self._enter(outgoing, deadline)
        if first:
            answer = core.thread.answer_to_running_loop()
            core.post(outgoing, answer, queue, deadline, oneway=True, room=room)
            await answer.future
        else:
            core.post(outgoing, ForgetfulSink(outgoing), queue, deadline, oneway=True, room=room)

    async def publish_queues(
        self, topic: str, *, timeout_ms: int | None = None
    ) -> list[MessageQueue]:
        """The writable queues of ``topic``, as :meth:`orbitmq.Producer.publish_queues`."""
        check_topic(topic)
        return list(await self._queues(topic, self._core.deadline(timeout_ms)))

    async def _queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        core = self._core
        known = core.known_queues(topic)
        if known is not None:
            return known
        return await core.thread.run_async(core.find_queues(topic, deadline))

    async def _enter(self, outgoing: Outgoing, deadline: Deadline) -> int:
        core = self._core
        size = len(outgoing.body)
        if not core.in_flight.try_enter(size):
            answer = core.thread.answer_to_running_loop()
            give_up = core.in_flight.enter(size, partial(answer.set_result, None))
            try:
                async with asyncio.timeout(core.time_left(deadline)):
                    await answer.future
            except BaseException as error:
                if not give_up():
                    core.in_flight.leave(size)  # room came at the last moment
                if isinstance(error, TimeoutError):
                    raise core.too_many(deadline) from None
                raise
        return size
