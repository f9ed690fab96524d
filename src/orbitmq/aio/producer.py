"""AsyncProducer: the producer for coroutines, on whatever loop they run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any, Unpack

from orbitmq.aio.face import AsyncFace
from orbitmq.client.loop import Answer
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.names import check_topic
from orbitmq.producer.config import ProducerSettings
from orbitmq.producer.core import Messages, ProducerCore
from orbitmq.producer.hooks import CheckForbiddenHook, EndTransactionHook, SendMessageHook
from orbitmq.producer.selectors import QueueSelector
from orbitmq.producer.sender import Deadline, ForgetfulSink, Posted
from orbitmq.wire.message_view import MessageView


class AsyncProducer(AsyncFace[ProducerCore]):
    """Sends messages from coroutines. May be shared by several loops.

        async with AsyncProducer("orders", name_server="127.0.0.1:9876") as producer:
            result = await producer.send(Message("flights", b"..."))

    Settings and behaviour are those of :class:`orbitmq.Producer`. The network lives on a loop of
    OrbitMQ's own, so a blocked loop of the user's costs no heartbeat.
    """

    def __init__(self, group: str, **settings: Unpack[ProducerSettings]) -> None:
        super().__init__(ProducerCore(group, settings))

    async def send(
        self,
        message: Messages,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> SendResult:
        """Send a message, or several as a batch, and return where it went.

        As :meth:`orbitmq.Producer.send`, with ``retry_times_when_send_async_failed``. Waits for
        room while ``max_in_flight`` messages are on their way, as
        :meth:`orbitmq.Producer.send_async`; any number may wait. A cancelled send may still be
        carried out.
        """
        core = self._core
        deadline = core.deadline(timeout)
        outgoing = core.prepare(message, selector, queue, hold=timeout is None)
        if selector is not None:
            queue = core.select(
                selector, await self._queues(outgoing.topic, deadline), message, arg
            )
        answer: Answer[SendResult] = core.thread.answer_to_running_loop()
        retries = core.config.retry_times_when_send_async_failed
        sending = core.sending(outgoing, answer, queue, deadline, retries=retries)
        if not core.post_if_room(sending):
            self._line_up(sending, answer, own_timeout=timeout is not None)
        return await answer.future

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> SendResult:
        """Send ``messages`` as one batch."""
        return await self.send(messages, queue=queue, timeout=timeout)

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
        answer: Answer[SendResult | None] = core.thread.answer_to_running_loop()
        sink = answer if first else ForgetfulSink(outgoing)
        sending = core.sending(outgoing, sink, queue, deadline, oneway=True)
        if not core.post_if_room(sending):
            self._line_up(sending, answer, ends_with_turn=not first)
        elif not first:
            return
        await answer.future

    async def request(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> MessageView:
        """Send a message and return its reply, as :meth:`orbitmq.Producer.request`.

        Waits for room as :meth:`send`; a request is on its way until it has its reply.
        """
        core = self._core
        deadline = core.deadline(timeout)
        outgoing = core.prepare_request(message, queue, deadline)
        if selector is not None:
            queue = core.select(
                selector, await self._queues(outgoing.topic, deadline), message, arg
            )
        answer: Answer[MessageView] = core.thread.answer_to_running_loop()
        request = core.requesting(outgoing, answer, queue, deadline)
        if not core.post_if_room(request):
            self._line_up(request, answer, own_timeout=timeout is not None)
        return await answer.future

    async def publish_queues(
        self,
        topic: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> list[MessageQueue]:
        """The writable queues of ``topic``, as :meth:`orbitmq.Producer.publish_queues`."""
        check_topic(topic)
        return list(await self._queues(topic, self._core.deadline(timeout)))

    async def recall(
        self,
        topic: str,
        handle: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> str:
        """Take back a message that waits for its time, as :meth:`orbitmq.Producer.recall`."""
        core = self._core
        return await core.thread.run_async(core.recall(topic, handle, core.deadline(timeout)))

    def register_send_message_hook(self, hook: SendMessageHook) -> None:
        """Have ``hook`` called around each attempt of a send, after those registered before it.

        It is called on OrbitMQ's own thread, and must not block. (registerSendMessageHook)
        """
        self._core.hooks.register_send(hook)

    def register_check_forbidden_hook(self, hook: CheckForbiddenHook) -> None:
        """Have ``hook`` asked before each attempt of a send, which it forbids by raising.

        It is called on OrbitMQ's own thread, and must not block. (registerCheckForbiddenHook)
        """
        self._core.hooks.register_check_forbidden(hook)

    def register_end_transaction_hook(self, hook: EndTransactionHook) -> None:
        """Have ``hook`` called when the end of a transaction is told to a broker.

        It must not block. (registerEndTransactionHook)
        """
        self._core.hooks.register_end_transaction(hook)

    async def _queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        core = self._core
        known = core.known_queues(topic)
        if known is not None:
            return known
        return await core.thread.run_async(core.find_queues(topic, deadline))

    def _line_up(
        self,
        sending: Posted,
        answer: Answer[Any],
        *,
        own_timeout: bool = False,
        ends_with_turn: bool = False,
    ) -> None:
        """Have ``sending`` wait for room; ``answer`` is told if it is in vain."""
        core = self._core

        def on_turn(entered: bool) -> None:
            if not entered:
                answer.set_exception(core.too_many(sending.deadline.timeout_ms))
            elif ends_with_turn:
                answer.set_result(None)

        def too_late() -> None:
            if core.leave_line(sending):
                on_turn(False)

        core.line_up(sending, on_turn, own_timeout=own_timeout)
        answer.future.add_done_callback(partial(self._leave_line, sending))
        if own_timeout:
            timer = asyncio.get_running_loop().call_later(
                core.time_left(sending.deadline), too_late
            )
            answer.future.add_done_callback(lambda _: timer.cancel())

    def _leave_line(self, sending: Posted, future: asyncio.Future[Any]) -> None:
        """Who was cancelled waits for room no more."""
        if future.cancelled():
            self._core.leave_line(sending)
