"""The producer, as far as all its faces share it.

The caller's thread checks and encodes the message and hands it to the private loop, where a
Sending brings it to its broker; only how the outcome comes back differs: to a waiting thread, to
a callback, to a future of the caller's own loop. Follows DefaultMQProducer.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

from orbitmq.client.config import make_config
from orbitmq.client.core import ClientCore
from orbitmq.client.instance import ClientInstance
from orbitmq.client.mailbox import Waiter
from orbitmq.client.namespace import Namespace
from orbitmq.client.outcomes import OutcomeFuture
from orbitmq.errors import (
    ClientStateError,
    ConfigError,
    IllegalNameError,
    InvalidMessageError,
    OrbitMQError,
    RequestTimeoutError,
)
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.names import check_group, check_topic
from orbitmq.producer.config import ProducerConfig, ProducerSettings
from orbitmq.producer.in_flight import InFlight
from orbitmq.producer.outgoing import Outgoing, prepare_batch, prepare_message
from orbitmq.producer.publish import PublishInfo
from orbitmq.producer.selectors import QueueSelector
from orbitmq.producer.sending import Deadline, Sender, Sending, Sink
from orbitmq.wire.bodies import TopicRouteData

log = logging.getLogger("orbitmq.producer")

Messages: TypeAlias = Message | Sequence[Message]
"""One message, or several that are sent as one batch."""

SendCallback: TypeAlias = Callable[[SendResult | None, BaseException | None], None]
"""Gets the result and None, or None and the error."""

_RESERVED_GROUP = "DEFAULT_PRODUCER"


class ProducerCore(ClientCore):
    """A producer without a face. Its coroutines run on the private loop, its functions do not."""

    def __init__(self, group: str, settings: ProducerSettings) -> None:
        self.config = make_config(ProducerConfig, settings)
        self.namespace = Namespace.of(self.config)
        group = self.namespace.wrap(group)
        check_group(group)
        if group == _RESERVED_GROUP:
            raise IllegalNameError(f"the group {group!r} is RocketMQ's own: choose another")
        super().__init__(f"producer {group!r}")
        self.in_flight = InFlight(self.config.max_in_flight, self.config.max_in_flight_bytes)
        self._group = group
        self._wait_for_callbacks = True
        self._sender: Sender

    # Life

    async def bring_up(self) -> None:
        """Join a client instance; does not wait for a name server to answer."""
        instance = await ClientInstance.obtain(self.config)
        try:
            instance.register_producer(self._group, self)
        except BaseException:
            await instance.release()
            raise
        self.instance = instance
        self._sender = Sender(self._group, instance, self.config, self.in_flight, self.namespace)

    def started(self) -> None:
        """Begin heartbeats."""
        self.instance.spawn(self.instance.heartbeat())
        log.info("producer %s started as client %s", self._group, self.instance.client_id)

    async def shutdown(self, *, wait_for_callbacks: bool = True) -> None:
        """Wait for the outcome of what is on its way, then leave the brokers.

        Every message has an outcome within its timeout. A producer that does not run stays so.
        """
        self._wait_for_callbacks = wait_for_callbacks
        await super().shutdown()

    async def take_down(self) -> None:
        """Send nothing more, and wait."""
        self.lifecycle.begin_shutdown()
        await self._sender.wait_until_none_pending()
        if self._wait_for_callbacks:
            await self.thread.callbacks_done(self.config.send_timeout_ms / 1000)
        await self.instance.unregister_producer(self._group)
        await self.instance.release()
        log.info("producer %s shut down", self._group)

    def loop_ends(self, error: ClientStateError) -> None:
        """What is still on its way has this error as its outcome."""
        self._sender.abandon(error)

    # What the instance asks

    def topics(self) -> Iterable[str]:
        """The topics it sends to."""
        return self._sender.routes.topics()

    def route_changed(self, topic: str, route: TopicRouteData) -> None:
        """Take over a route."""
        self._sender.routes.changed(topic, route)

    # The steps of a send

    def deadline(self, timeout_ms: int | None) -> Deadline:
        """When a send that begins now must end; the default is ``send_timeout_ms``."""
        self.lifecycle.check_running()
        if timeout_ms is None:
            timeout_ms = self.config.send_timeout_ms
        elif timeout_ms <= 0:
            raise ConfigError("timeout_ms", timeout_ms, "at least 1 ms")
        return Deadline(self.instance.clock.monotonic() + timeout_ms / 1000, timeout_ms)

    def time_left(self, deadline: Deadline) -> float:
        """Seconds until ``deadline``, never negative."""
        return max(0.0, deadline.at - self.instance.clock.monotonic())

    def prepare(
        self, message: Messages, selector: QueueSelector | None, queue: MessageQueue | None
    ) -> Outgoing:
        """Check the message or batch, and what is said of its queue, and encode it."""
        if isinstance(message, Message):
            outgoing = prepare_message(message, self.config, self.namespace)
        else:
            placed = selector is not None or queue is not None
            outgoing = prepare_batch(message, self.config, self.namespace, placed=placed)
        if queue is not None and self.namespace.wrap(queue.topic) != outgoing.topic:
            raise InvalidMessageError(
                f"a message to topic {outgoing.topic!r} cannot go to {queue}: give a queue of its "
                "topic"
            )
        return outgoing

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The writable queues of ``topic``, if they are known already, as users know them."""
        info = self._sender.routes.get(self.namespace.wrap(topic))
        return None if info is None else self._for_user(info)

    async def find_queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        """As :meth:`known_queues`; an unknown topic has those it would be created with.

        Raises TopicNotFoundError, ConnectError, RequestTimeoutError.
        """
        found: asyncio.Future[PublishInfo | OrbitMQError] = asyncio.Future()

        def on_found(outcome: PublishInfo | OrbitMQError) -> None:
            if not found.done():
                found.set_result(outcome)

        topic = self.namespace.wrap(topic)
        routes = self._sender.routes
        routes.find(topic, deadline.at, on_found)
        done, _ = await asyncio.wait([found], timeout=self.time_left(deadline))
        servers = self.instance.name_servers.addresses
        outcome: PublishInfo | OrbitMQError | None = (
            found.result() if done else routes.error_of(topic)
        )
        if isinstance(outcome, PublishInfo):
            return self._for_user(outcome)
        if outcome is not None:
            raise copy.copy(outcome)
        raise RequestTimeoutError(
            f"name server {servers} gave no route of topic {topic!r} within {deadline.timeout_ms} "
            "ms",
            servers,
        )

    def _for_user(self, info: PublishInfo) -> Sequence[MessageQueue]:
        queues = info.queues
        return queues if self.namespace.name is None else self.namespace.unwrap_queues(queues)

    def select(
        self,
        selector: QueueSelector,
        queues: Sequence[MessageQueue],
        message: Messages,
        arg: object,
    ) -> MessageQueue:
        """What ``selector`` chooses; for a batch it is shown the first message."""
        first = message if isinstance(message, Message) else message[0]
        queue = selector(list(queues), first, arg)
        if queue not in queues:
            raise InvalidMessageError(
                f"the selector chose {queue!r}, which is no queue of topic {first.topic!r}"
            )
        return queue

    def post(
        self,
        outgoing: Outgoing,
        sink: Sink,
        queue: MessageQueue | None,
        deadline: Deadline,
        *,
        retries: int = 0,
        oneway: bool = False,
        room: int | None = None,
    ) -> None:
        """Hand a message to the private loop; its outcome goes to ``sink``."""
        sending = Sending(
            self._sender,
            outgoing,
            sink,
            queue=None if queue is None else self.namespace.wrap_queue(queue),
            deadline=deadline,
            retries=retries,
            oneway=oneway,
            room=room,
        )
        self.thread.post(sending.start)

    def too_many(self, deadline: Deadline) -> RequestTimeoutError:
        """The error of a send that found no room in time."""
        return RequestTimeoutError(
            f"{self.in_flight.count} messages were on their way for {deadline.timeout_ms} ms: "
            f"max_in_flight={self.config.max_in_flight}, "
            f"max_in_flight_bytes={self.config.max_in_flight_bytes}"
        )


class BlockingSends:
    """The sends of a thread: they wait for what a loop would be called back for."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    def send(
        self,
        message: Messages,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> SendResult:
        """Send, and wait for the outcome."""
        core = self._core
        deadline = core.deadline(timeout_ms)
        outgoing = core.prepare(message, selector, queue)
        if selector is not None:
            queue = self._select(selector, message, arg, outgoing.topic, deadline)
        waiter: Waiter[SendResult] = Waiter()
        core.post(
            outgoing, waiter, queue, deadline, retries=core.config.retry_times_when_send_failed
        )
        return waiter.wait()

    def send_async(
        self,
        message: Messages,
        sink: Sink,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
        timeout_ms: int | None,
    ) -> None:
        """Send; ``sink`` gets the outcome. Waits only while ``max_in_flight`` are on their way."""
        core = self._core
        deadline = core.deadline(timeout_ms)
        outgoing = core.prepare(message, selector, queue)
        if selector is not None:
            queue = self._select(selector, message, arg, outgoing.topic, deadline)
        core.post(
            outgoing,
            sink,
            queue,
            deadline,
            retries=core.config.retry_times_when_send_async_failed,
            room=self._enter(outgoing, deadline),
        )

    def send_oneway(
        self,
        message: Messages,
        selector: QueueSelector | None,
        arg: object,
        queue: MessageQueue | None,
    ) -> None:
        """Send without asking for an answer.

        The first message to a topic waits until it is written to the connection; later ones do
        not, and that they could not be written is logged.
        """
        core = self._core
        deadline = core.deadline(None)
        outgoing = core.prepare(message, selector, queue)
        if selector is not None:
            queue = self._select(selector, message, arg, outgoing.topic, deadline)
        first = core.known_queues(outgoing.topic) is None
        room = self._enter(outgoing, deadline)
        if first:
            waiter: Waiter[SendResult | None] = Waiter()
            core.post(outgoing, waiter, queue, deadline, oneway=True, room=room)
            waiter.wait()
        else:
            core.post(outgoing, ForgetfulSink(outgoing), queue, deadline, oneway=True, room=room)

    def queues(self, topic: str, timeout_ms: int | None) -> list[MessageQueue]:
        """The writable queues of ``topic``."""
        check_topic(topic)
        return list(self._queues(topic, self._core.deadline(timeout_ms)))

    def _select(
        self,
        selector: QueueSelector,
        message: Messages,
        arg: object,
        topic: str,
        deadline: Deadline,
    ) -> MessageQueue:
        return self._core.select(selector, self._queues(topic, deadline), message, arg)

    def _queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        core = self._core
        return core.known_queues(topic) or core.thread.run(core.find_queues(topic, deadline))

    def _enter(self, outgoing: Outgoing, deadline: Deadline) -> int:
        core = self._core
        size = len(outgoing.body)
        if not core.in_flight.try_enter(size):
            waiter: Waiter[None] = Waiter()
            give_up = core.in_flight.enter(size, partial(waiter.set_result, None))
            try:
                waiter.wait(core.time_left(deadline))
            except BaseException as error:
                if not give_up():
                    core.in_flight.leave(size)  # room came at the last moment
                if isinstance(error, TimeoutError):
                    raise core.too_many(deadline) from None
                raise
        return size


class SendFuture(OutcomeFuture[SendResult]):
    """The outcome of a ``send_async``."""


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
