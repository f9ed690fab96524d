"""LitePullCore: the lite pull consumer that every face delegates to.

Messages are pulled in the background; the user takes them with ``poll`` when it suits. Follows
DefaultLitePullConsumer and its implementation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from orbitmq.client.background import Background
from orbitmq.client.lifecycle import ServiceState
from orbitmq.client.routes import subscribe_queues
from orbitmq.clock import SYSTEM_CLOCK, Clock, elapsed_ms
from orbitmq.consumer.config import LitePullConfig, make_consumer_config
from orbitmq.consumer.core import ConsumerCore
from orbitmq.consumer.flow_control import FlowControlTimes, FlowLimits
from orbitmq.consumer.lite_pull.assignment import AssignedQueue, LitePullAssignment
from orbitmq.consumer.lite_pull.subscription_type import SubscriptionChoice, SubscriptionType
from orbitmq.consumer.lite_pull.topic_watch import TopicMessageQueueChangeListener, TopicWatch
from orbitmq.consumer.offsets import ReadOffset
from orbitmq.consumer.parts import (
    LitePullArguments,
    QueueListener,
    check_queue_listener,
    parts_and_settings,
)
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.puller import PullSettings
from orbitmq.consumer.queue_offsets import max_offset, min_offset
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.message import MessageQueue
from orbitmq.names import check_topic
from orbitmq.wire.bodies import ConsumeType, SubscriptionData
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.consumer")

_T = TypeVar("_T")

Commits: TypeAlias = Mapping[MessageQueue, int] | Iterable[MessageQueue] | None
"""What to commit: these offsets, what was polled of these queues, or of all."""


class LitePullCore(ConsumerCore):
    """A lite pull consumer without a face.

    Coroutines run on the private loop; the other methods are for any thread.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY
    read_first_offset = ReadOffset.MEMORY_FIRST

    def __init__(
        self,
        group: str,
        arguments: LitePullArguments,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        parts, settings = parts_and_settings(arguments)
        config = self.config = make_consumer_config(LitePullConfig, settings)
        limits = FlowLimits(
            config.pull_threshold_for_queue,
            config.pull_threshold_size_for_queue,
            config.consume_max_span,
        )
        super().__init__(group, config, limits, parts, clock)
        self.assignment = LitePullAssignment(
            config.auto_commit_interval_ms / 1000 if config.auto_commit else None
        )
        self.held_back_by_all = 0
        self._choice = SubscriptionChoice(self.group)
        self._listening = threading.Lock()
        self._expressions_for_assign: dict[str, Expression] = {}
        self._assigned_filters: dict[str, SubscriptionData] = {}
        self._for_heartbeat: dict[str, SubscriptionData] = {}
        self._topic_listeners: dict[str, QueueListener] = {}
        self._watch = TopicWatch(
            self._fetch_queues, self._tell_of_topic, config.topic_metadata_check_interval_ms / 1000
        )
        self._watching: Background | None = None

    # Life

    def started(self) -> None:
        """As every consumer; what was assigned before is pulled from now on."""
        super().started()
        self._watching = Background(self._watch.run(), f"the topic watch of consumer {self.group}")
        self._apply_assignment()

    async def take_down(self) -> None:
        """As every consumer; with auto-commit what is settled is committed.

        Java saves what was committed before, by its last auto-commit for example. Whoever waits
        for messages is told.
        """
        if self._watching is not None:
            await self._watching.stop()
            self._watching = None
        try:
            await super().take_down()
        finally:
            self.assignment.end()

    def loop_ends(self, error: ClientStateError) -> None:
        """Whoever waits for messages is told."""
        super().loop_ends(error)
        self.assignment.end()

    # Which queues

    def subscribe(
        self, topic: str, expression: Expression, queue_listener: QueueListener | None = None
    ) -> None:
        """Share the queues of ``topic`` with the group; ``queue_listener`` hears of its queues."""
        check_queue_listener(queue_listener)
        self._choice.enter(SubscriptionType.SUBSCRIBE)
        self._listen(topic, queue_listener)
        self.add_subscription(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Share them no more."""
        self._listen(topic, None)
        self.remove_subscription(topic)

    def assign(self, queues: Collection[MessageQueue], expression: Expression) -> None:
        """Take exactly these queues; ``expression`` None as set_sub_expression_for_assign said."""
        if not queues:
            raise ConfigError("queues", queues, "one queue at least")
        self._choice.enter(SubscriptionType.ASSIGN)
        assigned = frozenset(self.namespace.wrap_queues(queues))
        filters = {}
        for topic in {queue.topic for queue in assigned}:
            check_topic(topic)
            wanted = self._expressions_for_assign.get(topic) if expression is None else expression
            filters[topic] = build_subscription(topic, wanted)
        self._assigned_filters = filters
        self.assignment.announce(assigned)
        if self.lifecycle.running:
            self.thread.post(self._apply_assignment)

    def set_sub_expression_for_assign(self, topic: str, expression: Expression) -> None:
        """What is wanted of ``topic`` where assign() does not say."""
        if self.lifecycle.state is not ServiceState.CREATE_JUST:
            raise ClientStateError(
                "set_sub_expression_for_assign can only be called before start(), and consumer "
                f"{self.group!r} is {self.lifecycle.state.value}"
            )
        if not expression:
            raise ConfigError("expression", expression, "tags, or a selector")
        self._choice.enter(SubscriptionType.ASSIGN)
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        build_subscription(topic, expression)
        self._expressions_for_assign[topic] = expression

    def build_subscriptions_for_heartbeat(self, expressions: Mapping[str, Expression]) -> None:
        """What brokers are told of besides subscriptions; nothing is pulled for it."""
        version = self.new_version()
        subscriptions = {}
        for user_topic, expression in expressions.items():
            topic = self.namespace.wrap(user_topic)
            check_topic(topic)
            subscriptions[topic] = build_subscription(topic, expression, sub_version=version)
        self._for_heartbeat = subscriptions
        if self.lifecycle.running:
            self.thread.post(self._spawn_make_known)

    def register_topic_message_queue_change_listener(
        self, topic: str, listener: TopicMessageQueueChangeListener
    ) -> None:
        """Have ``listener`` told when the queues of ``topic`` change."""
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        self._watch.register(topic, listener)
        if self.lifecycle.running:
            self.thread.post(self._spawn, self._watch.note, topic)

    def _spawn(self, function: Callable[[_T], Coroutine[Any, Any, None]], argument: _T) -> None:
        if self.lifecycle.running:
            self.instance.spawn(function(argument))

    def _tell_of_topic(
        self, listener: TopicMessageQueueChangeListener, topic: str, queues: set[MessageQueue]
    ) -> None:
        names = self.namespace
        self.thread.call_back(listener, names.unwrap(topic), set(names.unwrap_queues(queues)))

    def _listen(self, topic: str, listener: QueueListener | None) -> None:
        topic = self.namespace.wrap(topic)
        with self._listening:
            listeners = {
                name: known for name, known in self._topic_listeners.items() if name != topic
            }
            if listener is not None:
                listeners[topic] = listener
            self._topic_listeners = listeners

    def assigned_queues(self) -> set[MessageQueue]:
        """The queues held now, or assigned."""
        queues = self.assignment.announced or self.assignment.queues()
        return set(self.namespace.unwrap_queues(queues))

    def _apply_assignment(self) -> None:
        """Begin and give up queues as the user assigned them."""
        if self._choice.type is not SubscriptionType.ASSIGN or not self.lifecycle.running:
            return
        assigned = self.assignment.announced
        self._start_leaving(self.tasks.keys() - assigned)
        for queue in assigned - self.tasks.keys():
            self.begin(queue).start()
        for queue in assigned & self._leaving.keys():
            self._leaving[queue].add_done_callback(lambda _: self._apply_assignment())

    # Polling

    def check_running(self) -> None:
        """Raise ClientStateError unless the consumer runs."""
        self.lifecycle.check_running()

    def begin_poll(self) -> None:
        """What was polled before counts as consumed from now on; commit it, if it is time."""
        for queue, offset in self.assignment.begin_poll(self.clock.monotonic()).items():
            self.offsets.update(queue, offset)

    def poll_now(self) -> list[MessageView] | None:
        """The messages of the next pull in the cache, None when there is none.

        Whoever is interrupted here has taken nothing; so nothing must come between this and the
        user, neither an await nor a call.
        """
        return self.assignment.take(elapsed_ms(self.clock), self._polled)

    def next_now(self) -> MessageView | None:
        """As :meth:`poll_now`, for one message."""
        return self.assignment.take_one(elapsed_ms(self.clock), self._polled)

    def _polled(self, assigned: AssignedQueue, messages: list[MessageView]) -> None:
        task = self.tasks.get(assigned.queue)
        if task is not None and task.held_back:  # there is room now
            task.held_back = False
            self.thread.post(task.wake)
        if self.consume_hooks:
            self.consume_hooks.polled(assigned.queue, messages)

    # Offsets

    def commit(self, what: Commits, *, persist: bool = False) -> list[MessageQueue]:
        """Make this the offsets of the group, of the queues held; the queues it is for.

        They reach the brokers within 5 s; with ``persist`` they are sent now.
        """
        self.check_running()
        settled = self._settle(what)
        for queue, offset in settled.items():
            self.offsets.update(queue, offset)
        queues = list(settled)
        if persist and queues:
            self.thread.post(self._spawn, self.offsets.persist, queues)
        return queues

    def _settle(self, what: Commits) -> dict[MessageQueue, int]:
        if what is None:
            return self.assignment.commit()
        if not isinstance(what, Mapping):
            return self.assignment.commit(self.namespace.wrap_queues(what))
        offsets = {}
        for queue, offset in what.items():
            if offset < 0:
                raise ConfigError("offset", offset, f"0 or more, for {queue}")
            offsets[self.namespace.wrap_queue(queue)] = offset
        held = self.assignment.commit_at(offsets)
        for queue in offsets.keys() - held:
            user_queue = self.namespace.unwrap_queue(queue)
            log.warning("group %s does not hold %s: not committed", self.group, user_queue)
        return held

    def commit_sync(self, what: Commits) -> Coroutine[Any, Any, None]:
        """As :meth:`commit`, at once; the brokers have it once what is returned was awaited."""
        return self.offsets.flush(self.commit(what))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset of the group."""
        self.check_running()
        offset = await self.offsets.read(self.namespace.wrap_queue(queue), ReadOffset.MEMORY_FIRST)
        return None if offset < 0 else offset

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``."""
        queue = self.namespace.wrap_queue(queue)
        first, end = await self._ends(queue)
        if not first <= offset <= end:
            raise ConfigError("offset", offset, f"{first} to {end}, the offsets of {queue}")
        self._go_to(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message."""
        queue = self.namespace.wrap_queue(queue)
        first, _ = await self._ends(queue)
        self._go_to(queue, first)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on at the next message to come."""
        queue = self.namespace.wrap_queue(queue)
        _, end = await self._ends(queue)
        self._go_to(queue, end)

    async def _ends(self, queue: MessageQueue) -> tuple[int, int]:
        self.check_running()
        self._held(queue)
        return await min_offset(self.instance, queue), await max_offset(self.instance, queue)

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets, and make them the group's; what was polled before counts not.

        Java's lite pull consumer goes on as if nobody had asked.
        """
        mine = [queue for queue in offsets if queue in self.tasks.keys() - self._leaving.keys()]
        for queue in mine:
            self._go_to(queue, offsets[queue])
            self.offsets.update(queue, offsets[queue])
        await self.offsets.persist(mine, confirmed=True)

    def _go_to(self, queue: MessageQueue, offset: int) -> None:
        self.assignment.seek(self._held(queue), offset)
        self.tasks[queue].restart(offset)

    def _held(self, queue: MessageQueue) -> AssignedQueue:
        assigned = self.assignment.get(queue)
        if assigned is None or assigned.process_queue.leaving:
            hint = ", may be rebalancing" if self._choice.type is SubscriptionType.SUBSCRIBE else ""
            raise ClientStateError(f"The message queue is not in assigned list{hint}: {queue}")
        return assigned

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, asked of a name server."""
        self.check_running()
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        return self.namespace.unwrap_queues(await self._fetch_queues(topic))

    async def _fetch_queues(self, topic: str) -> list[MessageQueue]:
        return subscribe_queues(topic, await self.instance.fetch_route(topic))

    # Pausing

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more."""
        self.assignment.pause(self.namespace.wrap_queues(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again, at once."""
        queues = self.namespace.wrap_queues(queues)
        self.assignment.resume(queues)
        for queue in queues:
            task = self.tasks.get(queue)
            if task is not None:
                self.thread.post(task.wake)

    def paused(self) -> set[MessageQueue]:
        """The queues that are paused."""
        return set(self.namespace.unwrap_queues(self.assignment.paused()))

    def flow_control_times(self) -> FlowControlTimes:
        """How often too much was cached."""
        return FlowControlTimes(
            self.held_back_by_all, self.flow.held_back, self.flow.held_back_by_span
        )

    # What the engine asks

    def subscriptions(self) -> Collection[SubscriptionData]:
        """What it subscribes to, and what it only tells the brokers of."""
        return {**self._for_heartbeat, **self._subscriptions}.values()

    async def queues_changed(
        self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        """Tell the consumer's listener, and the topic's."""
        await super().queues_changed(topic, all_queues, mine)
        listener = self._topic_listeners.get(topic)
        if listener is not None:
            self.tell(listener, topic, all_queues, mine)

    def begin(self, queue: MessageQueue) -> PullTask:
        """Hold ``queue``, and have what is pulled of it polled."""
        task = super().begin(queue)
        self.assignment.add(queue, task.process_queue)
        return task

    async def leave(self, task: PullTask) -> None:
        """Let go of a queue; with auto-commit, what the user is done with is committed.

        The messages polled last are not: they may be worked on still, or that may have failed.
        """
        assigned = self.assignment.remove(task.queue)
        if assigned is not None and self.config.auto_commit and assigned.settled >= 0:
            self.offsets.update(task.queue, assigned.settled)
        await super().leave(task)

    async def rebalance(self) -> bool:
        """Balance the queues, unless they were assigned."""
        return self._choice.type is SubscriptionType.ASSIGN or await super().rebalance()

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What is wanted of ``topic``."""
        return self._assigned_filters.get(topic) or super().subscription(topic)

    def pull_settings(self) -> PullSettings:
        """With LITE_PULL_MESSAGE, which carries the subscription."""
        config = self.config
        return PullSettings(
            batch_size=config.pull_batch_size,
            batch_bytes=None,
            suspend_ms=config.broker_suspend_max_time_ms,
            timeout_ms=config.consumer_timeout_when_suspend_ms,
            error_delay_ms=config.pull_delay_when_error_ms,
            interval_ms=0,
            lite=True,
            send_subscription=True,
            broker_id=config.pull_from_broker_id,
        )

    def pull_delay_ms(self, task: PullTask) -> int:
        """A while when paused; a moment under flow control of all queues, or of the one."""
        if self.assignment.is_paused(task.queue):
            return self.config.pull_delay_when_paused_ms
        if self.assignment.cached > self.config.pull_threshold_for_all:
            if self.held_back_by_all % 1000 == 0:
                log.warning(
                    "group %s: %d messages of all queues wait to be polled, so none is pulled",
                    self.group,
                    self.assignment.cached,
                )
            self.held_back_by_all += 1
            return self.config.pull_delay_when_flow_control_ms
        return super().pull_delay_ms(task)

    def may_prefetch(self, task: PullTask, offsets: int, size: int) -> bool:
        """Whether neither a pause nor flow control is against it."""
        return (
            not self.assignment.is_paused(task.queue)
            and self.assignment.cached + offsets <= self.config.pull_threshold_for_all
            and super().may_prefetch(task, offsets, size)
        )

    def take_in(self, task: PullTask, messages: list[MessageView]) -> None:
        """Put the messages where they are polled."""
        assigned = self.assignment.get(task.queue)
        if assigned is not None:
            self.assignment.put(assigned, messages, task.next_offset)

    def nothing_found(self, task: PullTask) -> None:
        """Move the position over what does not match."""
        assigned = self.assignment.get(task.queue)
        if assigned is not None:
            self.assignment.advance(assigned, task.next_offset)

    def offset_illegal(self, task: PullTask, *, reset: bool) -> bool:
        """Go on where the broker offers; after a reset, without what is cached or was polled."""
        if reset:
            self.instance.spawn(self.reset_offsets({task.queue: task.next_offset}))
        else:
            self.nothing_found(task)
        return not reset


def poll_seconds(core: LitePullCore, timeout_seconds: float | None) -> float:
    """How long a poll waits. Raises ConfigError for a negative time."""
    if timeout_seconds is None:
        return core.config.poll_timeout_ms / 1000
    if timeout_seconds < 0:
        raise ConfigError("timeout", timeout_seconds, "0 or more seconds")
    return timeout_seconds
