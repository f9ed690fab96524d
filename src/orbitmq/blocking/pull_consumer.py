"""The synchronous pull consumer."""

from __future__ import annotations

from typing import Self, Unpack, overload

from orbitmq.blocking.face import Face
from orbitmq.client.loop import loop_thread
from orbitmq.client.outcomes import CallbackSink
from orbitmq.consumer.hooks import ConsumeMessageHook, FilterMessageHook
from orbitmq.consumer.parts import PullArguments, QueueListener
from orbitmq.consumer.pull.core import (
    PullCallback,
    PullCore,
    PullFuture,
    Topics,
)
from orbitmq.consumer.pull_request import PullResult
from orbitmq.filters.subscription import Expression
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView


class PullConsumer(Face[PullCore]):
    """Pulls messages when it is told to: which queue, from which offset, and how many.

        with PullConsumer("readers", topics="flights", name_server="127.0.0.1:9876") as consumer:
            for queue in consumer.fetch_subscribe_message_queues("flights"):
                offset = max(0, consumer.fetch_consume_offset(queue))
                result = consumer.pull(queue, "*", offset, 32)
                for message in result.messages: ...
                consumer.update_consume_offset(queue, result.next_begin_offset)

    Everything is left to the user, offsets as well: mostly :class:`orbitmq.LitePullConsumer` is
    what is wanted, or a :class:`orbitmq.PullConsumerScheduleService`, which calls a function for
    each queue in balance.

    ``topics`` are registered: the consumers of ``group`` share their queues, and
    :meth:`fetch_message_queues_in_balance` says which are this one's; so does ``queue_listener``,
    a function that hears of each change. Any queue may be pulled all the same. ``allocate`` is how
    queues are shared (:mod:`orbitmq.allocate`, averagely), ``offset_store`` where offsets are kept
    instead of with the brokers. Settings are the fields of
    :class:`orbitmq.consumer.config.PullConfig`, checked here (ConfigError).
    """

    def __init__(
        self, group: str, *, topics: Topics = (), **arguments: Unpack[PullArguments]
    ) -> None:
        super().__init__(PullCore(group, arguments, topics=topics))

    @classmethod
    def over(cls, core: PullCore) -> Self:
        """Another face of ``core``; for the schedule service."""
        face = cls.__new__(cls)
        Face.__init__(face, core, owner=False)
        return face

    def register_topics(self, topics: Topics) -> None:
        """Share in the queues of ``topics`` as well, before or after the start.

        As a mapping from topic to expression it tells the brokers what is wanted of each; what is
        pulled is up to each pull.
        """
        self._core.register_topics(topics)

    def register_message_queue_listener(
        self, topics: Topics, listener: QueueListener | None = None
    ) -> None:
        """As :meth:`register_topics`; ``listener`` replaces the one that hears of changes."""
        self._core.register_message_queue_listener(topics, listener)

    def register_consume_message_hook(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called with what each pull brings; not with asynchronous ones (Java)."""
        self._core.consume_hooks.register(hook)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` take out of what each pull brings what is not wanted."""
        self._core.filter_hooks.register(hook)

    def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``; TopicNotFoundError where there is none."""
        return loop_thread().run(self._core.fetch_subscribe_message_queues(topic))

    def fetch_message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` that are this consumer's share now."""
        return self._core.message_queues_in_balance(topic)

    def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
    ) -> PullResult:
        """Up to ``max_nums`` messages of ``queue`` from ``offset`` on, those there are now.

        ``expression`` chooses them by tag (``*`` for all, or as in ``UA || AA``) or as a
        MessageSelector says; ``max_bytes`` is for brokers of RocketMQ 5. The status says whether
        messages were found, there is none yet (NO_NEW_MESSAGE), none that matches
        (NO_MATCHED_MESSAGE), or the queue has no such offset (OFFSET_ILLEGAL); in each case the
        next pull begins at ``next_begin_offset``. Found messages may all have been left out by
        the filters here.

        ``timeout`` in seconds: ``consumer_pull_timeout_ms``. Raises ConfigError for arguments out
        of range, ClientStateError unless the consumer runs, NetworkError, BrokerError.
        """
        core = self._core
        pull = core.prepare(
            queue, expression, offset, max_nums, max_bytes=max_bytes, timeout=timeout
        )
        return core.pulled(queue, loop_thread().run(core.pull(pull)))

    def pull_block_if_not_found(
        self, queue: MessageQueue, expression: Expression, offset: int, max_nums: int
    ) -> PullResult:
        """As :meth:`pull`, but the broker waits for a message if there is none.

        It waits ``broker_suspend_max_time_ms`` at most, then the answer is NO_NEW_MESSAGE.
        """
        core = self._core
        pull = core.prepare(queue, expression, offset, max_nums, block=True)
        return core.pulled(queue, loop_thread().run(core.pull(pull)))

    @overload
    def pull_async(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        callback: None = None,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        block_if_not_found: bool = False,
    ) -> PullFuture: ...

    @overload
    def pull_async(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        callback: PullCallback,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        block_if_not_found: bool = False,
    ) -> None: ...

    def pull_async(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        callback: PullCallback | None = None,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        block_if_not_found: bool = False,
    ) -> PullFuture | None:
        """Pull without waiting; the outcome goes to ``callback(result, error)`` or to a future.

        Callbacks run one after the other on a thread of their own; what they raise is logged.
        """
        core = self._core
        pull = core.prepare(
            queue,
            expression,
            offset,
            max_nums,
            max_bytes=max_bytes,
            timeout=timeout,
            block=block_if_not_found,
        )
        thread = loop_thread()
        if callback is not None:
            core.start_pull(pull, CallbackSink(callback, thread))
            return None
        future = PullFuture(thread)
        core.start_pull(pull, future)
        return future

    def fetch_consume_offset(self, queue: MessageQueue, from_store: bool = False) -> int:
        """The offset the group has of ``queue``, -1 where it has none yet.

        As last set here, or with ``from_store`` as the broker has it. Raises NetworkError or
        BrokerError when that cannot be told (Java returns -2).
        """
        return loop_thread().run(self._core.fetch_consume_offset(queue, from_store))

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset the group has of ``queue``: that of the next message to consume.

        It is saved every ``persist_offset_interval_ms``, when the queue goes to another consumer
        and at the end, if the queue is in balance; of another queue by :meth:`persist` alone,
        called at once.
        """
        self._core.update_consume_offset(queue, offset)

    def persist(self, queue: MessageQueue) -> None:
        """Save the offset of ``queue`` now. Raises NetworkError or BrokerError."""
        loop_thread().run(self._core.persist(queue))

    def send_message_back(
        self,
        message: MessageView,
        delay_level: int,
        broker_name: str | None = None,
        consumer_group: str | None = None,
    ) -> None:
        """Have ``message`` stored in the retry topic of the group, to be consumed later.

        ``delay_level``: 1 to 18 as the broker's levels, 0 as the broker sees fit, -1 to the
        dead-letter queue; there it also goes after ``max_reconsume_times``. ``broker_name`` is
        the broker that has the message (that it was pulled from), ``consumer_group`` the group
        that gets it again (this one). Raises OrbitMQError when no broker took it.
        """
        loop_thread().run(
            self._core.send_message_back(message, delay_level, broker_name, consumer_group)
        )

    def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message of ``queue`` still kept."""
        return loop_thread().run(self._core.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message of ``queue`` gets."""
        return loop_thread().run(self._core.max_offset(queue))

    def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset of the first message stored at that time (ms since the epoch) or later."""
        return loop_thread().run(self._core.search_offset(queue, timestamp_ms))

    def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message of ``queue`` was stored, ms since the epoch; -1 without one."""
        return loop_thread().run(self._core.earliest_message_store_time(queue))
