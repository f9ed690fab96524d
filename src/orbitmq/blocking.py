"""The synchronous faces of the clients: they delegate to the private loop and do nothing else.

Each face is used as a context manager, or by ``start`` and ``shutdown``. Any number of threads
may share one. Ctrl-C interrupts whatever waits here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Protocol, Self, Unpack, overload

from orbitmq.allocate import AllocateStrategy
from orbitmq.client.config import ProducerSettings
from orbitmq.client.consumer import QueueListener
from orbitmq.client.consumer_config import LitePullSettings, PushSettings
from orbitmq.client.listeners import ListenerFunction
from orbitmq.client.lite_pull_consumer import Commits, LitePullCore, poll_seconds
from orbitmq.client.loop import loop_thread
from orbitmq.client.offsets import OffsetStore
from orbitmq.client.producer import (
    BlockingSends,
    CallbackSink,
    Messages,
    ProducerCore,
    SendCallback,
    SendFuture,
)
from orbitmq.client.push_consumer import FunctionT, PushCore
from orbitmq.client.selectors import QueueSelector
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.wire.message_view import MessageView

_LONG_WAIT_SECONDS: Final = 3600.0


class _Service(Protocol):
    """What a face needs to be started and shut down."""

    def start(self) -> Coroutine[Any, Any, None]: ...

    def shutdown(self) -> Coroutine[Any, Any, None]: ...


class _Face:
    """Start, shutdown and ``with``, the same for all clients."""

    def __init__(self, service: _Service) -> None:
        self._service = service

    def start(self) -> None:
        """Start. Raises ClientStateError when it was started before, or its group is in use."""
        loop_thread().run(self._service.start())

    def shutdown(self) -> None:
        """Finish what is under way, and leave the brokers. Does nothing the second time."""
        loop_thread().run(self._service.shutdown())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.shutdown()


class Producer(_Face):
    """Sends messages.

        with Producer("orders", name_server="127.0.0.1:9876") as producer:
            producer.send(Message("flights", b"...", tags="UA", keys="N14228"))

    ``group`` names producers that do the same; a process may have one of a group (two with
    different ``instance_name``). Settings are the fields of
    :class:`orbitmq.client.config.ProducerConfig`, checked here (ConfigError).

    A message goes to the writable queues of its topic in turn. One with a ``sharding_key`` always
    goes to the queue its key gives (as Java's SelectMessageQueueByHash), while the topic keeps its
    queues. What one thread sends to one queue arrives in order as long as nothing fails; a message
    that is sent again may arrive twice, or after those sent behind it. Starting does not wait for
    a name server: one that does not answer is tried again in the background, and each send fails
    after its timeout.
    """

    def __init__(self, group: str, **settings: Unpack[ProducerSettings]) -> None:
        self._core = ProducerCore(group, settings)
        self._sends = BlockingSends(self._core)
        super().__init__(self._core)

    def shutdown(self) -> None:
        """Wait for the outcome of what is on its way, and its callbacks; leave the brokers.

        Takes no longer than the timeouts of what is on its way. Does nothing the second time.
        """
        thread = loop_thread()
        thread.run(self._core.shutdown(wait_for_callbacks=not thread.on_callback_thread))

    def send(
        self,
        message: Messages,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send a message, or a list of messages as one batch, and return where it went.

        ``queue``, or ``selector(queues, message, arg)``, says which queue it goes to: then it is
        tried once. Otherwise it is tried up to ``retry_times_when_send_failed`` times more,
        on another broker where there is one; with a sharding key, on the same queue.
        ``timeout_ms`` (``send_timeout_ms``) is for all of it.

        The messages of a batch have one topic and no delay; the batch goes to one queue, by the
        sharding key where all have the same.

        Raises:
            InvalidMessageError: no body or too large, or a batch that cannot be one.
            IllegalNameError: the topic.
            TopicNotFoundError: the topic does not exist and is not created by need.
            NetworkError: ConnectError, ConnectionLostError or RequestTimeoutError; after the last
                two the broker may have stored the message.
            BrokerError: the broker refused it.
            ClientStateError: the producer is not running.
        """
        return self._sends.send(message, selector, arg, queue, timeout_ms)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendResult:
        """Send ``messages`` as one batch, as :meth:`send` with a list."""
        return self._sends.send(messages, None, None, queue, timeout_ms)

    @overload
    def send_async(
        self,
        message: Messages,
        callback: None = None,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
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
        timeout_ms: int | None = None,
    ) -> None: ...

    def send_async(
        self,
        message: Messages,
        callback: SendCallback | None = None,
        *,
        selector: QueueSelector | None = None,
        arg: object = None,
        queue: MessageQueue | None = None,
        timeout_ms: int | None = None,
    ) -> SendFuture | None:
        """Send without waiting; the outcome goes to ``callback(result, error)`` or to a future.

        Callbacks run one after the other on a thread of their own; what they raise is logged. A
        message that cannot be sent at all raises here, as in :meth:`send`; it is tried again up
        to ``retry_times_when_send_async_failed`` times. While ``max_in_flight`` messages, or
        ``max_in_flight_bytes``, are on their way this waits, and raises RequestTimeoutError
        after ``timeout_ms``.
        """
        thread = loop_thread()
        if callback is not None:
            sink = CallbackSink(callback, thread)
            self._sends.send_async(message, sink, selector, arg, queue, timeout_ms)
            return None
        future = SendFuture(thread)
        self._sends.send_async(message, future, selector, arg, queue, timeout_ms)
        return future

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

    def publish_queues(self, topic: str, *, timeout_ms: int | None = None) -> list[MessageQueue]:
        """The writable queues of ``topic``, in the order selectors see them.

        A topic that does not exist yet has the queues it would be created with.
        """
        return self._sends.queues(topic, timeout_ms)


class LitePullConsumer(_Face):
    """Polls messages.

        with LitePullConsumer("readers", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("flights", "UA || AA")
            for message in consumer.poll(timeout=5): ...

    Or, message by message for as long as it runs, ``for message in consumer``. Messages are
    pulled in the background and kept until they are polled; what was polled counts as consumed
    when the next poll begins, and at the end, unless an exception ends the ``with`` statement:
    then the messages polled last come again. With ``auto_commit`` that is committed every 5 s
    and at the end, without it by :meth:`commit` alone.

    Consumers with the same ``group`` share the queues of the topics they :meth:`subscribe` to;
    or each takes queues of its choice by :meth:`assign`. ``allocate`` is how queues are shared
    (:mod:`orbitmq.allocate`, averagely), ``offset_store`` where offsets are kept instead of with
    the brokers, ``queue_listener`` a function that hears of changed queues. Settings are the
    fields of :class:`orbitmq.client.consumer_config.LitePullConfig`, checked here (ConfigError).
    """

    def __init__(
        self,
        group: str,
        *,
        allocate: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        queue_listener: QueueListener | None = None,
        **settings: Unpack[LitePullSettings],
    ) -> None:
        self._core = LitePullCore(
            group,
            settings,
            allocate=allocate,
            offset_store=offset_store,
            queue_listener=queue_listener,
        )
        super().__init__(self._core)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop_thread().run(self._core.shutdown(done=error is None))

    def subscribe(self, topic: str, expression: str | None = "*") -> None:
        """Share the queues of ``topic`` with the other consumers of the group.

        ``expression`` chooses messages by tag: ``*`` for all, or tags as in ``UA || AA``. May be
        called before or after the start; queues come a moment later, see :meth:`assignment`.
        Raises ClientStateError when queues were assigned.
        """
        self._core.subscribe(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Share the queues of ``topic`` no more."""
        self._core.unsubscribe(topic)

    def assign(self, queues: Collection[MessageQueue], expression: str | None = "*") -> None:
        """Take exactly ``queues`` from now on, whatever other consumers take.

        ``expression`` as in :meth:`subscribe`. Raises ClientStateError when a topic was
        subscribed to.
        """
        self._core.assign(queues, expression)

    def assignment(self) -> set[MessageQueue]:
        """The queues this consumer has now."""
        return self._core.assigned_queues()

    def poll(self, timeout: float | None = None) -> list[MessageView]:
        """The messages of one pull, all of one queue; none when none came within ``timeout``.

        ``timeout`` in seconds (``poll_timeout_ms``); 0 only looks. Ctrl-C interrupts. Raises
        ClientStateError unless the consumer runs.
        """
        core = self._core
        core.check_running()
        messages = core.poll_now()
        if messages is None:
            deadline = time.monotonic() + poll_seconds(core, timeout)
            while messages is None and core.lifecycle.running:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._wait(left)
                messages = core.poll_now()
        return messages or []

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageView:
        core = self._core
        message = core.next_now()
        while message is None:
            if not core.lifecycle.running:
                raise StopIteration
            self._wait(_LONG_WAIT_SECONDS)
            message = core.next_now()
        return message

    def _wait(self, timeout_seconds: float) -> None:
        """Return when there may be messages, or after the timeout."""
        parked = threading.Lock()
        parked.acquire()
        wake = parked.release
        if self._core.assignment.wait(wake):
            try:
                parked.acquire(timeout=timeout_seconds)
            finally:
                self._core.assignment.give_up(wake)

    def commit(self, what: Commits = None) -> None:
        """Make what was polled, of all queues or of those given, the offsets of the group.

        Or exactly the offsets given, as a dict by queue. The brokers have them within 5 s.
        """
        self._core.commit(what)

    def commit_sync(self, what: Commits = None) -> None:
        """As :meth:`commit`, but the brokers have the offsets when this returns.

        Raises NetworkError or BrokerError when they do not.
        """
        loop_thread().run(self._core.commit_sync(what))

    def committed(self, queue: MessageQueue) -> int | None:
        """The offset the group has of ``queue``: that of the next message to consume, or None."""
        return loop_thread().run(self._core.committed(queue))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Have the next message polled of ``queue`` be the one at ``offset``.

        Raises ConfigError for an offset outside the queue, ClientStateError when this consumer
        does not have the queue.
        """
        loop_thread().run(self._core.seek(queue, offset))

    def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message of ``queue``."""
        loop_thread().run(self._core.seek_to_begin(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on with the messages of ``queue`` still to come."""
        loop_thread().run(self._core.seek_to_end(queue))

    def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time (ms since the epoch) or later."""
        return loop_thread().run(self._core.offset_for_timestamp(queue, timestamp_ms))

    def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``, asked of a name server.

        Raises TopicNotFoundError where no broker has the topic.
        """
        return loop_thread().run(self._core.fetch_message_queues(topic))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull ``queues`` no more until :meth:`resume`; what is cached of them is still polled."""
        self._core.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull ``queues`` again."""
        self._core.resume(queues)


class PushConsumer(_Face):
    """Has messages consumed by listeners.

        consumer = PushConsumer("mailers", name_server="127.0.0.1:9876")

        @consumer.subscribe("orders", "paid || sent")
        def mail(messages):
            for message in messages: ...

        with consumer:
            consumer.wait()

    A listener is ``function(messages)`` or ``function(messages, context)``. Plain functions run
    in ``consume_threads`` threads, coroutine functions as that many tasks of an event loop of
    the consumer's own. It gets up to ``consume_batch_size`` messages of one queue. None, True or
    ConsumeStatus.SUCCESS mean that they are consumed; RECONSUME_LATER, False or an exception,
    which is logged, that they failed: they come again later, and go to the group's dead-letter
    queue after ``max_reconsume_times``. With ``context`` a listener says more:
    :class:`ConsumeConcurrentlyContext`.

    With ``orderly=True`` one listener at a time works on a queue, in the order of its messages,
    and a failure makes the queue wait: :class:`ConsumeOrderlyContext`.

    ``listener`` consumes the topics that are subscribed without a listener of their own. The
    other arguments are as in :class:`LitePullConsumer`; settings are the fields of
    :class:`orbitmq.client.consumer_config.PushConfig`, checked here (ConfigError).
    """

    _core: PushCore

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
        self._ended = threading.Event()
        super().__init__(self._core)

    def subscribe(
        self, topic: str, expression: str | None = "*", listener: ListenerFunction | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Have messages of ``topic`` consumed; also as a decorator of the listener.

        ``expression`` chooses them by tag: ``*`` for all, or tags as in ``paid || sent``.
        Consumers with the same group share the queues of the topic. Called while the consumer
        runs it takes effect at once; as a decorator, when the function is decorated.
        """
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

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer is shut down; Ctrl-C interrupts. False after ``timeout`` s."""
        return self._ended.wait(timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Wait for running listeners, save offsets, unlock queues, and leave the group.

        The rest of the group takes over at once. Listeners that run for longer than ``timeout``
        seconds (``shutdown_timeout_ms``) are not waited for; their messages come again. Not to be
        called from a listener.
        """
        timeout_ms = None if timeout is None else int(timeout * 1000)
        try:
            loop_thread().run(self._core.shutdown(timeout_ms))
        finally:
            self._ended.set()
