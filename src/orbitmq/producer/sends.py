"""The sends of a thread, which waits for what a loop would be called back for."""

from __future__ import annotations

from collections.abc import Sequence

from orbitmq.client.mailbox import Waiter
from orbitmq.client.outcomes import CallbackSink, OutcomeFuture
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.names import check_topic
from orbitmq.producer.core import Messages, ProducerCore, RequestCallback, SendCallback
from orbitmq.producer.selectors import QueueSelector
from orbitmq.producer.sender import Deadline, ForgetfulSink, Posted, Sink
from orbitmq.wire.message_view import MessageView


class BlockingSends:
    """The sends of a thread: they wait for what a loop would be called back for."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    def send(
        self,
        message: Messages,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> SendResult:
        """Send, and wait for the outcome."""
        core = self._core
        waiter: Waiter[SendResult] = Waiter()
        retries = core.config.retry_times_when_send_failed
        core.post(self._sending(message, waiter, selector, arg, queue, timeout, retries))
        return waiter.wait()

    def send_async(
        self,
        message: Messages,
        callback: SendCallback | None,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> SendFuture | None:
        """Send; the outcome goes to ``callback``, or to the future returned where there is none.

        Waits only while ``max_in_flight`` are under way.
        """
        core = self._core
        sink = SendFuture(core) if callback is None else CallbackSink(callback, core)
        retries = core.config.retry_times_when_send_async_failed
        sending = self._sending(message, sink, selector, arg, queue, timeout, retries)
        if not core.post_if_room(sending):
            self._wait_for_room(sending, own_timeout=timeout is not None)
        return sink if isinstance(sink, SendFuture) else None

    def send_oneway(
        self,
        message: Messages,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
    ) -> None:
        """Send without asking for an answer.

        The first message to a topic waits until it is written to the connection; later ones do
        not, and that they could not be written is logged.
        """
        core = self._core
        deadline = core.deadline(None)
        outgoing = core.prepare(message, selector, queue)
        if selector is not None:
            queue = self._select(selector, message, arg, outgoing.topic, deadline)
        first = core.known_queues(outgoing.topic) is None
        waiter: Waiter[SendResult | None] = Waiter()
        sink = waiter if first else ForgetfulSink(outgoing)
        sending = core.sending(outgoing, sink, queue, deadline, oneway=True)
        if not core.post_if_room(sending):
            self._wait_for_room(sending, own_timeout=False)
        if first:
            waiter.wait()

    def request(
        self,
        message: Message,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> MessageView:
        """Send, and wait for the reply."""
        waiter: Waiter[MessageView] = Waiter()
        self._core.post(self._requesting(message, waiter, selector, arg, queue, timeout))
        return waiter.wait()

    def request_async(
        self,
        message: Message,
        callback: RequestCallback | None,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> RequestFuture | None:
        """As :meth:`send_async`, for the reply."""
        core = self._core
        sink = RequestFuture(core) if callback is None else CallbackSink(callback, core)
        request = self._requesting(message, sink, selector, arg, queue, timeout)
        if not core.post_if_room(request):
            self._wait_for_room(request, own_timeout=timeout is not None)
        return sink if isinstance(sink, RequestFuture) else None

    def queues(self, topic: str, timeout: float | None) -> list[MessageQueue]:
        """The writable queues of ``topic``."""
        check_topic(topic)
        return list(self._queues(topic, self._core.deadline(timeout)))

    def _sending(
        self,
        message: Messages,
        sink: Sink,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
        retries: int,
    ) -> Posted:
        core = self._core
        deadline = core.deadline(timeout)
        outgoing = core.prepare(message, selector, queue, timeout is None)
        if selector is not None:
            queue = self._select(selector, message, arg, outgoing.topic, deadline)
        return core.sending(outgoing, sink, queue, deadline, retries)

    def _requesting(
        self,
        message: Message,
        sink: Sink,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout: float | None,
    ) -> Posted:
        core = self._core
        deadline = core.deadline(timeout)
        outgoing = core.prepare_request(message, queue, deadline)
        if selector is not None:
            queue = self._select(selector, message, arg, outgoing.topic, deadline)
        return core.requesting(outgoing, sink, queue, deadline)

    def _select(
        self,
        selector: QueueSelector,
        message: Messages,
        arg: object,
        topic: str,
        deadline: Deadline,
    ) -> MessageQueue:
        return self._core.select(selector, self._queues(topic, deadline), message, arg)

    def _queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        core = self._core
        return core.known_queues(topic) or core.thread.run(core.find_queues(topic, deadline))

    def _wait_for_room(self, sending: Posted, *, own_timeout: bool) -> None:
        core = self._core
        waiter: Waiter[bool] = Waiter()
        core.line_up(sending, waiter.set_result, own_timeout=own_timeout)
        try:
            entered = waiter.wait(core.time_left(sending.deadline) if own_timeout else None)
        except TimeoutError:
            entered = not core.leave_line(sending)
        except BaseException:
            core.leave_line(sending)
            raise
        if not entered:
            raise core.too_many(sending.deadline.timeout_ms)


class SendFuture(OutcomeFuture[SendResult]):
    """The outcome of a ``send_async``."""


class RequestFuture(OutcomeFuture[MessageView]):
    """The outcome of a ``request_async``: the reply."""
