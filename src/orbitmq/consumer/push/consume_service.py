"""What a push consumer and its two ways of consuming, concurrently and in order, ask of each other.

Java's ``ConsumeMessageService`` and what it uses of DefaultMQPushConsumerImpl.
"""

from __future__ import annotations

from typing import Protocol

from orbitmq.client.instance import ClientInstance
from orbitmq.client.loop import LoopThread
from orbitmq.client.namespace import Namespace
from orbitmq.client.runners import Runner
from orbitmq.clock import Clock
from orbitmq.consumer.config import PushConfig
from orbitmq.consumer.hooks import ConsumeHooks, ConsumeReturnType
from orbitmq.consumer.offsets import OffsetStore
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.consumer.push.listeners import ConsumeContext, ConsumeStatus, Listener
from orbitmq.consumer.retries import SendBack
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.message_view import MessageView


class ConsumeOwner(Protocol):
    """What consuming asks of its consumer."""

    @property
    def group(self) -> str:
        """Its group."""
        ...

    @property
    def config(self) -> PushConfig:
        """The settings."""
        ...

    @property
    def message_model(self) -> MessageModel:
        """Whether messages that fail can be given back."""
        ...

    @property
    def clock(self) -> Clock:
        """The time."""
        ...

    @property
    def thread(self) -> LoopThread:
        """The private loop."""
        ...

    @property
    def instance(self) -> ClientInstance:
        """The client."""
        ...

    @property
    def offsets(self) -> OffsetStore:
        """How far queues are consumed."""
        ...

    @property
    def send_back(self) -> SendBack:
        """What gives failed messages back."""
        ...

    @property
    def namespace(self) -> Namespace:
        """What its names are in."""
        ...

    @property
    def consume_hooks(self) -> ConsumeHooks:
        """What is called around listeners."""
        ...

    @property
    def stats(self) -> ConsumeStats:
        """What is counted."""
        ...

    def listener_of(self, message: MessageView) -> Listener:
        """Who consumes ``message``."""
        ...

    def runner_of(self, listener: Listener) -> Runner:
        """Where ``listener`` runs."""
        ...

    def one_listener(self, task: PullTask) -> bool:
        """Whether all messages of a queue have the same listener."""
        ...

    def progressed(self, task: PullTask, *, idle: bool) -> None:
        """Messages of a queue are done; ``idle``: so a leaving queue can go. From any thread."""
        ...

    async def lock_all(self) -> None:
        """Renew the brokers' locks of all queues."""
        ...

    async def lock_again(self, task: PullTask) -> bool:
        """Ask for the broker's lock of a queue; whether it is this consumer's now."""
        ...


class ConsumeService(Protocol):
    """One way of consuming."""

    def submit(self, task: PullTask, messages: list[MessageView], *, dispatch: bool) -> None:
        """Have ``messages``, just put into the queue, consumed; on the private loop.

        ``dispatch``: nobody works through the queue in order yet.
        """
        ...

    def context(self, queue: MessageQueue) -> ConsumeContext:
        """A context for a listener of this kind."""
        ...

    async def keep(self) -> None:
        """What is to be done all the time, until it is cancelled."""
        ...


def return_type(
    status: ConsumeStatus, context: ConsumeContext, took_ms: int, timeout_ms: int
) -> ConsumeReturnType:
    """How a listener ended that answered ``status`` after ``took_ms``."""
    if context.raised is not None:
        return ConsumeReturnType.EXCEPTION
    if took_ms >= timeout_ms:
        return ConsumeReturnType.TIME_OUT
    if status in (ConsumeStatus.RECONSUME_LATER, ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT):
        return ConsumeReturnType.FAILED
    return ConsumeReturnType.SUCCESS
