"""The synchronous producer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack, overload

from orbitmq.blocking.face import Face
from orbitmq.client.loop import loop_thread
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.producer.config import ProducerSettings
from orbitmq.producer.core import Messages, ProducerCore, RequestCallback, SendCallback
from orbitmq.producer.hooks import CheckForbiddenHook, EndTransactionHook, SendMessageHook
from orbitmq.producer.selectors import QueueSelector
from orbitmq.producer.sends import BlockingSends, RequestFuture, SendFuture
from orbitmq.wire.message_view import MessageView


class Producer(Face[ProducerCore]):
    """Sends messages.

        with Producer("orders", name_server="127.0.0.1:9876") as producer:
            producer.send(Message("flights", b"...", tags="UA", keys="N14228"))

    ``group`` names producers that do the same; a process may have one of a group (two with
    different ``instance_name``). Settings are the fields of
    :class:`orbitmq.producer.config.ProducerConfig`, checked here (ConfigError).

    A message goes to the writable queues of its topic in turn. One with a ``sharding_key`` always
    goes to the queue its key gives (as Java's SelectMessageQueueByHash), while the topic keeps its
    queues. What one thread sends to one queue arrives in order as long as nothing fails; a message
    that is sent again may arrive twice, or after those sent behind it. Starting does not wait for
    a name server: one that does not answer is tried again in the background, and each send fails
    after its timeout.
    """

    def __init__(self, group: str, **settings: Unpack[ProducerSettings]) -> None:
        super().__init__(ProducerCore(group, settings))
        self._sends = BlockingSends(self._core)

    def shutdown(self) -> None:
        """Wait for the outcome of what is on its way, and its callbacks; leave the brokers.

        Takes no longer than the timeouts of what is on its way, and than its callbacks, as long as
        one ends within ``send_timeout_ms``; what is left is logged. Does nothing the second time.
        """
        self._shut_down(wait_for_callbacks=not loop_thread().on_callback_thread)

    def send(
        self,
        message: Messages,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send a message, or a list of messages as one batch, and return where it went.

        ``queue``, or ``selector(queues, message, arg)``, says which queue it goes to: then it is
        sent once. Otherwise it is sent up to ``retry_times_when_send_failed`` times more, to
        another broker where there is one; with a sharding key, to the same queue. A broker that
        cannot be connected to is tried again and again. ``timeout``, in seconds
        (``send_timeout_ms``), is for all of it.

        The messages of a batch have one topic and no delay; the batch goes to one queue, by the
        sharding key where all have the same.

        Raises:
            InvalidMessageError: no body or too large, a field of a wrong type, a property of
                RocketMQ's own, or a batch that cannot be one.
            IllegalNameError: the topic.
            TopicNotFoundError: the topic does not exist and is not created by need.
            NetworkError: ConnectError, ConnectionLostError or RequestTimeoutError; after the last
                two the broker may have stored the message.
            BrokerError: the broker refused it.
            ClientStateError: the producer is not running.
        """
        return self._sends.send(message, selector, arg, queue, timeout)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send ``messages`` as one batch, as :meth:`send` with a list."""
        return self._sends.send(messages, None, None, queue, timeout)

    @overload
    def send_async(
        self,
        message: Messages,
        callback: None = None,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendFuture: ...

    @overload
    def send_async(
        self,
        message: Messages,
        callback: SendCallback,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> None: ...

    def send_async(
        self,
        message: Messages,
        callback: SendCallback | None = None,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> SendFuture | None:
        """Send without waiting; the outcome goes to ``callback(result, error)`` or to a future.

        Callbacks run one after the other on a thread of their own; what they raise is logged. A
        message that cannot be sent at all raises here, as in :meth:`send`; it is tried again up
        to ``retry_times_when_send_async_failed`` times. While ``max_in_flight`` messages are on
        their way or wait for their callback, or ``max_in_flight_bytes`` are on their way, this
        waits. It raises RequestTimeoutError after ``timeout``; without one, when nothing was
        acknowledged for ``send_timeout_ms``, and the message's own time begins after the wait.
        What is on its way when the process ends has ``send_timeout_ms`` to arrive.
        """
        return self._sends.send_async(message, callback, selector, arg, queue, timeout)

    def send_oneway(
        self,
        message: Messages,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
    ) -> None:
        """Send without asking for an answer: fast, and nobody knows whether it was stored.

        The first message to a topic raises what :meth:`send` would raise before anything is
        sent; that a later one could not be sent is only logged. Limited as :meth:`send_async`.
        """
        self._sends.send_oneway(message, selector, arg, queue)

    def request(
        self,
        message: Message,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> MessageView:
        """Send a message and return the reply that its consumer sends with create_reply_message.

        ``timeout``, in seconds (``send_timeout_ms``), is for both. Queue and attempts are as in
        :meth:`send_async`. Consumers of all groups of the topic may reply; the first reply counts.

        Raises ReplyTimeoutError where the message was sent, and no reply came in time; whether it
        was carried out is not known then. Else what :meth:`send` raises.
        """
        return self._sends.request(message, selector, arg, queue, timeout)

    @overload
    def request_async(
        self,
        message: Message,
        callback: None = None,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> RequestFuture: ...

    @overload
    def request_async(
        self,
        message: Message,
        callback: RequestCallback,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> None: ...

    def request_async(
        self,
        message: Message,
        callback: RequestCallback | None = None,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> RequestFuture | None:
        """Request without waiting; the reply goes to ``callback(reply, error)`` or to a future.

        As :meth:`send_async`: a request is on its way until it has its reply, or its time is up.
        """
        return self._sends.request_async(message, callback, selector, arg, queue, timeout)

    def publish_queues(self, topic: str, *, timeout: float | None = None) -> list[MessageQueue]:
        """The writable queues of ``topic``, in the order selectors see them.

        A topic that does not exist yet has the queues it would be created with.
        """
        return self._sends.queues(topic, timeout)

    def recall(self, topic: str, handle: str, *, timeout: float | None = None) -> str:
        """Take back a message that waits for its time, by its ``SendResult.recall_handle``.

        The broker drops it when its time comes; returns its message id. ``topic`` is what it was
        sent to. ``timeout`` in seconds (``send_timeout_ms``). (recallMessage)

        Raises:
            InvalidMessageError: what is given is no handle.
            BrokerError: the broker refused it: its time has come, the broker does not know
                recalls (before RocketMQ 5), or they are switched off there, as Apache's are
                unless ``recallMessageEnable`` is set (NoPermissionError).
            NetworkError: the broker was not reached, or did not answer in time.
            ClientStateError: the producer is not running.
        """
        core = self._core
        return core.thread.run(core.recall(topic, handle, core.deadline(timeout)))

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
