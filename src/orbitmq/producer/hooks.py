"""Hooks of the producers: the user's own code around sending, and in front of it.

Measuring, tracing and forbidding stay out of the producers this way. Follows SendMessageHook,
CheckForbiddenHook and EndTransactionHook of ``org.apache.rocketmq.client.hook``, and how
DefaultMQProducerImpl calls them: in the order they were registered, around every attempt; what one
raises is logged and harms neither the message nor the other hooks, but for a CheckForbiddenHook,
which raises to forbid.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol, TypeAlias, TypeVar

from orbitmq.client.functions import check_plain_function
from orbitmq.client.namespace import Namespace
from orbitmq.message import Message, MessageQueue, SendResult
from orbitmq.wire import properties as names

log = logging.getLogger("orbitmq.producer")

_ContextT = TypeVar("_ContextT")
_ALLOWED = "a plain method of a context"

Sent: TypeAlias = Message | Sequence[Message]
"""What was given to ``send``: a message, or a batch."""


class CommunicationMode(Enum):
    """How the outcome of a send is waited for (Java's ``CommunicationMode``)."""

    SYNC = "SYNC"
    ASYNC = "ASYNC"
    ONEWAY = "ONEWAY"


class MessageType(IntEnum):
    """What kind of message it is, numbered as Java's ``MessageType``."""

    NORMAL = 0
    TRANSACTION_HALF = 1
    TRANSACTION_COMMIT = 2
    DELAY = 3
    ORDER = 4


@dataclass(slots=True)
class SendMessageContext:
    """What a SendMessageHook gets, the same object before and after one attempt.

    ``message`` is what was given to send. After, ``send_result`` says where it went, or
    ``exception`` why it did not; neither is there for a one-way send. ``trace_context`` and
    ``props`` are for the hooks, to keep what they like.
    """

    producer_group: str
    message: Sent
    message_ids: Sequence[str]
    message_queue: MessageQueue
    broker_addr: str
    communication_mode: CommunicationMode
    message_type: MessageType = MessageType.NORMAL
    namespace: str = ""
    send_result: SendResult | None = None
    exception: BaseException | None = None
    trace_context: object = None
    props: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class CheckForbiddenContext:
    """What a CheckForbiddenHook gets, before each attempt."""

    group: str
    message: Sent
    message_queue: MessageQueue
    broker_addr: str
    communication_mode: CommunicationMode
    name_server: str = ""
    unit_mode: bool = False


@dataclass(slots=True)
class EndTransactionContext:
    """What an EndTransactionHook gets.

    ``transaction_state`` is Java's name of it: COMMIT_MESSAGE, ROLLBACK_MESSAGE or UNKNOW;
    ``message`` is the one sent, or from a check the one received.
    """

    producer_group: str
    topic: str
    tags: str | None
    keys: str | None
    broker_addr: str
    message_id: str
    transaction_id: str | None
    transaction_state: str
    from_transaction_check: bool = False
    region_id: str | None = None
    message: object = None


class SendMessageHook(Protocol):
    """Called around each attempt of a send, on the client's private loop: it must not block."""

    def send_message_before(self, context: SendMessageContext) -> None:
        """A message is about to leave."""
        ...

    def send_message_after(self, context: SendMessageContext) -> None:
        """It was answered, or was not."""
        ...


class CheckForbiddenHook(Protocol):
    """Asked before each attempt of a send, on the client's private loop: it must not block."""

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        """Raise to forbid the send, which fails with just that."""
        ...


class EndTransactionHook(Protocol):
    """Called when the end of a transaction is told to a broker; it must not block."""

    def end_transaction(self, context: EndTransactionContext) -> None:
        """A transaction ends, or its state is not known."""
        ...


class ProducerHooks:
    """The hooks of one producer; false while there are none around sends. From any thread."""

    def __init__(
        self, group: str, namespace: Namespace, *, name_server: str = "", unit_mode: bool = False
    ) -> None:
        self.group = namespace.unwrap(group)
        self._namespace = namespace
        self._name_server = name_server
        self._unit_mode = unit_mode
        self._send: tuple[SendMessageHook, ...] = ()
        self._forbidding: tuple[CheckForbiddenHook, ...] = ()
        self._end_transaction: tuple[EndTransactionHook, ...] = ()
        self.around_sends = False
        """Whether any are called for a send."""

    def register_send(self, hook: SendMessageHook) -> None:
        """Have ``hook`` called after those registered before it."""
        check_plain_function("send_message_before", hook.send_message_before, _ALLOWED)
        check_plain_function("send_message_after", hook.send_message_after, _ALLOWED)
        self._send = (*self._send, hook)
        self.around_sends = True
        log.info("producer %s: %r is called around sends", self.group, hook)

    def register_check_forbidden(self, hook: CheckForbiddenHook) -> None:
        """Have ``hook`` asked after those registered before it."""
        check_plain_function("check_forbidden", hook.check_forbidden, _ALLOWED)
        self._forbidding = (*self._forbidding, hook)
        self.around_sends = True
        log.info("producer %s: %r may forbid sends", self.group, hook)

    def register_end_transaction(self, hook: EndTransactionHook) -> None:
        """Have ``hook`` called after those registered before it."""
        check_plain_function("end_transaction", hook.end_transaction, _ALLOWED)
        self._end_transaction = (*self._end_transaction, hook)
        log.info("producer %s: %r is called at the end of transactions", self.group, hook)

    def before_attempt(
        self,
        message: Sent,
        message_ids: Sequence[str],
        queue: MessageQueue,
        address: str,
        mode: CommunicationMode,
    ) -> SendMessageContext:
        """Ask and tell them before an attempt; the context is for :meth:`after_attempt`.

        Raises what a CheckForbiddenHook raises.
        """
        queue = self._namespace.unwrap_queue(queue)
        for asked in self._forbidding:
            asked.check_forbidden(
                CheckForbiddenContext(
                    self.group, message, queue, address, mode, self._name_server, self._unit_mode
                )
            )
        context = SendMessageContext(
            self.group,
            message,
            message_ids,
            queue,
            address,
            mode,
            message_type(message),
            self._namespace.name or "",
        )
        for hook in self._send:
            _call(hook.send_message_before, context)
        return context

    def after_attempt(
        self,
        context: SendMessageContext,
        result: SendResult | None,
        error: BaseException | None = None,
    ) -> None:
        """Tell them how it ended."""
        context.send_result = result
        context.exception = error
        for hook in self._send:
            _call(hook.send_message_after, context)

    def transaction_ended(self, context: EndTransactionContext) -> None:
        """Tell them of the end of a transaction."""
        for hook in self._end_transaction:
            _call(hook.end_transaction, context)


def message_type(message: Sent) -> MessageType:
    """What kind of message this is, as DefaultMQProducerImpl.sendKernelImpl tells its hooks."""
    if not isinstance(message, Message):
        return MessageType.NORMAL
    properties: Mapping[str, str] = message.properties or {}
    if message.delay_level > 0 or names.DELAY in properties:
        return MessageType.DELAY
    if properties.get(names.TRANSACTION_PREPARED) == "true":
        return MessageType.TRANSACTION_HALF
    return MessageType.NORMAL


def _call(function: Callable[[_ContextT], None], context: _ContextT) -> None:
    try:
        function(context)
    except BaseException:  # sys.exit() in a hook must not end the private loop
        log.exception("hook %r failed; the message goes on", function)
