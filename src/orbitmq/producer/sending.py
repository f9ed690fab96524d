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
from functools import lru_cache
from typing import Final

from msgspec import Struct

from orbitmq import codes
from orbitmq.client.mailbox import Waiter
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
from orbitmq.producer.fault_strategy import FaultStrategy
from orbitmq.producer.hooks import CommunicationMode, SendMessageContext, Sent
from orbitmq.producer.outgoing import Outgoing
from orbitmq.producer.publish import PublishInfo
from orbitmq.producer.sender import Deadline, Sender, Sink
from orbitmq.wire.command import RemotingCommand
from orbitmq.wire.headers import SendMessageResponseHeader
from orbitmq.wire.ids import java_hash

log = logging.getLogger("orbitmq.producer")

DEFAULT_REGION = "DefaultRegion"

_NOWHERE: Final = MessageQueue("", "", -1)
_result_of: Final = tuple.__new__  # SendResult(...) takes three times as long

_STORED = {
    codes.SUCCESS: SendStatus.SEND_OK,
    codes.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    codes.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    codes.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


class Sending(Struct, eq=False, weakref=True):
    """One message on its way.

    What it has of ``in_flight`` it gives back at the end. A Struct, because one is made for each
    message.
    """

    sender: Sender
    outgoing: Outgoing
    sink: Sink
    """Gets the outcome."""
    queue: MessageQueue | None
    """The queue it must go to, if any: then it is sent once, as in Java."""
    deadline: Deadline
    """When it must have its outcome."""
    retries: int = 0
    """How often it is sent again at most."""
    oneway: bool = False
    """Whether nobody is to answer: then it is sent once, too."""
    _attempts: int = 0
    _target: MessageQueue = _NOWHERE
    _broker: str | None = None
    _sent_at: float = 0.0
    _finished: bool = False
    _timer: asyncio.TimerHandle | None = None
    _context: SendMessageContext | None = None
    _brokers: list[str] | None = None
    _refusal: NetworkError | None = None
    _stored: SendResult | None = None

    def __repr__(self) -> str:
        return f"<Sending {self.outgoing.message_id} to {self.outgoing.topic}>"  # not its body

    @property
    def size(self) -> int:
        """The bytes of its body."""
        return len(self.outgoing.body)

    @property
    def _may_try_again(self) -> bool:
        return self._attempts <= self.retries and self.queue is None and not self.oneway

    def start(self) -> None:
        """Take the first step, on the private loop."""
        sender = self.sender
        sender.pending.add(self)
        if sender.abandoned is not None:
            self.abandon(sender.abandoned)
            return
        info = sender.routes.get(self.outgoing.topic)
        if info is not None:
            self._attempt(info)
        else:
            self._next_attempt()

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome."""
        self._tell_hooks(None, error)
        self._end(False)
        self.sink.set_exception(copy.copy(error))

    def _route_found(self, outcome: PublishInfo | OrbitMQError) -> None:
        if self._finished:
            return
        if isinstance(outcome, PublishInfo):
            self._attempt(outcome)
        else:
            self._fail(copy.copy(outcome))  # many may wait for one route

    def _attempt(self, info: PublishInfo) -> None:
        sender = self.sender
        target = self._target = self.queue or self._select(info)
        broker = self._broker = target.broker_name
        refused = sender.unreachable.refused
        if refused and broker in refused and not self.oneway:
            self._limit_wait()
            sender.unreachable.wait(self._pause_over)
            return
        instance = sender.instance
        address = instance.send_address(broker)
        if address is None:
            self._attempts += 1
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
        outgoing = self.outgoing
        if outgoing.sharding_key is not None:
            return info.queues[abs(_hash(outgoing.sharding_key)) % len(info.queues)]
        avoid = self.sender.unreachable.refused
        faults = self.sender.faults
        if faults is not None:
            now = self.sender.instance.clock.monotonic() * 1000
            chosen = faults.choose(info.brokers, self._broker, now)
            return info.select_among(chosen - avoid or chosen, anew=self._broker is not None)
        if self._broker is not None and not info.brokers <= avoid | {self._broker}:
            avoid |= {self._broker}
        return info.select(avoid)

    def _connected(self, connection: Connection | NetworkError) -> None:
        if self._finished:
            return
        if isinstance(connection, Connection):
            self._refusal = None
            self.sender.unreachable.reached(self._target.broker_name)
            self._transmit(connection)
        else:
            self._not_reached(copy.copy(connection))

    def _transmit(self, connection: Connection) -> None:
        sender = self.sender
        outgoing = self.outgoing
        queue = self._target
        now = self._sent_at = sender.instance.clock.monotonic()
        left_ms = int((self.deadline.at - now) * 1000)
        if left_ms <= 0:
            self._timed_out()
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._attempts += 1
        if outgoing.given is not None and not self._pass_hooks(outgoing.given):
            return
        opaque = connection.next_opaque()
        try:
            head = sender.template(outgoing, queue.broker_name).head(
                opaque,
                queue.queue_id,
                outgoing.sys_flag,
                sender.instance.clock.now_ms(),
                outgoing.flag,
                outgoing.properties,
                outgoing.body,
                self.oneway,
            )
        except (HeaderError, TypeError) as error:  # a field of the user's that is no header field
            self._fail(error)
            return
        if self.oneway:
            connection.send(head, outgoing.body)
            connection.when_writable(self._written)
            return
        limit = sender.config.send_max_timeout_per_request_ms
        if limit is not None and self._may_try_again:
            left_ms = min(left_ms, limit)
        connection.expect(opaque, outgoing.code, self._answered, left_ms)
        connection.send(head, outgoing.body)

    def _written(self) -> None:
        if self._finished:
            return
        self._tell_hooks(None)
        self._end(True)
        self.sink.set_result(None)

    def _answered(self, answer: RemotingCommand | NetworkError) -> None:
        if self._finished:
            return
        if self.sender.faults is not None:
            self._note(self.sender.faults, answer)
        if isinstance(answer, NetworkError):
            self._attempt_failed(self._explain(answer))
            return
        status = _STORED.get(answer.code)
        if status is None:
            address = self.sender.instance.routes.master_address(self._target.broker_name) or ""
            self._attempt_failed(self.sender.instance.error_of(answer, address))
            return
        try:
            result = self._result(status, answer)
        except HeaderError as error:
            self._tell_hooks(None, error)
            self._fail(error)
            return
        if self._context is not None:
            self._tell_hooks(result)
        if (
            status is not SendStatus.SEND_OK
            and self._may_try_again
            and self.sender.config.retry_another_broker_when_not_store_ok
        ):
            self._stored = result
            self._try_again(status.name)
            return
        self._end(True)
        self.sink.set_result(result)

    def _result(self, status: SendStatus, answer: RemotingCommand) -> SendResult:
        header = answer.header(SendMessageResponseHeader)
        queue, namespace = self._target, self.sender.namespace
        if header.queue_id != queue.queue_id:
            queue = queue._replace(queue_id=header.queue_id)
        return _result_of(
            SendResult,
            (
                status,
                header.batch_uniq_id or self.outgoing.message_id,
                header.msg_id,
                queue if namespace.name is None else namespace.unwrap_queue(queue),
                header.queue_offset,
                header.transaction_id,
                header.msg_region or DEFAULT_REGION,
                header.trace_on != "false",
                header.recall_handle,
            ),
        )

    def _note(self, faults: FaultStrategy, answer: RemotingCommand | NetworkError) -> None:
        """Note how the broker did (DefaultMQProducerImpl.updateFaultItem)."""
        broker = self._target.broker_name
        now = self.sender.instance.clock.monotonic()
        if isinstance(answer, NetworkError):
            faults.unreachable(broker, now * 1000)
        elif answer.code in _STORED:
            faults.answered(broker, (now - self._sent_at) * 1000, now * 1000)
        else:
            faults.refused(broker, now * 1000)

    # Hooks

    def _pass_hooks(self, given: Sent) -> bool:
        """Whether this attempt may be made; if not, the message has failed."""
        sender, queue = self.sender, self._target
        try:
            self._context = sender.hooks.before_attempt(
                given,
                self.outgoing.message_id.split(","),
                queue,
                sender.instance.send_address(queue.broker_name) or "",
                self._mode(),
            )
        except Exception as error:  # noqa: BLE001 - a hook's own words are the outcome
            self._fail(error)
            return False
        return True

    def _mode(self) -> CommunicationMode:
        if self.oneway:
            return CommunicationMode.ONEWAY
        waits = isinstance(self.sink, Waiter)
        return CommunicationMode.SYNC if waits else CommunicationMode.ASYNC

    def _tell_hooks(self, result: SendResult | None, error: BaseException | None = None) -> None:
        context, self._context = self._context, None
        if context is not None:
            self.sender.hooks.after_attempt(context, result, error)

    # Failure

    def _not_reached(self, error: NetworkError) -> None:
        """Try again while there is time: nothing was sent, so nothing can come twice."""
        if self.oneway:
            self._fail(error)
            return
        self._refusal = error
        if self.sender.faults is not None:
            self._note(self.sender.faults, error)
        self.sender.unreachable.add(self._target.broker_name, error)
        self._next_attempt()

    def _pause_over(self) -> None:
        if not self._finished:
            self._next_attempt()

    def _attempt_failed(self, error: NetworkError | BrokerError) -> None:
        self._tell_hooks(None, error)
        again = isinstance(error, NetworkError) or (
            error.code in self.sender.config.retry_response_codes
        )
        in_time = self.sender.instance.clock.monotonic() < self.deadline.at
        if not (again and self._may_try_again and in_time):
            self._fail(error)
        elif isinstance(error, BrokerError) and error.refresh_route:
            self._try_again(str(error), refresh=True)
        else:
            self._try_again(str(error))

    def _try_again(self, reason: str, *, refresh: bool = False) -> None:
        topic = self.outgoing.topic
        log.warning("a message to topic %s is sent again: %s", topic, reason)
        if self._brokers is None:
            self._brokers = []
        self._brokers.append(self._target.broker_name)
        if refresh:
            self._limit_wait()
            self.sender.instance.spawn(self._refresh_then_attempt())
        else:
            self._next_attempt()

    async def _refresh_then_attempt(self) -> None:
        await self.sender.routes.refresh(self.outgoing.topic)
        if not self._finished:
            self._next_attempt()

    def _next_attempt(self) -> None:
        info = self.sender.routes.get(self.outgoing.topic)
        if info is not None:
            self._attempt(info)
        else:
            self._limit_wait()
            self.sender.routes.find(self.outgoing.topic, self.deadline.at, self._route_found)

    def _limit_wait(self) -> None:
        """Have the deadline end a wait for a route or a connection."""
        if self._timer is None:
            left = self.deadline.at - self.sender.instance.clock.monotonic()
            self._timer = self.sender.loop.call_later(left, self._timed_out)

    def _timed_out(self) -> None:
        topic = self.outgoing.topic
        found = self.sender.routes.error_of(topic)
        if found is not None:
            self._fail(copy.copy(found))
            return
        if self._refusal is not None:
            self._refusal.add_note(f"tried again and again for {self.deadline.timeout_ms} ms")
            self._fail(self._refusal)
            return
        if self._broker is None:
            servers = self.sender.instance.name_servers.addresses
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
            f"to topic {self.outgoing.topic} within {self.deadline.timeout_ms} ms; whether it "
            "stored it is not known",
            error.address,
        )

    def _fail(self, error: Exception) -> None:
        if self._stored is not None:
            self._end(True)
            self.sink.set_result(self._stored)
            return
        self.sender.failed += 1
        self._end(False)
        if self._brokers:
            sent_to = self._brokers
            if self._refusal is None:
                sent_to.append(self._target.broker_name)
            times = f"{len(sent_to)} times" if len(sent_to) > 1 else "once"
            error.add_note(f"sent {times}, to {', '.join(sent_to)}")
        self.sink.set_exception(error)

    def _end(self, arrived: bool) -> None:
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.sender.ended(self, arrived)


_hash = lru_cache(maxsize=8192)(java_hash)
