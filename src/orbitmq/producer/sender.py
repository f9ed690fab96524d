"""What the messages of one producer share on their way: routes, templates, who waits for what.

Lives on the private loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from msgspec import Struct

from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespace import Namespace
from orbitmq.errors import OrbitMQError
from orbitmq.message import SendResult
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.fault_strategy import FaultStrategy
from orbitmq.producer.hooks import ProducerHooks
from orbitmq.producer.outgoing import Outgoing
from orbitmq.producer.publish import PublishRoutes
from orbitmq.producer.settling import Settling
from orbitmq.producer.unreachable import UnreachableBrokers
from orbitmq.wire.send_request import SendRequestTemplate

log = logging.getLogger("orbitmq.producer")


class Deadline(Struct, frozen=True, order=True, gc=False):
    """When a send must have its outcome."""

    at: float
    """In seconds of the clock's monotonic time."""
    timeout_ms: int
    """How long it was when the send began, for error texts."""


class Sink(Protocol):
    """Where the outcome of a send goes; called once, on the private loop."""

    def set_result(self, result: Any, /) -> None:
        """It was sent: a SendResult, or None where it was sent one-way."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """It was not, or it is not known."""
        ...


class ForgetfulSink:
    """For messages nobody waits for: a failure is logged."""

    __slots__ = ("_outgoing",)

    def __init__(self, outgoing: Outgoing) -> None:
        self._outgoing = outgoing

    def set_result(self, result: SendResult | None) -> None:
        """It was written."""

    def set_exception(self, error: BaseException) -> None:
        """It was not."""
        log.warning(
            "message %s to topic %s was not sent: %s",
            self._outgoing.message_id,
            self._outgoing.topic,
            error,
        )


class Pending(Hashable, Protocol):
    """What is on its way and will have an outcome."""

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome."""
        ...


class Posted(Pending, Protocol):
    """What is handed to the private loop, and takes room until its outcome."""

    deadline: Deadline

    @property
    def size(self) -> int:
        """The bytes of its body."""
        ...

    def start(self) -> None:
        """Take the first step, on the private loop."""
        ...


class Sender:
    """What the messages of one producer need on their way."""

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        config: ProducerConfig,
        settling: Settling,
        namespace: Namespace,
        hooks: ProducerHooks,
    ) -> None:
        self.instance = instance
        self.config = config
        self._settling = settling
        self.namespace = namespace
        self.hooks = hooks
        self.routes = PublishRoutes(instance, config)
        self.unreachable = UnreachableBrokers()
        self.faults = fault_strategy(config)
        self.loop = asyncio.get_running_loop()
        self.failed = 0
        """Messages whose outcome was an error."""
        self.on_idle: Callable[[], object] | None = None
        """Called when none is pending any more."""
        self._group = group
        self._templates: dict[tuple[str, str, int], SendRequestTemplate] = {}
        self.pending: set[Pending] = set()
        """What is on its way."""
        self.abandoned: OrbitMQError | None = None
        """Why nothing is sent any more."""

    def template(self, outgoing: Outgoing, broker_name: str) -> SendRequestTemplate:
        """The request that brings such a message to a broker."""
        topic, code = outgoing.topic, outgoing.code
        key = (topic, broker_name, code)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendRequestTemplate(
                self._group,
                topic,
                broker_name,
                default_topic=self.config.create_topic_key,
                default_topic_queue_nums=self.config.default_topic_queue_nums,
                unit_mode=self.config.unit_mode,
                code=code,
                hook=self.instance.hook,
            )
        return template

    def ended(self, sending: Pending, arrived: bool) -> None:
        """A message is no longer on its way; ``arrived`` if it was acknowledged."""
        self.pending.discard(sending)
        self._settling.ended(sending, arrived)
        if self.on_idle is not None and not self.pending:
            self.on_idle()

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome of all that is on its way, and of what comes later."""
        self.abandoned = error
        for sending in list(self.pending):
            sending.abandon(error)


def fault_strategy(config: ProducerConfig) -> FaultStrategy | None:
    """What a producer with these settings knows of its brokers; None where it is not asked to."""
    if not config.send_latency_fault_enable:
        return None
    return FaultStrategy(
        config.latency_max_ms,
        config.not_available_duration_ms,
        detector=config.start_detector_enable,
    )
