"""One message on its way: the state machine of a send, shared by all ways of sending.

Route, queue, connection, request, answer, and another attempt where that may help: the rules of
DefaultMQProducerImpl.sendDefaultImpl and MQClientAPIImpl.processSendResponse, but that a broker
which cannot be reached is tried again as long as there is time. It waits nowhere; each step is
called by the one before or by the loop. Messages that one thread sends to a queue
keep their order while nothing fails, because each step keeps it.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.client.namespace import Namespace
from orbitmq.codes import RequestCode
from orbitmq.errors import (
    BrokerError,
    ConnectError,
    HeaderError,
    NetworkError,
    OrbitMQError,
    RequestTimeoutError,
)
from orbitmq.message import MessageQueue, SendResult, SendStatus
from orbitmq.net.connection import Connection
from orbitmq.producer.config import ProducerConfig
from orbitmq.producer.in_flight import InFlight
from orbitmq.producer.outgoing import Outgoing
from orbitmq.producer.publish import PublishInfo, PublishRoutes
from orbitmq.producer.unreachable import UnreachableBrokers
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import SendMessageResponseHeader
from orbitmq.wire.ids import java_hash
from orbitmq.wire.send_request import SendRequestTemplate

log = logging.getLogger("orbitmq.producer")

DEFAULT_REGION = "DefaultRegion"

_STORED = {
    codes.SUCCESS: SendStatus.SEND_OK,
    codes.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    codes.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    codes.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Deadline(NamedTuple):
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


class Sender:
    """What the messages of one producer need on their way."""

    def __init__(
        self,
        group: str,
        instance: ClientInstance,
        config: ProducerConfig,
        in_flight: InFlight,
        namespace: Namespace,
    ) -> None:
        self.instance = instance
        self.config = config
        self.in_flight = in_flight
        self.namespace = namespace
        self.routes = PublishRoutes(instance, config)
        self.unreachable = UnreachableBrokers()
        self.loop = asyncio.get_running_loop()
        self.failed = 0
        """Messages whose outcome was an error."""
        self.on_idle: Callable[[], object] | None = None
        """Called when none is pending any more."""
        self._group = group
        self._templates: dict[tuple[str, str, bool], SendRequestTemplate] = {}
        self.pending: set[Sending] = set()
        """What is on its way."""
        self.abandoned: OrbitMQError | None = None
        """Why nothing is sent any more."""

    def template(self, topic: str, broker_name: str, batch: bool) -> SendRequestTemplate:
        """The request to ``topic`` on a broker."""
        key = (topic, broker_name, batch)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendRequestTemplate(
                self._group,
                topic,
                broker_name,
                default_topic=self.config.create_topic_key,
                default_topic_queue_nums=self.config.default_topic_queue_nums,
                unit_mode=self.config.unit_mode,
                batch=batch,
                hook=self.instance.hook,
            )
        return template

    def ended(self, sending: Sending) -> None:
        """A message is no longer on its way."""
        self.pending.discard(sending)
        if self.on_idle is not None and not self.pending:
            self.on_idle()

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome of all that is on its way, and of what comes later."""
        self.abandoned = error
        for sending in list(self.pending):
            sending.abandon(error)


class Sending:
    """One message on its way.

    ``queue`` is the queue it must go to, if any: then it is sent once, as in Java. What it has
    of ``in_flight`` it gives back at the end.
    """

    __slots__ = (
        "__weakref__",
        "_attempts_left",
        "_broker",
        "_brokers",
        "_finished",
        "_oneway",
        "_outgoing",
        "_queue",
        "_refusal",
        "_sender",
        "_sink",
        "_stored",
        "_target",
        "_timer",
        "deadline",
        "size",
    )

    def __init__(
        self,
        sender: Sender,
        outgoing: Outgoing,
        sink: Sink,
        *,
        queue: MessageQueue | None,
        deadline: Deadline,
        retries: int,
        oneway: bool = False,
    ) -> None:
        self.size = len(outgoing.body)
        """The bytes of its body."""
        self.deadline = deadline
        """When it must have its outcome."""
        self._sender = sender
        self._outgoing = outgoing
        self._sink = sink
        self._queue = queue
        self._attempts_left = 1 if queue is not None or oneway else 1 + retries
        self._oneway = oneway
        self._refusal: NetworkError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._broker: str | None = None
        self._brokers: list[str] | None = None
        self._target: MessageQueue
        self._stored: SendResult | None = None
        self._finished = False

    def start(self) -> None:
        """Take the first step, on the private loop."""
        sender = self._sender
        sender.pending.add(self)
        if sender.abandoned is not None:
            self.abandon(sender.abandoned)
            return
        info = sender.routes.get(self._outgoing.topic)
        if info is not None:
            self._attempt(info)
        else:
            self._limit_wait()
            sender.routes.find(self._outgoing.topic, self.deadline.at, self._route_found)

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome."""
        self._end(arrived=False)
        self._sink.set_exception(copy.copy(error))

    def _route_found(self, outcome: PublishInfo | OrbitMQError) -> None:
        if self._finished:
            return
        if isinstance(outcome, PublishInfo):
            self._attempt(outcome)
        else:
            self._fail(copy.copy(outcome))  # many may wait for one route

    def _attempt(self, info: PublishInfo) -> None:
        sender = self._sender
        target = self._target = self._queue or self._select(info)
        broker = self._broker = target.broker_name
        refused = sender.unreachable.refused
        if refused and broker in refused and not self._oneway:
            self._limit_wait()
            sender.unreachable.wait(self._pause_over)
            return
        instance = sender.instance
        address = instance.send_address(broker)
        if address is None:
            self._attempts_left -= 1
            self._attempt_failed(
                ConnectError(f"no route names a master of broker {broker!r}", broker)
            )
            return
        connection = instance.pool.idle(address)
        if connection is not None:
            self._transmit(connection)
        else:
            self._limit_wait()
            instance.pool.acquire(address, self._connected)

    def _select(self, info: PublishInfo) -> MessageQueue:
        outgoing = self._outgoing
        if outgoing.sharding_key is not None:
            return info.queues[abs(_hash(outgoing.sharding_key)) % len(info.queues)]
        avoid = self._sender.unreachable.refused
        if self._broker is not None and not info.brokers <= avoid | {self._broker}:
            avoid |= {self._broker}
        return info.select(avoid)

    def _connected(self, connection: Connection | NetworkError) -> None:
        if self._finished:
            return
        if isinstance(connection, Connection):
            self._refusal = None
            self._sender.unreachable.reached(self._target.broker_name)
            self._transmit(connection)
        else:
            self._not_reached(copy.copy(connection))

    def _transmit(self, connection: Connection) -> None:
        sender = self._sender
        outgoing = self._outgoing
        queue = self._target
        left_ms = int((self.deadline.at - sender.instance.clock.monotonic()) * 1000)
        if left_ms <= 0:
            self._timed_out()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._attempts_left -= 1
        opaque = connection.next_opaque()
        try:
            head = sender.template(outgoing.topic, queue.broker_name, outgoing.batch).head(
                opaque,
                queue.queue_id,
                outgoing.sys_flag,
                sender.instance.clock.now_ms(),
                outgoing.flag,
                outgoing.properties,
                outgoing.body,
                oneway=self._oneway,
            )
        except (HeaderError, TypeError) as error:  # a field of the user's that is no header field
            self._fail(error)
            return
        if self._oneway:
            connection.send(head, outgoing.body)
            connection.when_writable(self._written)
            return
        limit = sender.config.send_max_timeout_per_request_ms
        if limit is not None and self._attempts_left:
            left_ms = min(left_ms, limit)
        connection.expect(opaque, RequestCode.SEND_MESSAGE_V2, self._answered, timeout_ms=left_ms)
        connection.send(head, outgoing.body)

    def _written(self) -> None:
        if self._finished:
            return
        self._end(arrived=True)
        self._sink.set_result(None)

    def _answered(self, answer: RemotingCommand | NetworkError) -> None:
        if self._finished:
            return
        if isinstance(answer, NetworkError):
            self._attempt_failed(self._explain(answer))
            return
        status = _STORED.get(answer.code)
        if status is None:
            address = self._sender.instance.routes.master_address(self._target.broker_name) or ""
            self._attempt_failed(self._sender.instance.error_of(answer, address))
            return
        try:
            result = self._result(status, answer)
        except HeaderError as error:
            self._fail(error)
            return
        if (
            status is not SendStatus.SEND_OK
            and self._attempts_left
            and self._sender.config.retry_another_broker_when_not_store_ok
        ):
            self._stored = result
            self._try_again(status.name)
            return
        self._end(arrived=True)
        self._sink.set_result(result)

    def _result(self, status: SendStatus, answer: RemotingCommand) -> SendResult:
        header = answer.header(SendMessageResponseHeader)
        queue = self._target
        if header.queue_id != queue.queue_id:
            queue = queue._replace(queue_id=header.queue_id)
        return SendResult(
            status,
            header.batch_uniq_id or self._outgoing.message_id,
            header.msg_id,
            self._sender.namespace.unwrap_queue(queue),
            header.queue_offset,
            header.transaction_id,
            header.msg_region or DEFAULT_REGION,
        )

    # Failure

    def _not_reached(self, error: NetworkError) -> None:
        """Try again while there is time: nothing was sent, so nothing can come twice."""
        if self._oneway:
            self._fail(error)
            return
        self._refusal = error
        self._sender.unreachable.add(self._target.broker_name, error)
        self._next_attempt()

    def _pause_over(self) -> None:
        if not self._finished:
            self._next_attempt()

    def _attempt_failed(self, error: NetworkError | BrokerError) -> None:
        again = isinstance(error, NetworkError) or (
            error.code in self._sender.config.retry_response_codes
        )
        in_time = self._sender.instance.clock.monotonic() < self.deadline.at
        if not (again and self._attempts_left and in_time):
            self._fail(error)
        elif isinstance(error, BrokerError) and error.refresh_route:
            self._try_again(str(error), refresh=True)
        else:
            self._try_again(str(error))

    def _try_again(self, reason: str, *, refresh: bool = False) -> None:
        topic = self._outgoing.topic
        log.warning("a message to topic %s is sent again: %s", topic, reason)
        if self._brokers is None:
            self._brokers = []
        self._brokers.append(self._target.broker_name)
        if refresh:
            self._limit_wait()
            self._sender.instance.spawn(self._refresh_then_attempt())
        else:
            self._next_attempt()

    async def _refresh_then_attempt(self) -> None:
        await self._sender.routes.refresh(self._outgoing.topic)
        if not self._finished:
            self._next_attempt()

    def _next_attempt(self) -> None:
        info = self._sender.routes.get(self._outgoing.topic)
        if info is not None:
            self._attempt(info)
        else:
            self._limit_wait()
            self._sender.routes.find(self._outgoing.topic, self.deadline.at, self._route_found)

    def _limit_wait(self) -> None:
        """Have the deadline end a wait for a route or a connection."""
        if self._timer is None:
            left = self.deadline.at - self._sender.instance.clock.monotonic()
            self._timer = self._sender.loop.call_later(left, self._timed_out)

    def _timed_out(self) -> None:
        topic = self._outgoing.topic
        found = self._sender.routes.error_of(topic)
        if found is not None:
            self._fail(copy.copy(found))
            return
        if self._refusal is not None:
            self._refusal.add_note(f"tried again and again for {self.deadline.timeout_ms} ms")
            self._fail(self._refusal)
            return
        if self._broker is None:
            servers = self._sender.instance.name_servers.addresses
            waited_for, address = f"the route of topic {topic} from {servers}", servers
        else:
            waited_for, address = f"broker {self._broker}, for topic {topic}", self._broker
        self._fail(
            RequestTimeoutError(
                f"waited {self.deadline.timeout_ms} ms in vain for {waited_for}", address
            )
        )

    def _explain(self, error: NetworkError) -> NetworkError:
        if not isinstance(error, RequestTimeoutError):
            return error
        return RequestTimeoutError(
            f"broker {self._target.broker_name} at {error.address} did not acknowledge a message "
            f"to topic {self._outgoing.topic} within {self.deadline.timeout_ms} ms; whether it "
            "stored it is not known",
            error.address,
        )

    def _fail(self, error: Exception) -> None:
        if self._stored is not None:
            self._end(arrived=True)
            self._sink.set_result(self._stored)
            return
        self._sender.failed += 1
        self._end(arrived=False)
        if self._brokers:
            sent_to = self._brokers
            if self._refusal is None:
                sent_to.append(self._target.broker_name)
            times = f"{len(sent_to)} times" if len(sent_to) > 1 else "once"
            error.add_note(f"sent {times}, to {', '.join(sent_to)}")
        self._sink.set_exception(error)

    def _end(self, *, arrived: bool) -> None:
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        sender = self._sender
        sender.in_flight.leave(self, arrived=arrived)
        sender.ended(self)


_hash = lru_cache(maxsize=8192)(java_hash)
