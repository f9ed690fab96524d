"""What the pull tasks of one consumer share: how it pulls, and what they ask of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol

from orbitmq.client.instance import ClientInstance
from orbitmq.consumer.hooks import FilterHooks
from orbitmq.message import MessageQueue
from orbitmq.wire.bodies import SubscriptionData
from orbitmq.wire.message_view import MessageView

if TYPE_CHECKING:
    from orbitmq.consumer.pull_task import PullTask


class PullSettings(NamedTuple):
    """How a consumer pulls. Times in ms.

    ``batch_bytes`` None leaves the size to the broker, ``broker_id`` None has the broker say
    which of its name to ask next.
    """

    batch_size: int
    batch_bytes: int | None
    suspend_ms: int
    timeout_ms: int
    error_delay_ms: int
    interval_ms: int
    lite: bool
    send_subscription: bool
    broker_id: int | None = None


class PullOwner(Protocol):
    """What a PullTask asks of its consumer, always on the private loop."""

    @property
    def filter_hooks(self) -> FilterHooks:
        """What has a say in which messages are wanted."""
        ...

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What is wanted of ``topic``."""
        ...

    def pull_delay_ms(self, task: PullTask) -> int:
        """How long the queue must not be pulled; 0 when it may be now."""
        ...

    def may_prefetch(self, task: PullTask, offsets: int, size: int) -> bool:
        """Whether to pull once more before ``offsets`` offsets, ``size`` bytes, are put."""
        ...

    def commit_offset(self, queue: MessageQueue) -> int:
        """An offset to tell the broker along with a pull; 0 or less for none."""
        ...

    async def first_offset(self, task: PullTask) -> int:
        """Where to begin; OrbitMQError when that cannot be told now."""
        ...

    def found(self, task: PullTask, messages: list[MessageView]) -> None:
        """Take the messages, one at least."""
        ...

    def nothing_found(self, task: PullTask) -> None:
        """There is no message wanted before ``task.next_offset``."""
        ...

    def offset_illegal(self, task: PullTask, *, reset: bool) -> bool:
        """The broker has no such offset and offers ``task.next_offset``; whether to go on there.

        ``reset``: because an operator reset the group.
        """
        ...


class Puller:
    """What the pull tasks of one consumer share."""

    def __init__(
        self, instance: ClientInstance, group: str, settings: PullSettings, owner: PullOwner
    ) -> None:
        self.instance = instance
        self.group = group
        self.settings = settings
        self.owner = owner
        self.loop = asyncio.get_running_loop()
        self.without_lite_pull: set[str] = set()
