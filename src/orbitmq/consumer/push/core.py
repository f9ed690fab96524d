"""PushCore: the push consumer that every face delegates to.

Messages are pulled in the background and handed to listeners, concurrently or in order. Follows
DefaultMQPushConsumer and its implementation, RebalancePushImpl.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from orbitmq.client.background import Background
from orbitmq.client.runners import Runner
from orbitmq.clock import SYSTEM_CLOCK, Clock, elapsed_ms
from orbitmq.consumer.config import PushConfig, make_consumer_config
from orbitmq.consumer.core import ConsumerCore
from orbitmq.consumer.flow_control import FlowControlTimes, FlowLimits
from orbitmq.consumer.offsets import ReadOffset
from orbitmq.consumer.parts import PushArguments, parts_and_settings
from orbitmq.consumer.process_queue import LOCK_INTERVAL_MS
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.puller import PullSettings
from orbitmq.consumer.push.consume_concurrently import ConsumeConcurrently
from orbitmq.consumer.push.consume_directly import DirectCall
from orbitmq.consumer.push.consume_orderly import ConsumeOrderly
from orbitmq.consumer.push.consume_service import ConsumeService
from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.consumer.push.listeners import Listener, ListenerFunction
from orbitmq.consumer.push.queue_locks import QueueLocks
from orbitmq.consumer.push.topic_listeners import TopicListeners
from orbitmq.consumer.queue_offsets import offset_for_timestamp
from orbitmq.consumer.retries import SendBack
from orbitmq.errors import ConfigError
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.message import MessageQueue
from orbitmq.names import check_topic, retry_topic
from orbitmq.wire.bodies import ConsumeType, MessageModel
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.running_info import (
    PROP_CONSUME_ORDERLY,
    PROP_THREADPOOL_CORE_SIZE,
    ConsumeMessageDirectlyResult,
    ConsumerRunningInfo,
    ConsumeStatusInfo,
)

log = logging.getLogger("orbitmq.consumer")

FunctionT = TypeVar("FunctionT", bound=ListenerFunction)

_SUSPENDED_DELAY_MS: Final = 1_000
_DEFAULT_MAX_RECONSUME_TIMES: Final = 16
_MAX_THREADS: Final = 1024
_LOCK_RETRY_SECONDS: Final = 0.5


class PushCore(ConsumerCore):
    """A push consumer without a face.

    Coroutines run on the private loop; the other methods are for any thread. Coroutine listeners
    run on ``listeners.loop``, or on a loop of their own.
    """

    consume_type = ConsumeType.CONSUME_PASSIVELY
    read_first_offset = ReadOffset.STORE

    def __init__(
        self,
        group: str,
        arguments: PushArguments,
        *,
        listener: ListenerFunction | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        parts, settings = parts_and_settings(arguments)
        self.config = make_consumer_config(PushConfig, settings)
        super().__init__(group, self.config, self._limits(), parts, clock)
        self.send_back: SendBack
        self.suspended = False
        self.stats = ConsumeStats(elapsed_ms(clock))
        self.listeners = TopicListeners(group, listener, self.config.consume_threads, clock)
        self._retry_topic = retry_topic(self.group)
        self._service: ConsumeService
        self._locks: QueueLocks
        self._keeper: Background | None = None
        self._idle: dict[MessageQueue, asyncio.Event] = {}
        self._drain_ms = self.config.shutdown_timeout_ms

    # Subscriptions and listeners

    def subscribe(
        self, topic: str, expression: Expression, listener: ListenerFunction | None
    ) -> Callable[[FunctionT], FunctionT]:
        """Have messages of ``topic`` consumed, by ``listener`` or by the consumer's own.

        The answer decorates a function, which is then the topic's listener.
        """
        topic = self.namespace.unwrap(topic)
        check_topic(topic)
        build_subscription(topic, expression)
        if listener is not None:
            self.listeners.put(topic, listener)
        if self.listeners.has(topic) or not self.lifecycle.running:
            self.add_subscription(topic, expression)

        def decorate(function: FunctionT) -> FunctionT:
            self.subscribe(topic, expression, function)
            return function

        return decorate

    def listener_of(self, message: MessageView) -> Listener:
        """The listener of the message's topic, or the consumer's own."""
        return self.listeners.of(message)

    def one_listener(self, task: PullTask) -> bool:
        """Only messages that come again may have different topics."""
        return not self.listeners.several or task.queue.topic != self._retry_topic

    def runner_of(self, listener: Listener) -> Runner:
        """Threads, or tasks of the listeners' loop."""
        return self.listeners.runner_of(listener)

    def update_core_pool_size(self, size: int) -> None:
        """Run ``size`` listeners at once from now on; from any thread."""
        if not 1 <= size <= _MAX_THREADS:
            raise ConfigError("consume_threads", size, f"1 to {_MAX_THREADS}")
        if self.lifecycle.running:
            self.thread.post(self.listeners.resize, size)
        else:
            self.listeners.size = size
        log.info("consumer %s runs %d listeners at once", self.group, size)

    # Life

    async def start(self) -> None:
        """As every consumer; under clustering it subscribes to the group's retry topic too."""
        if not self.lifecycle.running:
            topics = self._subscriptions.keys() - {self._retry_topic}
            self.listeners.check(set(map(self.namespace.unwrap, topics)))
        if self.message_model is MessageModel.CLUSTERING:
            version = self.new_version()
            self.put_subscription(build_subscription(self._retry_topic, sub_version=version))
        await super().start()

    async def bring_up(self) -> None:
        """As every consumer; and where listeners run."""
        try:
            await super().bring_up()
        except BaseException:
            await self.listeners.stop()
            raise

    def started(self) -> None:
        """As every consumer; and begin the upkeep."""
        super().started()
        self._keeper = Background(self._service.keep(), f"the upkeep of consumer {self.group}")

    def refuse_shutdown_here(self) -> None:
        """Raise ClientStateError in one of its listeners, which a shutdown waits for."""
        self.listeners.refuse_shutdown_here()

    async def shutdown(self, timeout_ms: int | None = None) -> None:
        """Wait for running listeners, at most ``timeout_ms``, then leave as every consumer."""
        if timeout_ms is not None:
            self._drain_ms = timeout_ms
        await super().shutdown()

    async def take_down(self) -> None:
        """As every consumer; the listeners' threads end."""
        try:
            await super().take_down()
        finally:
            if self._keeper is not None:
                await self._keeper.stop()
                self._keeper = None
            await self.listeners.stop()

    async def set_up(self) -> None:
        """Choose how messages are consumed."""
        await super().set_up()
        limit = self.config.max_reconsume_times
        orderly = self.config.orderly
        if limit is None:
            limit = 2**31 - 1 if orderly else _DEFAULT_MAX_RECONSUME_TIMES
        self.send_back = self.new_send_back(limit)
        self._locks = QueueLocks(self.instance, self.group)
        self._service = ConsumeOrderly(self) if orderly else ConsumeConcurrently(self)
        self.listeners.open()

    def new_send_back(self, max_reconsume_times: int) -> SendBack:
        """What gives failed messages back."""
        return SendBack(self.instance, self.group, max_reconsume_times, self.namespace)

    def suspend(self) -> None:
        """Pull no more until :meth:`resume`; what is cached is still consumed."""
        self.suspended = True
        log.info("consumer %s suspended", self.group)

    def resume(self) -> None:
        """Pull again."""
        self.suspended = False
        log.info("consumer %s resumed", self.group)
        if self.lifecycle.running:
            self.thread.post(self._wake_all)

    def _wake_all(self) -> None:
        for task in self.tasks.values():
            task.wake()
        self.balance_soon()

    # Queues

    async def rebalance(self) -> bool:
        """Balance the queues, unless suspended; and look whether listeners can run."""
        self.listeners.remind(self._cached)
        return self.suspended or await super().rebalance()

    def _cached(self) -> int:
        return sum(task.process_queue.count for task in self.tasks.values())

    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        """Start to pull ``queues``; in order, those the brokers lock for this consumer."""
        if not self._locking:
            return await super().take_on(queues)
        wanted = [queue for queue in queues if queue not in self.tasks]
        if not self.lifecycle.running:
            return True
        locked = await self._locks.lock(wanted)
        mine = {queue: False for queue in wanted if locked.get(queue)}
        await super().take_on(mine)
        self._note_locks(locked)
        if unused := [queue for queue in mine if queue not in self.tasks]:
            await self._locks.unlock(unused)  # it was shut down meanwhile
        if len(mine) < len(queues):
            # Their owner unlocks them when its listeners end (rebalanceLater).
            asyncio.get_running_loop().call_later(_LOCK_RETRY_SECONDS, self.balance_soon)
        return True

    async def leave(self, task: PullTask) -> None:
        """Let go of a queue once no listener works on it, or that took too long."""
        await self._drained(task)
        await super().leave(task)
        if self._locking:
            task.process_queue.locked = False
            await self._locks.unlock([task.queue])

    async def _drained(self, task: PullTask) -> None:
        process_queue = task.process_queue
        event = self._idle[task.queue] = asyncio.Event()
        try:
            with process_queue.lock:
                if process_queue.idle:
                    return
                process_queue.try_unlock_times += self._locking
            async with asyncio.timeout(self._patience_ms(task) / 1000):
                await event.wait()
        except TimeoutError:
            log.warning(
                "group %s gives up %s while listeners work on it: these messages come again",
                self.group,
                task.queue,
            )
        finally:
            del self._idle[task.queue]

    def _patience_ms(self, task: PullTask) -> int:
        """How long a queue may take to be given up.

        Without locks its next owner begins soon, so only briefly; in order until the lock is due
        to be renewed (RebalancePushImpl.tryRemoveOrderMessageQueue); at the end as long as said.
        Where the listeners' loop is gone nobody is waited for.
        """
        if self.listeners.lost():
            return 0
        if not self.lifecycle.running:
            return self._drain_ms
        if not self._locking:
            return self.config.handover_delay_ms // 2
        held_ms = elapsed_ms(self.clock) - task.process_queue.last_lock_ms
        return max(LOCK_INTERVAL_MS - held_ms, 0)

    def _queue_idle(self, queue: MessageQueue) -> None:
        if queue in self._idle:
            self._idle[queue].set()

    async def queues_changed(
        self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        """Renew the subscription's version, so that brokers take this one for the latest.

        Divide the thresholds of topics anew (RebalancePushImpl.messageQueueChanged).
        """
        subscription = self._subscriptions.get(topic)
        if subscription is not None:
            version = self.new_version()
            self.put_subscription(msgspec.structs.replace(subscription, sub_version=version))
            await self.instance.heartbeat()
        self.flow.limits = self._limits(len(self.tasks))
        await super().queues_changed(topic, all_queues, mine)

    def _limits(self, queues: int = 0) -> FlowLimits:
        config = self.config
        messages, mib = config.pull_threshold_for_queue, config.pull_threshold_size_for_queue
        if queues and config.pull_threshold_for_topic is not None:
            messages = max(1, config.pull_threshold_for_topic // queues)
        if queues and config.pull_threshold_size_for_topic is not None:
            mib = max(1, config.pull_threshold_size_for_topic // queues)
        span = None if config.orderly else config.consume_concurrently_max_span
        return FlowLimits(messages, mib, span)

    # Locks

    @property
    def _locking(self) -> bool:
        return self.config.orderly and self.message_model is MessageModel.CLUSTERING

    async def lock_all(self) -> None:
        """Renew the locks of all queues not on their way out (lockAll)."""
        self._note_locks(
            await self._locks.lock(
                [queue for queue, task in self.tasks.items() if not task.process_queue.leaving]
            )
        )

    async def lock_again(self, task: PullTask) -> bool:
        """Ask for one lock."""
        locked = await self._locks.lock([task.queue])
        self._note_locks(locked)
        return locked.get(task.queue, False)

    def _note_locks(self, locked: Mapping[MessageQueue, bool]) -> None:
        now_ms = elapsed_ms(self.clock)
        for queue, granted in locked.items():
            task = self.tasks.get(queue)
            if task is None:
                continue
            process_queue = task.process_queue
            if granted:
                newly = not process_queue.locked
                process_queue.lock_granted(now_ms)
                if newly:
                    task.wake()
            else:
                process_queue.locked = False
                log.warning("group %s: %s is locked for another consumer", self.group, queue)

    # What the pull tasks ask

    def pull_settings(self) -> PullSettings:
        """With PULL_MESSAGE."""
        config = self.config
        return PullSettings(
            batch_size=config.pull_batch_size,
            batch_bytes=config.pull_batch_bytes,
            suspend_ms=config.broker_suspend_max_time_ms,
            timeout_ms=config.consumer_timeout_when_suspend_ms,
            error_delay_ms=config.pull_delay_when_error_ms,
            interval_ms=config.pull_interval_ms,
            lite=False,
            send_subscription=config.post_subscription_when_pull,
            broker_id=config.pull_from_broker_id,
        )

    def commit_offset(self, queue: MessageQueue) -> int:
        """How far the queue is consumed, for its broker to keep."""
        return self.offsets.get(queue) if self.message_model is MessageModel.CLUSTERING else 0

    def pull_delay_ms(self, task: PullTask) -> int:
        """A second when suspended, a while when not locked, a moment under flow control."""
        if self.suspended:
            return _SUSPENDED_DELAY_MS
        if self._locking and not task.process_queue.locked:
            return self.config.pull_delay_when_error_ms
        return super().pull_delay_ms(task)

    def may_prefetch(self, task: PullTask, offsets: int, size: int) -> bool:
        """Whether nothing is against it."""
        if self.suspended or (self._locking and not task.process_queue.locked):
            return False
        return super().may_prefetch(task, offsets, size)

    def take_in(self, task: PullTask, messages: list[MessageView]) -> None:
        """Put the messages into the queue and have them consumed."""
        self.stats.pulled(task.queue.topic, len(messages), task.pull_ms, elapsed_ms(self.clock))
        process_queue = task.process_queue
        with process_queue.lock:
            dispatch = process_queue.put(messages)
            process_queue.passed = task.next_offset
        self._service.submit(task, messages, dispatch=dispatch)

    def nothing_found(self, task: PullTask) -> None:
        """Move the offset over what does not match, with nothing cached (correctTagsOffset)."""
        process_queue = task.process_queue
        with process_queue.lock:
            process_queue.passed = task.next_offset
            if process_queue.count == 0:
                self.offsets.update(task.queue, task.next_offset, increase_only=True)

    def offset_illegal(self, task: PullTask, *, reset: bool) -> bool:
        """Drop the queue, save the offset the broker offers, and take the queue anew."""
        del reset  # that is done either way
        self.instance.spawn(self.reset_offsets({task.queue: task.next_offset}))
        return False

    def progressed(self, task: PullTask, *, idle: bool) -> None:
        """Pull again where flow control waits for room; go on giving up a queue."""
        if task.held_back:
            task.held_back = False
            self.thread.post(task.wake)
        if idle:
            self.thread.post(self._queue_idle, task.queue)

    # Messages that failed

    async def send_message_back(
        self, message: MessageView, delay_level: int, broker_name: str | None
    ) -> None:
        """Have a message stored again, to be consumed later."""
        self.lifecycle.check_running()
        await self.send_back.send(message, delay_level, broker_name)

    # What operators ask

    async def reset_offsets(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Give up those of the queues it has, and take them anew at these offsets.

        The offsets are frozen until the queues are gone, so that what listeners still work on
        moves none of them (MQClientInstance.resetOffset, which suspends all for 10 s instead).
        """
        mine = [queue for queue in offsets if queue in self.tasks]
        for queue in mine:
            self.offsets.update_and_freeze(queue, offsets[queue])
        # To persist them here too is for a queue that is leaving, its offset saved already.
        await asyncio.gather(self.offsets.persist(mine, confirmed=True), self.give_up(mine))
        self.balance_soon()

    async def reset_offset_by_timestamp(self, timestamp_ms: int) -> None:
        """Go on, in all queues it has, at the messages stored at ``timestamp_ms`` or later."""
        self.lifecycle.check_running()
        queues = [queue for queue in self.tasks if queue.topic != self._retry_topic]
        asked = (offset_for_timestamp(self.instance, queue, timestamp_ms) for queue in queues)
        await self.reset_offsets(dict(zip(queues, await asyncio.gather(*asked), strict=True)))

    async def consume_directly(
        self, message: MessageView, broker_name: str
    ) -> ConsumeMessageDirectlyResult | None:
        """Have the message's listener consume it, beside all others."""
        queue = MessageQueue(message.topic, broker_name, message.queue_id)
        self.unwrap(queue, [message])
        listener = self.listener_of(message)
        call = DirectCall(listener, message, self._service.context(queue), self.clock)
        await self.runner_of(listener).run_apart(call)
        return call.result

    def flow_control_times(self) -> FlowControlTimes:
        """How often flow control held pulls back; from any thread."""
        return FlowControlTimes(0, self.flow.held_back, self.flow.held_back_by_span)

    def consume_status(self, topic: str) -> ConsumeStatusInfo:
        """How fast ``topic`` is consumed; from any thread."""
        return self.stats.status(self.namespace.wrap(topic), elapsed_ms(self.clock))

    async def running_info(self, *, jstack: bool = False) -> ConsumerRunningInfo:
        """As every consumer; and what push consumers have besides."""
        info = await super().running_info(jstack=jstack)
        properties = {
            PROP_CONSUME_ORDERLY: str(self.config.orderly).lower(),
            PROP_THREADPOOL_CORE_SIZE: str(self.listeners.size),
        }
        times = self.flow_control_times()
        counters = {
            "queueFlowControlTimes": str(times.of_queue),
            "queueMaxSpanFlowControlTimes": str(times.of_span),
        }
        return msgspec.structs.replace(
            info,
            properties=info.properties | properties,
            status_table={
                item.topic: self.consume_status(item.topic) for item in info.subscription_set
            },
            user_consumer_info=counters,
        )
