"""PullCore: the pull consumer that every face delegates to.

It has its share of the group's queues and knows the group's offsets, but pulls nothing by itself:
the user says which queue, from which offset and how many messages, and moves the offset. Follows
DefaultMQPullConsumer, DefaultMQPullConsumerImpl and RebalancePullImpl.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import ClassVar, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from orbitmq.client.outcomes import OutcomeFuture
from orbitmq.client.timeouts import in_ms
from orbitmq.clock import SYSTEM_CLOCK, Clock, elapsed_ms
from orbitmq.codes import RequestCode
from orbitmq.consumer.config import PullConfig, make_consumer_config
from orbitmq.consumer.group import GroupConsumer
from orbitmq.consumer.offsets import ReadOffset
from orbitmq.consumer.parts import (
    PullArguments,
    QueueListener,
    check_queue_listener,
    parts_and_settings,
)
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.pull_request import (
    STATUS_OF,
    SUBSCRIPTION,
    SUSPEND,
    PullResult,
    pull_header,
    read_messages,
)
from orbitmq.consumer.queue_offsets import earliest_message_store_time
from orbitmq.consumer.retries import SendBack
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.filters.tags import SUB_ALL
from orbitmq.message import MessageQueue, PullStatus
from orbitmq.names import check_topic
from orbitmq.wire.bodies import MASTER_ID, ConsumeType, SubscriptionData
from orbitmq.wire.headers import PullMessageResponseHeader
from orbitmq.wire.message_view import MessageView

Topics: TypeAlias = str | Iterable[str] | Mapping[str, Expression]
"""Topics to register; as a mapping, with what is wanted of each."""

PullCallback: TypeAlias = Callable[[PullResult | None, BaseException | None], object]
"""Gets the outcome of an asynchronous pull: a result, or an error (Java's ``PullCallback``)."""

_MAX_INT: Final = 2**31 - 1


class Pull(NamedTuple):
    """A pull as the user asked for it, checked."""

    queue: MessageQueue
    subscription: SubscriptionData
    offset: int
    max_nums: int
    max_bytes: int | None
    block: bool
    timeout_ms: int


class PullSink(Protocol):
    """Where the outcome of an asynchronous pull goes."""

    def set_result(self, result: PullResult) -> None:
        """It was answered."""
        ...

    def set_exception(self, error: BaseException) -> None:
        """It was not."""
        ...


class BalancedQueue:
    """A queue in balance; what is done with it is its user's affair."""

    def __init__(self, queue: MessageQueue, process_queue: ProcessQueue) -> None:
        self.queue = queue
        self.process_queue = process_queue

    def begin(self, *, handed_over: bool = False) -> None:
        """Begin what is to be done with it; ``handed_over``: its owner just gives it up."""

    def stop(self) -> None:
        """Begin nothing more with it."""

    async def ended(self) -> None:
        """Wait until nothing is done with it any more."""


class PullCore(GroupConsumer[BalancedQueue]):
    """A pull consumer without a face.

    Coroutines run on the private loop; the other methods are for any thread.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY
    config_type: ClassVar[type[PullConfig]] = PullConfig

    def __init__(
        self,
        group: str,
        arguments: PullArguments,
        *,
        topics: Topics = (),
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        parts, settings = parts_and_settings(arguments)
        self.config = make_consumer_config(self.config_type, settings)
        super().__init__(group, self.config, parts, clock)
        self._pulled_topics: set[str] = set()
        self._suggested: dict[MessageQueue, int] = {}
        self._pulls: set[asyncio.Timeout] = set()
        self.closing = False
        self.register_topics(topics)

    # Life

    async def take_down(self) -> None:
        """As every consumer; pulls that still wait for messages end with ClientStateError."""
        self.end_pulls()
        await super().take_down()

    def end_pulls(self) -> None:
        """End the pulls under way, and begin no more."""
        if self.closing:
            return
        self.closing = True
        now = asyncio.get_running_loop().time()
        for waiting in self._pulls:
            waiting.reschedule(now)

    def loop_ends(self, error: ClientStateError) -> None:
        """As every consumer; no more pulls are begun."""
        super().loop_ends(error)
        self.closing = True

    # Topics and queues

    def register_topics(self, topics: Topics) -> None:
        """Share in the queues of ``topics``, and tell the brokers of them (registerTopics)."""
        if isinstance(topics, str):
            topics = [topics]
        if not isinstance(topics, Mapping):
            topics = dict.fromkeys(topics, SUB_ALL)
        for topic, expression in topics.items():
            name = self.namespace.wrap(topic)
            check_topic(name)
            # All messages of a topic are no news to a broker that knows of a filter.
            version = 0 if expression in (None, SUB_ALL) else self.new_version()
            self.put_subscription(build_subscription(name, expression, sub_version=version))
        if self.lifecycle.running:
            self.thread.post(self._spawn_make_known)

    def register_message_queue_listener(
        self, topics: Topics, listener: QueueListener | None
    ) -> None:
        """Register ``topics``, and have ``listener`` hear of changed queues."""
        check_queue_listener(listener)
        if listener is not None:
            self._queue_listener = listener
        self.register_topics(topics)

    def message_queues_in_balance(self, topic: str) -> list[MessageQueue]:
        """The queues of ``topic`` this consumer has now."""
        self.lifecycle.check_running()
        name = self.namespace.wrap(topic)
        mine = sorted(
            queue
            for queue, held in self.tasks.copy().items()
            if queue.topic == name and not held.process_queue.leaving
        )
        return self.namespace.unwrap_queues(mine)

    # Pulling

    def prepare(
        self,
        queue: MessageQueue,
        expression: Expression,
        offset: int,
        max_nums: int,
        *,
        max_bytes: int | None = None,
        timeout: float | None = None,
        block: bool = False,
    ) -> Pull:
        """Check a pull. Raises ConfigError, or ClientStateError unless the consumer runs."""
        self.lifecycle.check_running()
        if offset < 0:
            raise ConfigError("offset", offset, "0 or more")
        for name, value in ("max_nums", max_nums), ("max_bytes", max_bytes):
            if value is not None and not 0 < value <= _MAX_INT:
                raise ConfigError(name, value, f"1 to {_MAX_INT}")
        if timeout is not None:
            timeout_ms = in_ms(timeout)
        elif block:
            timeout_ms = self.config.consumer_timeout_when_suspend_ms
        else:
            timeout_ms = self.config.consumer_pull_timeout_ms
        queue = self.namespace.wrap_queue(queue)
        subscription = build_subscription(queue.topic, expression, sub_version=self.clock.now_ms())
        return Pull(queue, subscription, offset, max_nums, max_bytes, block, timeout_ms)

    async def pull(self, pull: Pull) -> PullResult:
        """Ask for messages. Errors as PullConsumer.pull says."""
        self.lifecycle.check_running()
        try:
            async with asyncio.timeout(0 if self.closing else None) as waiting:
                self._pulls.add(waiting)
                try:
                    return await self._ask(pull)
                finally:
                    self._pulls.discard(waiting)
        except TimeoutError:
            raise ClientStateError(
                f"consumer {self.group!r} was shut down during a pull of {pull.queue}"
            ) from None

    def start_pull(self, pull: Pull, sink: PullSink) -> None:
        """Ask for messages without waiting; the outcome goes to ``sink``."""
        self.thread.post(self._spawn_pull, pull, sink)

    def pulled(self, queue: MessageQueue, result: PullResult) -> PullResult:
        """Tell the consume hooks of messages just given to the user."""
        if self.consume_hooks and result.messages:
            self.consume_hooks.polled(queue, result.messages)
        return result

    def _spawn_pull(self, pull: Pull, sink: PullSink) -> None:
        self.instance.spawn(self._pull_into(pull, sink))

    async def _pull_into(self, pull: Pull, sink: PullSink) -> None:
        try:
            result = await self.pull(pull)
        except BaseException as error:
            sink.set_exception(error)
            if not isinstance(error, Exception):
                raise
        else:
            sink.set_result(result)

    def _note_topic(self, topic: str) -> None:
        """Balance the queues of a topic that is pulled, too (subscriptionAutomatically)."""
        if topic not in self._subscriptions and topic not in self._pulled_topics:
            self._pulled_topics.add(topic)
            self.instance.spawn(self.make_known())

    async def _ask(self, pull: Pull) -> PullResult:
        config = self.config
        queue = pull.queue
        broker_id = config.pull_from_broker_id
        if broker_id is None:
            broker_id = self._suggested.get(queue, MASTER_ID)
        address = await self.instance.broker_address(
            queue.broker_name, broker_id=broker_id, topic=queue.topic
        )
        self._note_topic(queue.topic)
        header = pull_header(
            self.group,
            queue,
            pull.subscription,
            max_messages=pull.max_nums,
            max_bytes=pull.max_bytes,
            suspend_ms=config.broker_suspend_max_time_ms,
            send_subscription=True,
            tags_versioned=False,
        )
        answer = await self.instance.invoke(
            address,
            RequestCode.PULL_MESSAGE,
            msgspec.structs.replace(
                header,
                queue_offset=pull.offset,
                sys_flag=SUBSCRIPTION | SUSPEND if pull.block else SUBSCRIPTION,
            ),
            timeout_ms=pull.timeout_ms,
        )
        status = STATUS_OF.get(answer.code)
        if status is None:
            raise self.instance.error_of(answer, address)
        told = answer.header(PullMessageResponseHeader)
        self._suggested[queue] = told.suggest_which_broker_id
        messages: list[MessageView] = []
        if status is PullStatus.FOUND:
            messages = read_messages(answer.body, queue, told, pull.subscription, self.filter_hooks)
            self.namespace.unwrap_messages(queue, messages)
        return PullResult(
            status, told.next_begin_offset, told.min_offset, told.max_offset, messages
        )

    # Offsets

    async def fetch_consume_offset(self, queue: MessageQueue, from_store: bool) -> int:
        """The group's offset, -1 where it has none."""
        self.lifecycle.check_running()
        source = ReadOffset.STORE if from_store else ReadOffset.MEMORY_FIRST
        return await self.offsets.read(self.namespace.wrap_queue(queue), source)

    def update_consume_offset(self, queue: MessageQueue, offset: int) -> None:
        """Move the group's offset, in memory."""
        self.lifecycle.check_running()
        self.offsets.update(self.namespace.wrap_queue(queue), offset)

    async def persist(self, queue: MessageQueue) -> None:
        """Save the offset of ``queue`` now."""
        self.lifecycle.check_running()
        await self.offsets.flush([self.namespace.wrap_queue(queue)])

    async def earliest_message_store_time(self, queue: MessageQueue) -> int:
        """When the oldest message was stored."""
        self.lifecycle.check_running()
        return await earliest_message_store_time(self.instance, self.namespace.wrap_queue(queue))

    # Messages that failed

    async def send_message_back(
        self,
        message: MessageView,
        delay_level: int,
        broker_name: str | None,
        consumer_group: str | None,
    ) -> None:
        """Have a message stored again, to be consumed later."""
        group = self.namespace.wrap(consumer_group) if consumer_group else self.group
        self.lifecycle.check_running()
        limit = self.config.max_reconsume_times
        send_back = SendBack(self.instance, group, limit, self.namespace)
        await send_back.send(message, delay_level, broker_name)

    # What Rebalance asks

    def subscribed_topics(self) -> Collection[str]:
        """The topics to balance: registered, or pulled once."""
        return self._subscriptions.keys() | self._pulled_topics

    async def rebalance(self) -> bool:
        """Balance the queues, unless ``enable_rebalance`` is off."""
        return not self.config.enable_rebalance or await super().rebalance()

    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        """Hold ``queues``.

        An offset the user set while the queue was not in balance yet stays (removeDirtyOffset
        loses it).
        """
        for queue, handed_over in queues.items():
            if queue not in self.tasks and self.lifecycle.running and not self.closing:
                held = self.tasks[queue] = self.hold(queue)
                held.begin(handed_over=handed_over)
        return all(queue in self.tasks for queue in queues)

    def hold(self, queue: MessageQueue) -> BalancedQueue:
        """What stands for ``queue`` while it is in balance."""
        return BalancedQueue(queue, ProcessQueue(elapsed_ms(self.clock)))

    async def leave(self, task: BalancedQueue) -> None:
        """Let go of a queue once nothing is done with it any more, with its offset saved."""
        await task.ended()
        await super().leave(task)


class PullFuture(OutcomeFuture[PullResult]):
    """The outcome of an asynchronous pull."""
