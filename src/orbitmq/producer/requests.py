"""Requests that wait for a reply: which there are, how one goes, and what comes back.

A request is a message like others that names the client it came from; the consumer sends its reply
to a topic of the cluster, and the broker that gets it pushes it to that client. Follows
RequestFutureHolder, DefaultMQProducerImpl.request and ClientRemotingProcessor. Lives on the private
loop.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import uuid
from collections.abc import Callable
from weakref import WeakKeyDictionary

from orbitmq import codes
from orbitmq.client.instance import ClientInstance
from orbitmq.codes import RequestCode
from orbitmq.errors import InvalidMessageError, OrbitMQError, ReplyTimeoutError, WireError
from orbitmq.message import Message, SendResult
from orbitmq.net.connection import Connection
from orbitmq.producer.sender import Deadline, Posted, Sender, Sink
from orbitmq.wire.command import RemotingCommand, encode_response
from orbitmq.wire.message_view import MessageView
from orbitmq.wire.properties import (
    CLUSTER,
    CORRELATION_ID,
    MESSAGE_TYPE,
    REPLY,
    REPLY_TO_CLIENT,
    TTL,
)
from orbitmq.wire.reply import ReplyMessageRequestHeader, reply_message

log = logging.getLogger("orbitmq.producer")

_GREETING_SECONDS = 0.5
"""How long a request waits for brokers to know this client, which they must for a reply."""

ReplyHandler = Callable[[MessageView], None]

_tables: WeakKeyDictionary[ClientInstance, Requests] = WeakKeyDictionary()


def request_properties(client_id: str, timeout_ms: int) -> dict[str, str]:
    """What makes a message a request (DefaultMQProducerImpl.prepareSendRequest)."""
    return {
        CORRELATION_ID: str(uuid.uuid4()),
        REPLY_TO_CLIENT: client_id,
        TTL: str(timeout_ms),
    }


def create_reply_message(request: MessageView, body: bytes) -> Message:
    """The reply to ``request``, for a producer to send (MessageUtil.createReplyMessage).

    Raises InvalidMessageError for a message that asks for no reply, or has no broker's mark.
    """
    asked = {name: request.property(name) for name in (CLUSTER, CORRELATION_ID, REPLY_TO_CLIENT)}
    missing = [name for name, value in asked.items() if not value]
    if missing:
        raise InvalidMessageError(
            f"{request!r} cannot be replied to, it has no property {missing[0]}: reply to what was "
            "sent by request()"
        )
    properties = {
        MESSAGE_TYPE: REPLY,
        CORRELATION_ID: asked[CORRELATION_ID] or "",
        REPLY_TO_CLIENT: asked[REPLY_TO_CLIENT] or "",
        TTL: request.property(TTL) or "",
    }
    return Message(f"{asked[CLUSTER]}_REPLY_TOPIC", body, properties=properties)


class Requests:
    """The requests of one client, by correlation id, for all its producers."""

    def __init__(self, instance: ClientInstance) -> None:
        self.greeted: set[str] = set()
        """The topics whose brokers have heard of this client."""
        self._clock = instance.clock
        self._waiting: dict[str, ReplyHandler] = {}
        instance.handle(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._replied)

    @classmethod
    def of(cls, instance: ClientInstance) -> Requests:
        """Those of ``instance``, which takes replies from now on."""
        table = _tables.get(instance)
        if table is None:
            table = _tables[instance] = cls(instance)
        return table

    def expect(self, correlation_id: str, on_reply: ReplyHandler) -> None:
        """Have ``on_reply`` get the reply."""
        self._waiting[correlation_id] = on_reply

    def forget(self, correlation_id: str) -> None:
        """Expect it no more."""
        self._waiting.pop(correlation_id, None)

    def _replied(self, command: RemotingCommand, connection: Connection) -> None:
        """Take a reply; one that nobody waits for any more is logged."""
        try:
            header = command.header(ReplyMessageRequestHeader)
            message = reply_message(header, bytes(command.body), self._clock.now_ms())
        except WireError as error:
            log.warning("a reply pushed by %s cannot be read: %s", connection.peer, error)
            _answer(command, connection, codes.SYSTEM_ERROR, "process reply message fail")
            return
        correlation_id = message.property(CORRELATION_ID) or ""
        on_reply = self._waiting.pop(correlation_id, None)
        if on_reply is None:
            log.warning(
                "the reply to request %s came from %s after its time-out, or to another",
                correlation_id,
                message.born_host,
            )
        else:
            on_reply(message)
        _answer(command, connection, codes.SUCCESS)


class Request:
    """One request on its way: a message that is sent, and the reply, which is its outcome.

    It takes room among what is in flight until then. ``sink`` gets a MessageView.
    """

    __slots__ = (
        "__weakref__",
        "_correlation_id",
        "_finished",
        "_make_sending",
        "_requests",
        "_sender",
        "_sent",
        "_sink",
        "_timer",
        "_topic",
        "deadline",
        "size",
    )

    def __init__(
        self,
        sender: Sender,
        requests: Requests,
        make_sending: Callable[[Sink, Deadline], Posted],
        sink: Sink,
        *,
        topic: str,
        correlation_id: str,
        size: int,
        deadline: Deadline,
    ) -> None:
        self.size = size
        """The bytes of its body."""
        self.deadline = deadline
        """When the reply must be there."""
        self._sender = sender
        self._requests = requests
        self._make_sending = make_sending
        self._sink = sink
        self._topic = topic
        self._correlation_id = correlation_id
        self._sent = False
        self._finished = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take the first step."""
        sender = self._sender
        sender.pending.add(self)
        if sender.abandoned is not None:
            self.abandon(sender.abandoned)
            return
        self._requests.expect(self._correlation_id, self._replied)
        left = self.deadline.at - sender.instance.clock.monotonic()
        self._timer = sender.loop.call_later(max(0.0, left), self._time_is_up)
        if self._topic in self._requests.greeted:
            self._send()
        else:
            sender.instance.spawn(self._greet_and_send())

    def abandon(self, error: OrbitMQError) -> None:
        """Let ``error`` be the outcome."""
        if self._end(arrived=False):
            self._sink.set_exception(copy.copy(error))

    # What becomes of the message that asks

    def set_result(self, _result: SendResult) -> None:
        """It was stored; the reply is still to come."""
        self._sent = True
        if self._timer is None:
            self._fail_late()

    def set_exception(self, error: BaseException) -> None:
        """It was not."""
        if self._end(arrived=False):
            self._sink.set_exception(error)

    async def _greet_and_send(self) -> None:
        """First have the brokers of the topic know this client: any of them may bring the reply."""
        sender = self._sender
        await sender.routes.wait_for(self._topic, self.deadline.at)
        greeting = asyncio.ensure_future(sender.instance.heartbeat())
        await asyncio.wait([greeting], timeout=_GREETING_SECONDS)
        self._requests.greeted.add(self._topic)
        self._send()

    def _send(self) -> None:
        if not self._finished:
            self._make_sending(self, self.deadline).start()

    # What becomes of the reply

    def _replied(self, message: MessageView) -> None:
        if self._end(arrived=True):
            message.topic = self._sender.namespace.unwrap(message.topic)
            self._sink.set_result(message)

    def _time_is_up(self) -> None:
        self._timer = None
        if self._sent:
            self._fail_late()  # else the message itself has an outcome now, which says more

    def _fail_late(self) -> None:
        if self._end(arrived=True):
            self._sender.failed += 1
            self._sink.set_exception(
                ReplyTimeoutError(
                    f"the request to topic {self._topic} was sent, but no reply came within "
                    f"{self.deadline.timeout_ms} ms; whether it was carried out is not known"
                )
            )

    def _end(self, *, arrived: bool) -> bool:
        """Whether it had no outcome yet."""
        if self._finished:
            return False
        self._finished = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._requests.forget(self._correlation_id)
        self._sender.ended(self, arrived)
        return True


def _answer(
    command: RemotingCommand, connection: Connection, code: int, remark: str | None = None
) -> None:
    if not command.is_oneway:
        connection.send(encode_response(command, code, remark=remark))
