"""The synchronous push consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Unpack

from orbitmq.allocate import AllocateStrategy
from orbitmq.blocking.face import Face
from orbitmq.client.consumer import QueueListener
from orbitmq.client.consumer_config import PushSettings
from orbitmq.client.listeners import ListenerFunction
from orbitmq.client.loop import loop_thread
from orbitmq.client.offsets import OffsetStore
from orbitmq.client.push_consumer import FunctionT, PushCore
from orbitmq.filters.subscription import Expression


class PushConsumer(Face):
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
        self, topic: str, expression: Expression = "*", listener: ListenerFunction | None = None
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
