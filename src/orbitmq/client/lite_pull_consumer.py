"""LitePullCore: the lite pull consumer that every face delegates to.

Messages are pulled in the background; the user takes them with ``poll`` when it suits. Follows
DefaultLitePullConsumer and its implementation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import Final, TypeAlias

from orbitmq.allocate import AllocateStrategy
from orbitmq.client.consumer import ConsumerCore, QueueListener
from orbitmq.client.consumer_config import LitePullConfig, LitePullSettings, make_consumer_config
from orbitmq.client.flow_control import FLOW_CONTROL_DELAY_MS, FlowLimits
from orbitmq.client.lite_pull_assignment import AssignedQueue, LitePullAssignment
from orbitmq.client.offsets import OffsetStore, ReadOffset
from orbitmq.client.pull import PullSettings, PullTask
from orbitmq.client.queue_offsets import max_offset, min_offset, offset_for_timestamp
from orbitmq.client.retries import unwrap_retries
from orbitmq.client.routes import subscribe_queues
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.message import MessageQueue
from orbitmq.names import check_topic
from orbitmq.wire.bodies import ConsumeType, SubscriptionData
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.client")

Commits: TypeAlias = Mapping[MessageQueue, int] | Iterable[MessageQueue] | None
"""What to commit: these offsets, what was polled of these queues, or of all."""

_PAUSED_DELAY_MS: Final = 1_000


class _Mode(Enum):
    """How the consumer comes by its queues (Java's ``SubscriptionType``)."""

    NONE = "none"
    SUBSCRIBE = "subscribe"
    ASSIGN = "assign"


class LitePullCore(ConsumerCore):
    """A lite pull consumer without a face.

    Coroutines run on the private loop; the other methods are for any thread.
    """

    consume_type = ConsumeType.CONSUME_ACTIVELY
    read_first_offset = ReadOffset.MEMORY_FIRST

    def __init__(
        self,
        group: str,
        settings: LitePullSettings,
        *,
        allocate: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        queue_listener: QueueListener | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        config = self.config = make_consumer_config(LitePullConfig, settings)
        limits = FlowLimits(
            config.pull_threshold_for_queue,
            config.pull_threshold_size_for_queue,
            config.consume_max_span,
        )
        super().__init__(
            group,
            config,
            limits,
            allocate=allocate,
            offset_store=offset_store,
            queue_listener=queue_listener,
            clock=clock,
        )
        self.assignment = LitePullAssignment()
        self.held_back_by_all = 0
        self._mode = _Mode.NONE
        self._mode_lock = threading.Lock()
        self._assigned: frozenset[MessageQueue] = frozenset()
        self._assigned_filters: dict[str, SubscriptionData] = {}
        self._next_commit_ms = -1
        self._done = False

    # Life

    async def start(self) -> None:
        """As every consumer; what was assigned before is pulled from now on."""
        await super().start()
        self._apply_assignment()

    async def shutdown(self, *, done: bool = True) -> None:
        """As every consumer; with auto-commit what was polled is committed (Java's is not).

        Unless ``done`` the user failed on the messages polled last, which are left out.
        """
        self._done = done
        await super().shutdown()
        self.assignment.wake_all()

    # Which queues

    def subscribe(self, topic: str, expression: Expression) -> None:
        """Share the queues of ``topic`` with the group."""
        self._enter(_Mode.SUBSCRIBE)
        self.add_subscription(topic, expression)

    def unsubscribe(self, topic: str) -> None:
        """Share them no more."""
        self.remove_subscription(topic)

    def assign(self, queues: Collection[MessageQueue], expression: Expression) -> None:
        """Take exactly these queues."""
        if not queues:
            raise ConfigError("queues", queues, "one queue at least")
        self._enter(_Mode.ASSIGN)
        topics = {queue.topic for queue in queues}
        for topic in topics:
            check_topic(topic)
        self._assigned_filters = {topic: build_subscription(topic, expression) for topic in topics}
        self._assigned = frozenset(queues)
        if self.lifecycle.running:
            self.thread.post(self._apply_assignment)

    def assigned_queues(self) -> set[MessageQueue]:
        """The queues held now, or assigned."""
        return set(self._assigned) or self.assignment.queues()

    def _enter(self, mode: _Mode) -> None:
        with self._mode_lock:
            if self._mode not in (_Mode.NONE, mode):
                raise ClientStateError(
                    "Subscribe and assign are mutually exclusive: "
                    f"this consumer of group {self.group!r} uses {self._mode.value}"
                )
            self._mode = mode

    def _apply_assignment(self) -> None:
        """Begin and give up queues as the user assigned them."""
        if self._mode is not _Mode.ASSIGN or not self.lifecycle.running:
            return
        self._start_leaving(self.tasks.keys() - self._assigned)
        for queue in self._assigned - self.tasks.keys():
            self.begin(queue).start()
        for queue in self._assigned & self._leaving.keys():
            self._leaving[queue].add_done_callback(lambda _: self._apply_assignment())

    # Polling

    def check_running(self) -> None:
        """Raise ClientStateError unless the consumer runs."""
        self.lifecycle.check_running()

    def poll_now(self) -> list[MessageView] | None:
        """The messages of the next pull in the cache, None when there is none.

        What was polled before counts as consumed from now on.
        """
        now_ms = self.clock.now_ms()
        self._settle(now_ms)
        taken = self.assignment.take(now_ms)
        if taken is None:
            return None
        self._made_room(taken[0])
        return taken[1]

    def next_now(self) -> MessageView | None:
        """As :meth:`poll_now`, for one message."""
        now_ms = self.clock.now_ms()
        self._settle(now_ms)
        taken = self.assignment.take_one(now_ms)
        if taken is None:
            return None
        self._made_room(taken[0])
        return taken[1]

    def _settle(self, now_ms: int) -> None:
        self.assignment.settle()
        if self.config.auto_commit and now_ms >= self._next_commit_ms:
            self._next_commit_ms = now_ms + self.config.auto_commit_interval_ms
            for queue, offset in self.assignment.settled().items():
                self.offsets.update(queue, offset)

    def _made_room(self, assigned: AssignedQueue) -> None:
        task = self.tasks.get(assigned.queue)
        if task is not None and task.held_back:
            task.held_back = False
            self.thread.post(task.wake)

    # Offsets

    def commit(self, what: Commits) -> list[MessageQueue]:
        """Make this the offsets of the group; they reach the brokers within 5 s."""
        self.check_running()
        if isinstance(what, Mapping):
            positions = {queue: at for queue, at in what.items() if self.assignment.get(queue)}
        else:
            positions = self.assignment.positions(what)
        for queue, offset in positions.items():
            self.offsets.update(queue, offset)
        return list(positions)

    async def commit_sync(self, what: Commits) -> None:
        """As :meth:`commit`; the brokers have them on return."""
        await self.offsets.flush(self.commit(what))

    async def committed(self, queue: MessageQueue) -> int | None:
        """The offset of the group."""
        self.check_running()
        offset = await self.offsets.read(queue, ReadOffset.MEMORY_FIRST)
        return None if offset < 0 else offset

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at ``offset``."""
        first, end = await self._ends(queue)
        if not first <= offset <= end:
            raise ConfigError("offset", offset, f"{first} to {end}, the offsets of {queue}")
        self._go_to(queue, offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Go on at the oldest message."""
        first, _ = await self._ends(queue)
        self._go_to(queue, first)

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Go on at the next message to come."""
        _, end = await self._ends(queue)
        self._go_to(queue, end)

    async def _ends(self, queue: MessageQueue) -> tuple[int, int]:
        self.check_running()
        self._held(queue)
        return await min_offset(self.instance, queue), await max_offset(self.instance, queue)

    def _go_to(self, queue: MessageQueue, offset: int) -> None:
        self.assignment.seek(self._held(queue), offset)
        self.tasks[queue].restart(offset)

    def _held(self, queue: MessageQueue) -> AssignedQueue:
        assigned = self.assignment.get(queue)
        if assigned is None or assigned.process_queue.leaving:
            hint = ", may be rebalancing" if self._mode is _Mode.SUBSCRIBE else ""
            raise ClientStateError(f"The message queue is not in assigned list{hint}: {queue}")
        return assigned

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Where a time lies in a queue."""
        self.check_running()
        return await offset_for_timestamp(self.instance, queue, timestamp_ms)

    async def fetch_message_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a topic, asked of a name server."""
        self.check_running()
        check_topic(topic)
        return subscribe_queues(topic, await self.instance.fetch_route(topic))

    # Pausing

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues no more."""
        self.assignment.pause(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull them again, at once."""
        queues = list(queues)
        self.assignment.resume(queues)
        for queue in queues:
            task = self.tasks.get(queue)
            if task is not None:
                self.thread.post(task.wake)

    # What the engine asks

    def begin(self, queue: MessageQueue) -> PullTask:
        """Hold ``queue``, and have what is pulled of it polled."""
        task = super().begin(queue)
        self.assignment.add(queue, task.process_queue)
        return task

    async def leave(self, task: PullTask) -> None:
        """Let go of a queue; with auto-commit, what the user is done with is committed.

        That is all but the messages polled last, or all when the consumer ends.
        """
        assigned = self.assignment.remove(task.queue)
        if assigned is not None and self.config.auto_commit:
            position = assigned.position if self._done else assigned.settled
            if position >= 0:
                self.offsets.update(task.queue, position)
        await super().leave(task)

    async def rebalance(self) -> bool:
        """Balance the queues, unless they were assigned."""
        return self._mode is _Mode.ASSIGN or await super().rebalance()

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
        )

    def pull_delay_ms(self, task: PullTask) -> int:
        """A second when paused; a moment under flow control of all queues, or of the one."""
        assigned = self.assignment.get(task.queue)
        if assigned is None or assigned.paused:
            return _PAUSED_DELAY_MS
        if self.assignment.cached > self.config.pull_threshold_for_all:
            if self.held_back_by_all % 1000 == 0:
                log.warning(
                    "group %s: %d messages of all queues wait to be polled, so none is pulled",
                    self.group,
                    self.assignment.cached,
                )
            self.held_back_by_all += 1
            return FLOW_CONTROL_DELAY_MS
        return super().pull_delay_ms(task)

    def may_prefetch(self, task: PullTask, offsets: int, size: int) -> bool:
        """Whether neither a pause nor flow control is against it."""
        assigned = self.assignment.get(task.queue)
        return (
            assigned is not None
            and not assigned.paused
            and self.assignment.cached + offsets <= self.config.pull_threshold_for_all
            and super().may_prefetch(task, offsets, size)
        )

    def found(self, task: PullTask, messages: list[MessageView]) -> None:
        """Put the messages where they are polled."""
        assigned = self.assignment.get(task.queue)
        if assigned is not None:
            unwrap_retries(task.queue, messages)
            self.assignment.put(assigned, messages, task.next_offset)

    def nothing_found(self, task: PullTask) -> None:
        """Move the position over what does not match."""
        assigned = self.assignment.get(task.queue)
        if assigned is not None:
            self.assignment.advance(assigned, task.next_offset)

    def offset_illegal(self, task: PullTask) -> bool:
        """Go on where the broker offers."""
        self.nothing_found(task)
        return True


def poll_seconds(core: LitePullCore, timeout_seconds: float | None) -> float:
    """How long a poll waits. Raises ConfigError for a negative time."""
    if timeout_seconds is None:
        return core.config.poll_timeout_ms / 1000
    if timeout_seconds < 0:
        raise ConfigError("timeout", timeout_seconds, "0 or more seconds")
    return timeout_seconds
