"""ConsumerCore: the engine both consumers share.

It gets queues from Rebalance, or from the user, has a PullTask pull each of them into its
ProcessQueue under one flow control, and keeps how far they were consumed in one OffsetStore. The
consumers differ only in who takes the messages out of the ProcessQueue. Everything here lives on
the private loop. Follows what DefaultMQPushConsumerImpl, DefaultLitePullConsumerImpl and their
RebalanceImpl have in common.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeAlias

from orbitmq.allocate import AllocateAveragely, AllocateStrategy
from orbitmq.client.consumer_config import ConsumerConfig
from orbitmq.client.flow_control import FLOW_CONTROL_DELAY_MS, FlowControl, FlowLimits
from orbitmq.client.instance import ClientInstance
from orbitmq.client.loop import LoopThread, loop_thread
from orbitmq.client.offsets import (
    LocalFileOffsetStore,
    OffsetStore,
    ReadOffset,
    RemoteBrokerOffsetStore,
)
from orbitmq.client.process_queue import ProcessQueue
from orbitmq.client.pull import Puller, PullSettings, PullTask
from orbitmq.client.queue_offsets import max_offset, offset_for_timestamp
from orbitmq.client.rebalance import Rebalance
from orbitmq.client.state import Lifecycle
from orbitmq.clock import SYSTEM_CLOCK, Clock
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, IllegalNameError, NetworkError
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.message import MessageQueue
from orbitmq.names import RETRY_PREFIX, check_group, check_topic
from orbitmq.net.addresses import local_ip
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import ConsumerGroupRequestHeader
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.client")

QueueListener: TypeAlias = Callable[[str, list[MessageQueue], list[MessageQueue]], None]
"""Gets a topic, its queues, and those this consumer has now (Java's ``MessageQueueListener``)."""

_RESERVED_GROUP: Final = "DEFAULT_CONSUMER"
_HALF_AN_HOUR_MS: Final = 30 * 60 * 1000
_GIVE_UP_SECONDS: Final = 1.0
_NOTICE_INTERVAL_SECONDS: Final = 0.1


class ConsumerCore(ABC):
    """A consumer without a face. Its coroutines run on the private loop.

    ``allocate`` divides the queues of a group (averagely), ``offset_store`` replaces the one the
    message model asks for, ``queue_listener`` hears of changed queues on the callback thread.
    """

    consume_type: ClassVar[ConsumeType]
    read_first_offset: ClassVar[ReadOffset]

    def __init__(
        self,
        group: str,
        config: ConsumerConfig,
        limits: FlowLimits,
        *,
        allocate: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        queue_listener: QueueListener | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        check_group(group)
        if group == _RESERVED_GROUP:
            raise IllegalNameError(f"the group {group!r} is RocketMQ's own: choose another")
        self.group = group
        self.clock = clock
        self.lifecycle = Lifecycle(f"consumer {group!r}")
        self.flow = FlowControl(limits)
        self.tasks: dict[MessageQueue, PullTask] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self.thread: LoopThread
        self.instance: ClientInstance
        self.offsets: OffsetStore
        self._base_config = config
        self._subscribing = threading.Lock()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._allocate: AllocateStrategy = allocate or AllocateAveragely()
        self._given_store = offset_store
        self._queue_listener = queue_listener
        begin_ms = config.consume_timestamp_ms
        self._begin_ms = clock.now_ms() - _HALF_AN_HOUR_MS if begin_ms is None else begin_ms
        self._introducing = 0
        self._notice: asyncio.TimerHandle | None = None
        self._balanced_at = -_NOTICE_INTERVAL_SECONDS
        self._puller: Puller
        self._rebalance: Rebalance

    # Life

    async def start(self) -> None:
        """Register with the brokers and begin; does not wait for a name server to answer."""
        self.lifecycle.begin_start()
        started = False
        try:
            self.thread = loop_thread()
            instance = await ClientInstance.obtain(
                self._base_config, client_id=self._client_id(), clock=self.clock
            )
            try:
                self.instance = instance
                await self.set_up()
                instance.register_consumer(self.group, self)
            except BaseException:
                await instance.release()
                raise
            started = True
        finally:
            self.lifecycle.end_start(succeeded=started)
        log.info("consumer %s started as client %s", self.group, instance.client_id)
        instance.spawn(self.make_known())

    async def shutdown(self) -> None:
        """Give up all queues, and leave the brokers; nothing to a consumer that is not running.

        The offsets are with the brokers before these tell the group that this consumer left.
        """
        if not self.lifecycle.begin_shutdown():
            return
        self._start_leaving(self.tasks.keys())
        await self._rebalance.settled()  # what it is just taking on must be given back first
        await asyncio.gather(*self._leaving.values())
        await self.instance.unregister_consumer(self.group)
        await self.instance.release()
        log.info("consumer %s shut down", self.group)

    async def make_known(self) -> None:
        """Find the topics' brokers, tell them of this consumer, and balance at once."""
        self._introducing += 1
        try:
            for topic in list(self._subscriptions):
                try:
                    await self.instance.topic_route(topic)
                except (NetworkError, BrokerError) as error:
                    log.debug("the route of %s is not known yet: %s", topic, error)
            await self.instance.heartbeat()
        finally:
            self._introducing -= 1
        await self._balance_now()

    async def _balance_now(self) -> None:
        if not await self.rebalance():
            self.instance.rebalance_immediately()
        self._balanced_at = self.clock.monotonic()

    def balance_soon(self) -> None:
        """Balance at once, as when a broker says that consumers came or went.

        The others do so too, and whoever takes a queue waits only ``handover_delay_ms`` for its
        offset, less than the rebalance service lets pass between two rebalances. Notices that
        come in a burst are answered together.
        """
        if self._notice is None:
            passed = self.clock.monotonic() - self._balanced_at
            delay = max(_NOTICE_INTERVAL_SECONDS - passed, 0)
            self._notice = asyncio.get_running_loop().call_later(delay, self._answer_notice)

    def _answer_notice(self) -> None:
        self._notice = None
        if self.lifecycle.running:
            self.instance.spawn(self._balance_now())

    def _client_id(self) -> str | None:
        """Under broadcasting the same in each run, for the offsets to be found again."""
        config = self._base_config
        if config.message_model is MessageModel.CLUSTERING or config.instance_name != "DEFAULT":
            return None
        parts = [config.client_ip or local_ip(), "DEFAULT"]
        return "@".join([*parts, config.unit_name] if config.unit_name else parts)

    async def set_up(self) -> None:
        """Make what needs the client instance."""
        instance = self.instance
        config = self._base_config
        broadcasting = config.message_model is MessageModel.BROADCASTING
        if self._given_store is not None:
            self.offsets = self._given_store
        elif broadcasting:
            root = Path(config.local_offset_dir) if config.local_offset_dir else None
            self.offsets = LocalFileOffsetStore(instance.client_id, self.group, root)
        else:
            self.offsets = RemoteBrokerOffsetStore(instance, self.group)
        await self.offsets.load()
        instance.handle(
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, partial(_consumer_ids_changed, instance)
        )
        self._puller = Puller(instance, self.group, self.pull_settings(), self)
        self._rebalance = Rebalance(
            instance,
            self.group,
            self,
            None if broadcasting else self._allocate,
            expire=self.consume_type is ConsumeType.CONSUME_PASSIVELY,
        )

    # Subscriptions

    def add_subscription(self, topic: str, expression: Expression) -> None:
        """Subscribe to ``topic``, from any thread; a running consumer makes it known at once."""
        check_topic(topic)
        version = self.clock.now_ms()
        self.put_subscription(build_subscription(topic, expression, sub_version=version))
        if self.lifecycle.running:
            self.thread.post(self._spawn_make_known)

    def remove_subscription(self, topic: str) -> None:
        """Unsubscribe from ``topic``, from any thread; its queues are given up at once."""
        with self._subscribing:
            others = {name: data for name, data in self._subscriptions.items() if name != topic}
            self._subscriptions = others
        if self.lifecycle.running:
            self.thread.post(self._spawn_make_known)

    def put_subscription(self, subscription: SubscriptionData) -> None:
        """Keep a subscription, in place of the one to the same topic."""
        with self._subscribing:
            self._subscriptions = {**self._subscriptions, subscription.topic: subscription}

    def _spawn_make_known(self) -> None:
        if self.lifecycle.running:
            self.instance.spawn(self.make_known())

    # What the instance asks

    @property
    def message_model(self) -> MessageModel:
        """Whether the consumers of the group share the messages."""
        return self._base_config.message_model

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a group without offsets begins."""
        return self._base_config.consume_from_where

    @property
    def unit_mode(self) -> bool:
        """Whether it belongs to a unit."""
        return self._base_config.unit_mode

    def subscriptions(self) -> Collection[SubscriptionData]:
        """What it subscribes to."""
        return self._subscriptions.values()

    async def rebalance(self) -> bool:
        """Balance the queues; False asks for another attempt soon.

        Does nothing while the brokers are just being told of this consumer, or of a topic: they
        would not know it yet.
        """
        idle = self._introducing or not self.lifecycle.running
        return bool(idle) or await self._rebalance.run()

    async def persist_offsets(self) -> None:
        """Save the offsets of all queues held."""
        await self.offsets.persist_all(list(self.tasks))

    # What Rebalance asks

    def subscribed_topics(self) -> Collection[str]:
        """The topics to balance."""
        return self._subscriptions.keys()

    def owned(self) -> Mapping[MessageQueue, ProcessQueue]:
        """The queues held."""
        return {queue: task.process_queue for queue, task in self.tasks.items()}

    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        """Start to pull ``queues``.

        One whose owner is still there begins a little later, so that it can save its last offset:
        where to begin is only asked then.
        """
        for queue, handed_over in queues.items():
            if queue in self.tasks or not self.lifecycle.running:
                continue
            self.offsets.remove(queue)
            delay_ms = self._base_config.handover_delay_ms if handed_over else 0
            self.begin(queue).start(delay_ms)
        return all(queue in self.tasks for queue in queues)

    def begin(self, queue: MessageQueue) -> PullTask:
        """Hold ``queue`` from now on."""
        process_queue = ProcessQueue(self.clock.now_ms())
        task = self.tasks[queue] = PullTask(self._puller, queue, process_queue)
        return task

    async def give_up(self, queues: Collection[MessageQueue]) -> None:
        """Stop with ``queues``: what is being consumed may end, then the offsets are saved.

        Waits a second for that; what takes longer ends in the background.
        """
        leaving = self._start_leaving(queues)
        if leaving:
            _, slow = await asyncio.wait(leaving, timeout=_GIVE_UP_SECONDS)
            for task in slow:
                task.add_done_callback(lambda _: self.balance_soon())

    def _start_leaving(self, queues: Collection[MessageQueue]) -> list[asyncio.Task[None]]:
        started = []
        for queue in list(queues):
            task = self.tasks.get(queue)
            if task is not None and queue not in self._leaving:
                task.stop()
                with task.process_queue.lock:
                    task.process_queue.leaving = True
                self._leaving[queue] = asyncio.create_task(self._let_go(task))
                started.append(self._leaving[queue])
        return started

    async def _let_go(self, task: PullTask) -> None:
        try:
            await self.leave(task)
        except Exception:
            log.exception("consumer %s: giving up %s went wrong", self.group, task.queue)
        finally:
            del self.tasks[task.queue]
            del self._leaving[task.queue]

    async def leave(self, task: PullTask) -> None:
        """Drop a queue that is no longer pulled, with its offset saved."""
        with task.process_queue.lock:
            task.process_queue.drop()
        await self.offsets.persist([task.queue], confirmed=True)
        self.offsets.remove(task.queue)

    async def queues_changed(
        self, topic: str, all_queues: Sequence[MessageQueue], mine: Sequence[MessageQueue]
    ) -> None:
        """Tell the user's listener."""
        if self._queue_listener is not None:
            self.thread.call_back(self._queue_listener, topic, list(all_queues), list(mine))

    # What the pull tasks ask

    @abstractmethod
    def pull_settings(self) -> PullSettings:
        """How this consumer pulls."""

    @abstractmethod
    def found(self, task: PullTask, messages: list[MessageView]) -> None:
        """Take in what was pulled."""

    @abstractmethod
    def nothing_found(self, task: PullTask) -> None:
        """There is nothing before ``task.next_offset``."""

    @abstractmethod
    def offset_illegal(self, task: PullTask) -> bool:
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
            return FLOW_CONTROL_DELAY_MS

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


def _consumer_ids_changed(
    instance: ClientInstance, command: RemotingCommand, connection: Connection
) -> None:
    """Have the consumer the broker's notice is for balance its queues."""
    group = command.header(ConsumerGroupRequestHeader).consumer_group
    log.info("the broker at %s says the consumers of %s changed", connection.peer, group)
    consumer = instance.consumer(group)
    if isinstance(consumer, ConsumerCore):
        consumer.balance_soon()
