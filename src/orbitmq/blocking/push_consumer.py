"""The synchronous push consumer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Unpack

from orbitmq.blocking.face import Face
from orbitmq.client.loop import loop_thread
from orbitmq.client.timeouts import patience_ms
from orbitmq.consumer.flow_control import FlowControlTimes
from orbitmq.consumer.hooks import ConsumeMessageHook, FilterMessageHook
from orbitmq.consumer.parts import PushArguments
from orbitmq.consumer.push.core import FunctionT, PushCore
from orbitmq.consumer.push.listeners import ListenerFunction
from orbitmq.filters.subscription import Expression
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.running_info import ConsumerRunningInfo, ConsumeStatusInfo


class PushConsumer(Face[PushCore]):
    """Has messages consumed by listeners.

        consumer = PushConsumer("mailers", name_server="127.0.0.1:9876")

        @consumer.subscribe("orders", "paid || sent")
        def mail(messages):
            for message in messages: ...

        with consumer:
            consumer.wait()

    A listener is ``function(messages)`` or ``function(messages, context)``. Plain functions run
    in ``consume_threads`` threads, coroutine functions as that many tasks of an event loop of
    the consumer's own, where awaitables that plain functions return are awaited too. It gets up to
    ``consume_batch_size`` messages of one queue. None, True or ConsumeStatus.SUCCESS mean that
    they are consumed; RECONSUME_LATER, False or an exception of any kind, which is logged, that
    they failed: they come again later, and go to the group's dead-letter queue after
    ``max_reconsume_times``. With ``context`` a listener says more:
    :class:`ConsumeConcurrentlyContext`.

    With ``orderly=True`` one listener at a time works on a queue, in the order of its messages,
    and a failure makes the queue wait: :class:`ConsumeOrderlyContext`.

    ``listener`` consumes the topics that are subscribed without a listener of their own. The
    other arguments are as in :class:`LitePullConsumer`; settings are the fields of
    :class:`orbitmq.consumer.config.PushConfig`, checked here (ConfigError).
    """

    def __init__(
        self,
        group: str,
        listener: ListenerFunction | None = None,
        **arguments: Unpack[PushArguments],
    ) -> None:
        super().__init__(PushCore(group, arguments, listener=listener))
        self._ended = threading.Event()

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

    @property
    def suspended(self) -> bool:
        """Whether it is suspended (Java's ``isPause``)."""
        return self._core.suspended

    def suspend(self) -> None:
        """Pull no more until :meth:`resume`; what is cached is still consumed."""
        self._core.suspend()

    def resume(self) -> None:
        """Pull again."""
        self._core.resume()

    def update_core_pool_size(self, size: int) -> None:
        """Run ``size`` listeners at once from now on, 1 to 1024, in place of ``consume_threads``.

        Those at work end in peace. ConfigError for another number.
        """
        self._core.update_core_pool_size(size)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called before and after each call of a listener."""
        self._core.consume_hooks.register(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` take out of what each pull brings what is not wanted."""
        self._core.filter_hooks.register(hook)

    # Queues and messages. All raise NetworkError or BrokerError when no broker answers as hoped,
    # and ClientStateError unless the consumer runs.

    def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``; TopicNotFoundError where there is no such topic."""
        return loop_thread().run(self._core.fetch_subscribe_message_queues(topic))

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of ``queue`` still kept."""
        return loop_thread().run(self._core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of ``queue`` gets."""
        return loop_thread().run(self._core.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time (ms since the epoch) or later."""
        return loop_thread().run(self._core.search_offset(queue, timestamp_ms))

    def send_message_back(
        self, message: MessageView, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Have ``message`` stored in the retry topic of the group, to be consumed later.

        ``delay_level``: 1 to 18 as the broker's levels, 0 as the broker sees fit, -1 to the
        dead-letter queue; there it also goes after ``max_reconsume_times``. ``broker_name`` is
        the broker that has the message (that it was pulled from).
        """
        loop_thread().run(self._core.send_message_back(message, delay_level, broker_name))

    def reset_offset_by_timestamp(self, timestamp_ms: int) -> None:
        """Go on, in all queues it has now, at what was stored at that time (ms) or later.

        What listeners are at work on may end; it moves no offset any more.
        """
        loop_thread().run(self._core.reset_offset_by_timestamp(timestamp_ms))

    # How it runs

    def consume_status(self, topic: str) -> ConsumeStatusInfo:
        """How fast ``topic`` is consumed: rates and mean times of the last minute.

        Messages that failed are counted over the last hour.
        """
        return self._core.consume_status(topic)

    def flow_control_times(self) -> FlowControlTimes:
        """How often pulls waited because too much was cached, since the consumer was made."""
        return self._core.flow_control_times()

    def running_info(self, *, jstack: bool = False) -> ConsumerRunningInfo:
        """All that operators are told of the consumer; ``jstack`` adds the stacks of all threads.

        ClientStateError unless it runs.
        """
        return loop_thread().run(self._core.running_info(jstack=jstack))

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer is shut down; Ctrl-C interrupts. False after ``timeout`` s."""
        self._core.lifecycle.check_here()
        return self._ended.wait(timeout)

    def shutdown(self, timeout: float | None = None) -> None:
        """Wait for running listeners, save offsets, unlock queues, and leave the group.

        The rest of the group takes over at once. Listeners that run for longer than ``timeout``
        seconds (``shutdown_timeout_ms``) are not waited for; their messages come again.
        ClientStateError in one of its own listeners, for which it would wait.
        """
        self._service.refuse_shutdown_here()
        timeout_ms = patience_ms(timeout)
        try:
            self._shut_down(timeout_ms)
        finally:
            self._ended.set()
