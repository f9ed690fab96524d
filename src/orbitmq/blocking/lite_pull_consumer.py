"""The synchronous lite pull consumer."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Unpack

from orbitmq.blocking.face import Face
from orbitmq.client.loop import loop_thread
from orbitmq.consumer.flow_control import FlowControlTimes
from orbitmq.consumer.hooks import ConsumeMessageHook, FilterMessageHook
from orbitmq.consumer.lite_pull.core import Commits, LitePullCore, poll_seconds
from orbitmq.consumer.lite_pull.topic_watch import TopicMessageQueueChangeListener
from orbitmq.consumer.parts import LitePullArguments, QueueListener
from orbitmq.filters.subscription import Expression
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView

_LONG_WAIT_SECONDS: Final = 3600.0


class LitePullConsumer(Face[LitePullCore]):
    """Polls messages.

        with LitePullConsumer("readers", name_server="127.0.0.1:9876") as consumer:
            consumer.subscribe("flights", "UA || AA")
            for message in consumer.poll(timeout=5): ...

    Or, message by message for as long as it runs, ``for message in consumer``. Messages are
    pulled in the background and kept until they are polled. What was polled counts as consumed
    once the next poll, or step of the loop, begins, or :meth:`commit` says so. With
    ``auto_commit`` that is committed every 5 s and at the end, without it by :meth:`commit` alone.

    So each message comes at least once, however a program ends; those polled last come again,
    also after a ``break``, unless :meth:`commit` follows the work on them.

    Consumers with the same ``group`` share the queues of the topics they :meth:`subscribe` to;
    or each takes queues of its choice by :meth:`assign`. ``allocate`` is how queues are shared
    (:mod:`orbitmq.allocate`, averagely), ``offset_store`` where offsets are kept instead of with
    the brokers, ``queue_listener`` a function that hears of changed queues. Settings are the
    fields of :class:`orbitmq.consumer.config.LitePullConfig`, checked here (ConfigError).
    """

    def __init__(self, group: str, **arguments: Unpack[LitePullArguments]) -> None:
        super().__init__(LitePullCore(group, arguments))

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
        """Share the queues of ``topic`` with the other consumers of the group.

        ``expression`` chooses messages by tag, ``*`` for all or tags as in ``UA || AA``, or is a
        MessageSelector. ``queue_listener(topic, all_queues, mine)`` hears when the topic's queues,
        or those of this consumer, have changed. May be called before or after the start; queues
        come a moment later, see :meth:`assignment`. Raises ClientStateError when queues were
        assigned.
        """
        self._core.subscribe(topic, expression, queue_listener)

    def unsubscribe(self, topic: str) -> None:
        """Share the queues of ``topic`` no more; what is cached of them is not polled."""
        self._core.unsubscribe(topic)

    def assign(self, queues: Collection[MessageQueue], expression: Expression = None) -> None:
        """Take exactly ``queues`` from now on, whatever other consumers take.

        ``expression`` as in :meth:`subscribe`; None for what :meth:`set_sub_expression_for_assign`
        said, or every message. Raises ClientStateError when a topic was subscribed to.
        """
        self._core.assign(queues, expression)

    def set_sub_expression_for_assign(self, topic: str, expression: Expression) -> None:
        """Choose the messages of ``topic`` for :meth:`assign`; only before the start."""
        self._core.set_sub_expression_for_assign(topic, expression)

    def build_subscriptions_for_heartbeat(self, expressions: Mapping[str, Expression]) -> None:
        """Tell the brokers that the group subscribes to these topics, without taking queues.

        So that operators see what a consumer of assigned queues reads. Replaces what was said
        before.
        """
        self._core.build_subscriptions_for_heartbeat(expressions)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Have ``listener(topic, queues)`` called when the readable queues of ``topic`` change.

        They are looked at every ``topic_metadata_check_interval_ms``. A topic has one listener,
        which runs on the callback thread.
        """
        self._core.register_topic_message_queue_change_listener(topic, listener)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called with what each poll gives, before and after at once."""
        self._core.consume_hooks.register(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` take out of what each pull brings what is not wanted."""
        self._core.filter_hooks.register(hook)

    def assignment(self) -> set[MessageQueue]:
        """The queues this consumer has now."""
        return self._core.assigned_queues()

    def poll(self, timeout: float | None = None) -> list[MessageView]:
        """The messages of one pull, all of one queue; none when none came within ``timeout``.

        ``timeout`` in seconds (``poll_timeout_ms``); 0 only looks. Ctrl-C interrupts, and what
        it would have given is polled again. Raises ClientStateError unless the consumer runs.
        """
        core = self._core
        core.check_running()
        deadline = time.monotonic() + poll_seconds(core, timeout)
        core.begin_poll()
        messages = core.poll_now()
        while messages is None and core.lifecycle.running:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._wait(left)
            messages = core.poll_now()
        return [] if messages is None else messages

    def __iter__(self) -> Iterator[MessageView]:
        self._core.check_running()
        return iter(self._next, None)

    def __next__(self) -> MessageView:
        self._core.check_running()
        message = self._next()
        if message is None:
            raise StopIteration
        return message

    def _next(self) -> MessageView | None:
        """The next message, None when the consumer is shut down."""
        core = self._core
        core.begin_poll()
        message = core.next_now()
        while message is None and core.lifecycle.running:
            self._wait(_LONG_WAIT_SECONDS)
            message = core.next_now()
        return message

    def _wait(self, timeout_seconds: float) -> None:
        """Return when there may be messages, or after the timeout."""
        parked = threading.Lock()
        parked.acquire()
        wake = parked.release
        try:
            if self._core.assignment.wait(wake):
                parked.acquire(timeout=timeout_seconds)
        finally:
            self._core.assignment.give_up(wake)

    def commit(self, what: Commits = None, *, persist: bool = False) -> None:
        """Make what was polled, of all queues or of those given, the offsets of the group.

        So it counts as consumed now, the messages polled last included.
        Or exactly the offsets given, as a dict by queue; queues this consumer does not have are
        left out. The brokers have them within 5 s; with ``persist`` they are sent at once, and a
        failure is logged and tried again.
        """
        self._core.commit(what, persist=persist)

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
        return loop_thread().run(self._core.search_offset(queue, timestamp_ms))

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

    def paused(self) -> set[MessageQueue]:
        """The queues that are paused."""
        return self._core.paused()

    def flow_control_times(self) -> FlowControlTimes:
        """How often pulls waited because too much was cached."""
        return self._core.flow_control_times()
