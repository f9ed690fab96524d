"""ConsumerCore: the engine of the consumers whose queues are pulled in the background.

A PullTask pulls each queue into its ProcessQueue under one flow control; push and lite pull
consumer differ only in who takes the messages out of it. Everything here lives on the private
loop. Follows what DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl and their RebalanceImpl
have in common.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from orbitmq.clock import Clock, elapsed_ms
from orbitmq.consumer.config import ConsumerConfig
from orbitmq.consumer.flow_control import FlowControl, FlowLimits
from orbitmq.consumer.group import GroupConsumer
from orbitmq.consumer.offsets import ReadOffset
from orbitmq.consumer.parts import Parts
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.puller import Puller, PullSettings
from orbitmq.consumer.queue_offsets import max_offset, offset_for_timestamp
from orbitmq.consumer.retries import unwrap_retries
from orbitmq.message import MessageQueue
from orbitmq.names import RETRY_PREFIX
from orbitmq.wire.bodies import ConsumeFromWhere, SubscriptionData
from orbitmq.wire.message_view import MessageView

if TYPE_CHECKING:
    from orbitmq.producer.trace_dispatcher import TraceDispatcher


class ConsumerCore(GroupConsumer[PullTask]):
    """A consumer whose queues are pulled in the background, as ``limits`` allow."""

    read_first_offset: ClassVar[ReadOffset]

    def __init__(
        self,
        group: str,
        config: ConsumerConfig,
        limits: FlowLimits,
        parts: Parts,
        clock: Clock,
    ) -> None:
        super().__init__(group, config, parts, clock)
        self.flow = FlowControl(limits)
        self._begin_ms = config.begin_ms(clock.now_ms())
        self._consume_from_where = config.consume_from_where
        self._handover_delay_ms = config.handover_delay_ms
        self._flow_control_delay_ms = config.pull_delay_when_flow_control_ms
        self._puller: Puller
        self._trace: TraceDispatcher | None = None
        if config.enable_trace:
            # Here, because few consumers need a producer.
            from orbitmq.consumer.trace import TraceHook
            from orbitmq.producer.trace_dispatcher import TraceDispatcher

            self._trace = TraceDispatcher(group, "CONSUME", config)
            self.consume_hooks.register(TraceHook(self._trace.append, clock))

    async def bring_up(self) -> None:
        """As every consumer; and begin to trace."""
        await super().bring_up()
        if self._trace is not None:
            await self._trace.start()

    async def take_down(self) -> None:
        """As every consumer; the last of the trace is sent."""
        await super().take_down()
        if self._trace is not None:
            await self._trace.shutdown()

    async def set_up(self) -> None:
        """As every consumer; and what the pull tasks share."""
        await super().set_up()
        self._puller = Puller(self.instance, self.group, self.pull_settings(), self)

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a group without offsets begins."""
        return self._consume_from_where

    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        """Start to pull ``queues``.

        One whose owner is still there begins a little later, so that it can save its last offset:
        where to begin is only asked then.
        """
        for queue, handed_over in queues.items():
            if queue in self.tasks or not self.lifecycle.running:
                continue
            self.offsets.remove(queue)
            delay_ms = self._handover_delay_ms if handed_over else 0
            self.begin(queue).start(delay_ms)
        return all(queue in self.tasks for queue in queues)

    def begin(self, queue: MessageQueue) -> PullTask:
        """Hold ``queue`` from now on."""
        process_queue = ProcessQueue(elapsed_ms(self.clock))
        task = self.tasks[queue] = PullTask(self._puller, queue, process_queue)
        return task

    # What the pull tasks ask

    @abstractmethod
    def pull_settings(self) -> PullSettings:
        """How this consumer pulls."""

    def found(self, task: PullTask, messages: list[MessageView]) -> None:
        """Take in what was pulled, by the names the user knows."""
        self.unwrap(task.queue, messages)
        self.take_in(task, messages)

    def unwrap(self, queue: MessageQueue, messages: Sequence[MessageView]) -> None:
        """Give messages of ``queue`` the names the user knows (resetRetryAndNamespace)."""
        unwrap_retries(queue, messages)
        self.namespace.unwrap_messages(queue, messages)

    @abstractmethod
    def take_in(self, task: PullTask, messages: list[MessageView]) -> None:
        """Take in what was pulled, ready for the user."""

    @abstractmethod
    def nothing_found(self, task: PullTask) -> None:
        """There is nothing before ``task.next_offset``."""

    @abstractmethod
    def offset_illegal(self, task: PullTask, *, reset: bool) -> bool:
        """The broker has no such offset."""

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What is wanted of ``topic``."""
        return self._subscriptions.get(topic)

    def commit_offset(self, queue: MessageQueue) -> int:
        """What is committed along with pulls: nothing."""
        return 0

    def pull_delay_ms(self, task: PullTask) -> int:
        """How long flow control wants the queue to wait."""
        process_queue = task.process_queue
        with process_queue.lock:
            if not self.flow.holds_back(task.queue, process_queue):
                return 0
            task.held_back = True
            return self._flow_control_delay_ms

    def may_prefetch(self, task: PullTask, offsets: int, size: int) -> bool:
        """Whether flow control allows one more pull on top of what just came."""
        process_queue = task.process_queue
        with process_queue.lock:
            return self.flow.has_room(process_queue, offsets, size)

    async def first_offset(self, task: PullTask) -> int:
        """Where to begin a queue (RebalanceImpl.computePullFromWhere).

        Where the group has no offset yet the beginning becomes it at once: who takes the queue
        over next shall not begin at its end again and skip what came meanwhile.
        """
        offset = await self.offsets.read(task.queue, self.read_first_offset)
        if offset < 0:
            offset = await self._where_to_begin(task.queue)
            if not task.process_queue.leaving:
                self.offsets.set_default(task.queue, offset)
        return offset

    async def _where_to_begin(self, queue: MessageQueue) -> int:
        retries = queue.topic.startswith(RETRY_PREFIX)
        match self.consume_from_where:
            case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
                return 0
            case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
                if retries:
                    return await max_offset(self.instance, queue)
                return await offset_for_timestamp(self.instance, queue, self._begin_ms)
            case _:
                return 0 if retries else await max_offset(self.instance, queue)
