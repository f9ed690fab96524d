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
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from orbitmq.client.background import Background
from orbitmq.client.config import make_config
from orbitmq.client.core import ClientCore
from orbitmq.client.instance import ClientInstance
from orbitmq.client.loop import Call
from orbitmq.client.namespace import Namespace
from orbitmq.client.timeouts import in_ms
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.errors import (
    ClientStateError,
    IllegalNameError,
    InvalidMessageError,
    OrbitMQError,
    RequestTimeoutError,
)
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.names import check_group, check_topic
from orbitmq.producer.batching import Batching, Held
from orbitmq.producer.checks import check_batch, check_queue
from orbitmq.producer.config import ProducerConfig, ProducerSettings
from orbitmq.producer.detector import Detector
from orbitmq.producer.hooks import ProducerHooks
from orbitmq.producer.in_flight import InFlight
from orbitmq.producer.outgoing import Outgoing, prepare_batch, prepare_message
from orbitmq.producer.publish import PublishInfo
from orbitmq.producer.recall import check_recall, recall
from orbitmq.producer.requests import Request, Requests, request_properties
from orbitmq.producer.selectors import QueueSelector
from orbitmq.producer.sender import Deadline, Posted, Sender, Sink
from orbitmq.producer.sending import Sending
from orbitmq.producer.settling import Settling
from orbitmq.producer.under_way import UnderWay
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import CORRELATION_ID

if TYPE_CHECKING:
    from orbitmq.producer.trace_dispatcher import TraceDispatcher

log = logging.getLogger("orbitmq.producer")

Messages: TypeAlias = Message | Sequence[Message]
"""One message, or several that are sent as one batch."""

SendCallback: TypeAlias = Callable[[SendResult | None, BaseException | None], None]
"""Gets the result and None, or None and the error."""

RequestCallback: TypeAlias = Callable[[MessageView | None, BaseException | None], None]
"""Gets the reply and None, or None and the error."""

_RESERVED_GROUP = "DEFAULT_PRODUCER"
_LOOKS = 10
"""How often the line for room is looked at within ``send_timeout_ms``."""


class ProducerCore(ClientCore):
    """A producer without a face. Its coroutines run on the private loop, its functions do not."""

    def __init__(
        self, group: str, settings: ProducerSettings, config: ProducerConfig | None = None
    ) -> None:
        self.config = config or make_config(ProducerConfig, settings)
        self.namespace = Namespace.of(self.config)
        group = self.namespace.wrap(group)
        check_group(group)
        if group == _RESERVED_GROUP:
            raise IllegalNameError(f"the group {group!r} is RocketMQ's own: choose another")
        super().__init__(f"producer {group!r}")
        self.in_flight = InFlight(self.config.max_in_flight, self.config.max_in_flight_bytes)
        self._settling = Settling(self.in_flight, self._hand_over)
        self.hooks = ProducerHooks(
            group,
            self.namespace,
            name_server=self.config.name_server or "",
            unit_mode=self.config.unit_mode,
        )
        self.group = group
        """Its group, as brokers know it."""
        self._topics = tuple(map(self.namespace.wrap, self.config.topics))
        for topic in self._topics:
            check_topic(topic)
        self._wait_for_callbacks = True
        self._sender: Sender
        self._under_way: UnderWay
        self._detecting: Background | None = None
        self._batching: Batching | None = None
        self._callbacks_expected = False
        self._callback_called = self.in_flight.callback_called
        self._trace: TraceDispatcher | None = None
        if self.config.enable_trace:
            self._trace = self._tracing()
        self._line_watch: asyncio.TimerHandle | None = None
        self._not_at_exit: Callable[[], None]

    def _tracing(self) -> TraceDispatcher:
        # Here, because a dispatcher has a producer of its own.
        from orbitmq.producer.trace import EndTransactionTraceHook, SendTraceHook
        from orbitmq.producer.trace_dispatcher import TraceDispatcher

        dispatcher = TraceDispatcher(self.hooks.group, "PRODUCE", self.config)
        self.hooks.register_send(SendTraceHook(dispatcher.append, SYSTEM_CLOCK))
        self.hooks.register_end_transaction(
            EndTransactionTraceHook(dispatcher.append, SYSTEM_CLOCK)
        )
        return dispatcher

    # Life

    async def bring_up(self) -> None:
        """Join a client instance; does not wait for a name server to answer."""
        instance = await ClientInstance.obtain(self.config)
        self._sender = Sender(
            self.group, instance, self.config, self._settling, self.namespace, self.hooks
        )
        try:
            instance.register_producer(self.group, self)
            if self._trace is not None:
                await self._trace.start()
        except BaseException:
            await instance.release()
            raise
        self.instance = instance
        self._under_way = UnderWay(
            self.group,
            self._sender,
            self.in_flight,
            self.thread,
            patience=self.config.send_timeout_ms / 1000,
        )
        self._detecting = self._detect()
        if self.config.auto_batch:
            self._batching = Batching(self._sender, self.config)
        # Longer than it takes: messages have their time, and then callbacks.
        self._not_at_exit = self.thread.at_exit(
            self._end_at_exit, 3 * self.config.send_timeout_ms / 1000
        )

    def _detect(self) -> Background | None:
        config, faults = self.config, self._sender.faults
        if faults is None or not config.start_detector_enable:
            return None
        detector = Detector(
            faults,
            self._sender,
            interval_ms=config.detect_interval_ms,
            timeout_ms=config.detect_timeout_ms,
        )
        return Background(detector.run(), "the detector of brokers")

    def started(self) -> None:
        """Begin heartbeats."""
        self.instance.spawn(self._greet_brokers())
        log.info("producer %s started as client %s", self.group, self.instance.client_id)

    async def _greet_brokers(self) -> None:
        """Find the brokers of the topics it was told of, and tell all brokers of it."""
        for topic in self._topics:
            try:
                await self.instance.topic_route(topic)
            except OrbitMQError as error:
                by_need = topic == self.config.create_topic_key  # which brokers may not have
                level = logging.DEBUG if by_need else logging.WARNING
                log.log(level, "the route of topic %s is not known yet: %s", topic, error)
        await self.instance.heartbeat()

    async def shutdown(self, *, wait_for_callbacks: bool = True) -> None:
        """Wait for the outcome of what is on its way, then leave the brokers.

        Every message has an outcome within its timeout. Callbacks are waited for as long as one
        ends within ``send_timeout_ms``. A producer that does not run stays so.
        """
        self._wait_for_callbacks = wait_for_callbacks
        await super().shutdown()

    async def _end_at_exit(self) -> None:
        if self._batching is not None:
            self._batching.flush()
        await self._under_way.end_at_exit()

    async def take_down(self) -> None:
        """Send nothing more, and wait."""
        self.lifecycle.begin_shutdown()
        if self._batching is not None:
            self._batching.flush()
        await self._under_way.end(with_callbacks=self._wait_for_callbacks)
        self._not_at_exit()
        if self._detecting is not None:
            await self._detecting.stop()
        if self._trace is not None:
            await self._trace.shutdown()
        await self.instance.unregister_producer(self.group)
        await self.instance.release()
        log.info("producer %s shut down", self.group)

    def loop_ends(self, error: ClientStateError) -> None:
        """What is still on its way has this error as its outcome."""
        self._sender.abandon(error)

    # What the instance asks

    def topics(self) -> Iterable[str]:
        """The topics it sends to, or was told of."""
        return {*self._topics, *self._sender.routes.topics()}

    def route_changed(self, topic: str, route: TopicRouteData) -> None:
        """Take over a route."""
        self._sender.routes.changed(topic, route)

    # The steps of a send

    def deadline(self, timeout: float | None) -> Deadline:
        """When a send that begins now must end: in ``timeout`` seconds, or ``send_timeout_ms``."""
        self.lifecycle.check_running()
        return self._deadline(self.config.send_timeout_ms if timeout is None else in_ms(timeout))

    def _deadline(self, timeout_ms: int) -> Deadline:
        return Deadline(self.instance.clock.monotonic() + timeout_ms / 1000, timeout_ms)

    def time_left(self, deadline: Deadline) -> float:
        """Seconds until ``deadline``, never negative."""
        return max(0.0, deadline.at - self.instance.clock.monotonic())

    def prepare(
        self,
        message: Messages,
        selector: QueueSelector | None,
        queue: MessageQueue | None,
        hold: bool = False,
    ) -> Outgoing:
        """Check the message or batch, and what is said of its queue, and encode it.

        With ``hold`` a message may wait for others, where the producer does that.
        """
        if isinstance(message, Message):
            batching = self._batching
            hold = hold and batching is not None and batching.has_room
            outgoing = prepare_message(message, self.config, self.namespace, None, hold)
        else:
            placed = selector is not None or queue is not None
            outgoing = prepare_batch(message, self.config, self.namespace, placed=placed)
        if queue is not None:
            self._check_placed(outgoing, queue)
        if self.hooks.around_sends:
            outgoing = replace(outgoing, given=message)
        return outgoing

    def prepare_request(
        self, message: Message, queue: MessageQueue | None, deadline: Deadline
    ) -> Outgoing:
        """As :meth:`prepare`, of a message that asks for a reply until ``deadline``."""
        given: object = message
        if not isinstance(given, Message):
            check_batch(given)
            raise InvalidMessageError("a request is one message, not a batch: send them one by one")
        own = request_properties(self.instance.client_id, deadline.timeout_ms)
        outgoing = prepare_message(message, self.config, self.namespace, own)
        if queue is not None:
            self._check_placed(outgoing, queue)
        shown = message if self.hooks.around_sends else None
        return replace(outgoing, given=shown, correlation_id=own[CORRELATION_ID])

    def _check_placed(self, outgoing: Outgoing, queue: MessageQueue) -> None:
        check_queue(queue)
        if self.namespace.wrap(queue.topic) != outgoing.topic:
            raise InvalidMessageError(
                f"a message to topic {outgoing.topic!r} cannot go to {queue}: give a queue of its "
                "topic"
            )

    def known_queues(self, topic: str) -> Sequence[MessageQueue] | None:
        """The writable queues of ``topic``, if they are known already, as users know them."""
        info = self._sender.routes.get(self.namespace.wrap(topic))
        return None if info is None else self._for_user(info)

    async def find_queues(self, topic: str, deadline: Deadline) -> Sequence[MessageQueue]:
        """As :meth:`known_queues`; an unknown topic has those it would be created with.

        Raises TopicNotFoundError, ConnectError, RequestTimeoutError.
        """
        topic = self.namespace.wrap(topic)
        routes = self._sender.routes
        servers = self.instance.name_servers.addresses
        outcome = await routes.wait_for(topic, deadline.at) or routes.error_of(topic)
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

    async def recall(self, topic: str, handle: str, deadline: Deadline) -> str:
        """Take back the message with this handle; its unique key."""
        timeout_ms = max(1, round(self.time_left(deadline) * 1000))
        check_recall(topic, handle)
        topic = self.namespace.wrap(topic)
        return await recall(self.instance, self.group, topic, handle, timeout_ms)

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

    def sending(
        self,
        outgoing: Outgoing,
        sink: Sink,
        queue: MessageQueue | None,
        deadline: Deadline,
        retries: int = 0,
        oneway: bool = False,
    ) -> Posted:
        """A message ready to be handed to the private loop; its outcome goes to ``sink``."""
        if queue is not None:
            queue = self.namespace.wrap_queue(queue)
        batching, member = self._batching, outgoing.member
        if member is not None and batching is not None:
            return Held(
                batching, outgoing, member, sink, queue=queue, deadline=deadline, retries=retries
            )
        return Sending(self._sender, outgoing, sink, queue, deadline, retries, oneway)

    def requesting(
        self, outgoing: Outgoing, sink: Sink, queue: MessageQueue | None, deadline: Deadline
    ) -> Request:
        """A request ready to be handed over; its reply goes to ``sink``."""
        retries = self.config.retry_times_when_send_async_failed

        def make_sending(sink: Sink, deadline: Deadline) -> Posted:
            return self.sending(outgoing, sink, queue, deadline, retries=retries)

        return Request(
            self._sender,
            Requests.of(self.instance),
            make_sending,
            sink,
            topic=outgoing.topic,
            correlation_id=outgoing.correlation_id or "",
            size=len(outgoing.body),
            deadline=deadline,
        )

    def post(self, sending: Posted) -> None:
        """Hand a message to the private loop."""
        self.thread.post(sending.start)

    # Room

    def post_if_room(self, sending: Posted) -> bool:
        """Hand a message to the private loop if there is room for it."""
        try:
            if not self.in_flight.try_enter(sending, sending.size):
                return False
            self.thread.post(sending.start)
        except BaseException:  # Ctrl-C may come at any moment
            self.in_flight.abandon(sending)
            self.thread.post(self.in_flight.move)
            raise
        return True

    def leave_line(self, sending: Posted) -> bool:
        """Wait for room no more; whether it has not come."""
        was_there = self.in_flight.leave_line(sending)
        if was_there:
            self.thread.post(self.in_flight.move)
        return was_there

    def line_up(
        self, sending: Posted, on_turn: Callable[[bool], object], *, own_timeout: bool
    ) -> None:
        """Hand it over at its turn; ``on_turn`` is told of that, or that there was none.

        There is none after ``send_timeout_ms`` in which nothing was acknowledged. Only then the
        time of a send begins, unless its caller limited all of it (``own_timeout``). A callback,
        which may not wait for other callbacks, comes first.
        """

        def turn(entered: bool) -> None:
            if entered:
                if not own_timeout:
                    sending.deadline = self._deadline(self.config.send_timeout_ms)
                try:
                    self.post(sending)
                except ClientStateError as error:  # the process ends
                    sending.abandon(error)
            on_turn(entered)

        now = self.instance.clock.monotonic()
        urgent = self.thread.on_callback_thread
        self.in_flight.enter(sending, sending.size, turn, now, urgent=urgent)
        if self._line_watch is None:  # else a look at the line is still to come
            self.thread.post(self._watch_line)

    def too_many(self, timeout_ms: int) -> RequestTimeoutError:
        """The error of a send that found no room in time."""
        in_flight = self.in_flight
        return RequestTimeoutError(
            f"{in_flight.messages} messages were on their way, and {in_flight.callbacks} callbacks "
            f"not called, for {timeout_ms} ms: max_in_flight={self.config.max_in_flight}, "
            f"max_in_flight_bytes={self.config.max_in_flight_bytes}"
        )

    def _watch_line(self) -> None:
        """One timer for all who wait."""
        if self._line_watch is None:
            self._look_at_line()

    def _look_at_line(self) -> None:
        self._line_watch = None
        patience = self.config.send_timeout_ms / 1000
        if self.in_flight.turn_away(self.instance.clock.monotonic(), patience):
            self._line_watch = asyncio.get_running_loop().call_later(
                patience / _LOOKS, self._look_at_line
            )

    # Callbacks

    def call_back(self, function: Callable[..., object], /, *args: object) -> None:
        """Have a callback called, which is in flight until then."""
        if self.thread.is_current:
            self._settling.call_back(function, args)
        else:
            self.in_flight.callback_asked()
            self._hand_over([(function, args)])

    def _hand_over(self, calls: Sequence[Call]) -> None:
        self.thread.call_back_all(calls, self._callback_called)

    def expect_callbacks(self) -> None:
        """Have the thread for callbacks run."""
        if not self._callbacks_expected:
            self.lifecycle.check_running()
            self.thread.expect_callbacks()
            self._callbacks_expected = True
