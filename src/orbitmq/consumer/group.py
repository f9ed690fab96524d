"""GroupConsumer: what all three consumers are to the brokers, a member of their group.

It makes itself known, gets queues from Rebalance, keeps how far they were consumed in one
OffsetStore, and gives queues up with their offset saved; what is done with a queue is the
consumer's affair. Names are wrapped in the namespace here, and un-wrapped for listeners. All on the
private loop. Follows what the DefaultMQ...ConsumerImpl classes and their RebalanceImpl have in
common.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Generic, Protocol, TypeVar

from orbitmq import codes
from orbitmq.allocate import AllocateAveragely, AllocateStrategy
from orbitmq.client.core import ClientCore
from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespace import Namespace
from orbitmq.client.routes import subscribe_queues
from orbitmq.clock import Clock
from orbitmq.consumer import queue_offsets
from orbitmq.consumer.config import GroupConfig
from orbitmq.consumer.hooks import ConsumeHooks, FilterHooks
from orbitmq.consumer.offsets import (
    LocalFileOffsetStore,
    OffsetStore,
    RemoteBrokerOffsetStore,
)
from orbitmq.consumer.operator_requests import OperatedConsumer, answer_operators
from orbitmq.consumer.parts import Parts, QueueListener, check_queue_listener
from orbitmq.consumer.process_queue import Held
from orbitmq.consumer.rebalance import Rebalance
from orbitmq.consumer.subscription_check import check_subscriptions, log_refused
from orbitmq.errors import (
    BrokerError,
    ClientStateError,
    IllegalNameError,
    NetworkError,
    TopicNotFoundError,
)
from orbitmq.filters.subscription import Expression, build_subscription
from orbitmq.message import MessageQueue
from orbitmq.names import check_group, check_topic
from orbitmq.net.addresses import local_ip
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel, SubscriptionData

log = logging.getLogger("orbitmq.consumer")

_RESERVED_GROUP: Final = "DEFAULT_CONSUMER"
_GIVE_UP_SECONDS: Final = 1.0
_NOTICE_INTERVAL_SECONDS: Final = 0.1


class HeldQueue(Held, Protocol):
    """A queue a consumer has, and what it does with it."""

    @property
    def queue(self) -> MessageQueue:
        """Which."""
        ...

    def stop(self) -> None:
        """Begin nothing more with it."""
        ...


HeldT = TypeVar("HeldT", bound=HeldQueue)


class GroupConsumer(ClientCore, OperatedConsumer, Generic[HeldT]):
    """A consumer of a group, without a face. Its coroutines run on the private loop."""

    consume_type: ClassVar[ConsumeType]

    def __init__(
        self,
        group: str,
        config: GroupConfig,
        parts: Parts,
        clock: Clock,
    ) -> None:
        super().__init__(f"consumer {group!r}")
        check_queue_listener(parts.queue_listener)
        self.namespace = Namespace.of(config)
        self.group = self.namespace.wrap(group)
        check_group(self.group)
        if self.group == _RESERVED_GROUP:
            raise IllegalNameError(f"the group {group!r} is RocketMQ's own: choose another")
        self.clock = clock
        self.born_ms = clock.now_ms()
        self.consume_hooks = ConsumeHooks(group, self.namespace)
        self.filter_hooks = FilterHooks(group, self.namespace, unit_mode=config.unit_mode)
        self.tasks: dict[MessageQueue, HeldT] = {}
        self._leaving: dict[MessageQueue, asyncio.Task[None]] = {}
        self.offsets: OffsetStore
        self._base_config = config
        self._subscribing = threading.Lock()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._version = 0
        self._allocate: AllocateStrategy = parts.allocate or AllocateAveragely()
        self._given_store = parts.offset_store
        self._queue_listener = parts.queue_listener
        self._introducing = 0
        self._notice: asyncio.TimerHandle | None = None
        self._balanced_at = -_NOTICE_INTERVAL_SECONDS
        self._rebalance: Rebalance

    # Life

    async def bring_up(self) -> None:
        """Join a client instance; does not wait for a name server to answer.

        But with subscriptions by SQL92 it asks a broker whether it can filter so, and raises the
        BrokerError of one that cannot.
        """
        instance = await ClientInstance.obtain(
            self._base_config, client_id=self._client_id(), clock=self.clock
        )
        try:
            self.instance = instance
            await self.set_up()
            await check_subscriptions(instance, self.group, self.subscriptions())
            instance.register_consumer(self.group, self)
        except BaseException:
            await instance.release()
            raise

    def started(self) -> None:
        """Register with the brokers, and get queues."""
        log.info("consumer %s started as client %s", self.group, self.instance.client_id)
        self.instance.spawn(self.make_known())

    async def take_down(self) -> None:
        """Give up all queues, and leave the brokers.

        The offsets are with the brokers before these tell the group that this consumer left.
        """
        self.lifecycle.begin_shutdown()
        self._start_leaving(self.tasks.keys())
        await self._rebalance.settled()  # what it is just taking on must be given back first
        await asyncio.gather(*self._leaving.values())
        await self.instance.unregister_consumer(self.group)
        await self.instance.release()
        log.info("consumer %s shut down", self.group)

    def loop_ends(self, error: ClientStateError) -> None:
        """No queue is pulled again."""
        for task in self.tasks.values():
            task.stop()

    async def make_known(self) -> None:
        """Find the topics' brokers, tell them of this consumer, and balance at once."""
        self._introducing += 1
        try:
            for topic in [subscription.topic for subscription in self.subscriptions()]:
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
        answer_operators(instance)
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
        topic = self.namespace.wrap(topic)
        check_topic(topic)
        version = self.new_version()
        self.put_subscription(build_subscription(topic, expression, sub_version=version))
        if self.lifecycle.running:
            self.thread.post(self._spawn_make_known)

    def remove_subscription(self, topic: str) -> None:
        """Unsubscribe from ``topic``, from any thread; its queues are given up at once."""
        topic = self.namespace.wrap(topic)
        with self._subscribing:
            others = {name: data for name, data in self._subscriptions.items() if name != topic}
            self._subscriptions = others
        if self.lifecycle.running:
            self.thread.post(self._spawn_make_known)

    def new_version(self) -> int:
        """The version of a subscription made now: the time in ms, but never the same twice.

        Of two with one version brokers would keep the first.
        """
        with self._subscribing:
            self._version = max(self._version + 1, self.clock.now_ms())
            return self._version

    def put_subscription(self, subscription: SubscriptionData) -> None:
        """Keep a subscription, in place of the one to the same topic."""
        with self._subscribing:
            self._subscriptions = {**self._subscriptions, subscription.topic: subscription}

    def _spawn_make_known(self) -> None:
        if self.lifecycle.running:
            self.instance.spawn(self.make_known())
            self.instance.spawn(log_refused(self.instance, self.group, self.subscriptions()))

    # What brokers know of queues

    async def fetch_subscribe_message_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of ``topic``."""
        self.lifecycle.check_running()
        name = self.namespace.wrap(topic)
        check_topic(name)
        instance = self.instance
        # The routes of registered topics are kept fresh.
        known = name in self._subscriptions
        route = await (instance.topic_route(name) if known else instance.fetch_route(name))
        queues = subscribe_queues(name, route)
        if not queues:
            raise TopicNotFoundError(
                codes.TOPIC_NOT_EXIST,
                f"topic {name!r} has no queue to read: its brokers are away or do not let it be "
                "read",
                instance.name_servers.addresses,
            )
        return self.namespace.unwrap_queues(queues)

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message."""
        self.lifecycle.check_running()
        return await queue_offsets.min_offset(self.instance, self.namespace.wrap_queue(queue))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message to come."""
        self.lifecycle.check_running()
        return await queue_offsets.max_offset(self.instance, self.namespace.wrap_queue(queue))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Where a time lies in a queue."""
        self.lifecycle.check_running()
        return await queue_offsets.offset_for_timestamp(
            self.instance, self.namespace.wrap_queue(queue), timestamp_ms
        )

    # What the instance asks

    @property
    def message_model(self) -> MessageModel:
        """Whether the consumers of the group share the messages."""
        return self._base_config.message_model

    @property
    def consume_from_where(self) -> ConsumeFromWhere:
        """Where a group without offsets begins."""
        return ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

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

    def owned(self) -> Mapping[MessageQueue, HeldT]:
        """The queues held at any time."""
        return self.tasks

    @abstractmethod
    async def take_on(self, queues: Mapping[MessageQueue, bool]) -> bool:
        """Hold ``queues`` from now on; the value says whether a running consumer gives it up."""

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
        """Begin to give ``queues`` up; those first whose next owner would repeat messages."""
        started = []
        for queue in sorted(queues, key=self.offsets.has_moved, reverse=True):
            task = self.tasks.get(queue)
            if task is not None and queue not in self._leaving:
                task.stop()
                with task.process_queue.lock:
                    task.process_queue.leaving = True
                self._leaving[queue] = asyncio.create_task(self._let_go(task))
                started.append(self._leaving[queue])
        return started

    async def _let_go(self, task: HeldT) -> None:
        try:
            await self.leave(task)
        except Exception:
            log.exception("consumer %s: giving up %s went wrong", self.group, task.queue)
        finally:
            del self.tasks[task.queue]
            del self._leaving[task.queue]

    async def leave(self, task: HeldT) -> None:
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
            self.tell(self._queue_listener, topic, all_queues, mine)

    def tell(
        self,
        listener: QueueListener,
        topic: str,
        all_queues: Sequence[MessageQueue],
        mine: Sequence[MessageQueue],
    ) -> None:
        """Have the callback thread tell ``listener``, by the names the user knows."""
        names = self.namespace
        self.thread.call_back(
            listener,
            names.unwrap(topic),
            names.unwrap_queues(all_queues),
            names.unwrap_queues(mine),
        )
