"""Hooks of the consumers: the user's own code around consuming, and in front of it.

Tracing, measuring and filtering stay out of the consumers this way. Follows ConsumeMessageHook and
FilterMessageHook of ``org.apache.rocketmq.client.hook``, and how DefaultMQPushConsumerImpl and
PullAPIWrapper call them: in the order they were registered, and what one raises is logged and
harms neither the messages nor the other hooks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from orbitmq.client.functions import check_plain_function
from orbitmq.client.namespace import NO_NAMESPACE, Namespace
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.consumer.consume")

CONSUME_CONTEXT_TYPE: Final = "ConsumeContextType"
"""The key in ``ConsumeMessageContext.props`` of how consuming ended, a ConsumeReturnType."""

_ContextT = TypeVar("_ContextT")

_ALLOWED: Final = "a plain method of a context"


class ConsumeReturnType(StrEnum):
    """How a listener ended. TIME_OUT: it took ``consume_timeout_ms`` or longer, whatever it said.

    RETURNNULL is for a listener of Java that returns null; here None means success.
    """

    SUCCESS = "SUCCESS"
    TIME_OUT = "TIME_OUT"
    EXCEPTION = "EXCEPTION"
    RETURNNULL = "RETURNNULL"
    FAILED = "FAILED"


@dataclass(slots=True)
class ConsumeMessageContext:
    """What a ConsumeMessageHook gets, the same object before and after.

    ``status`` and ``success`` are known after: the status as Java names it, such as
    ``CONSUME_SUCCESS`` or ``SUSPEND_CURRENT_QUEUE_A_MOMENT``. ``props`` then has, from a push
    consumer, CONSUME_CONTEXT_TYPE. ``trace_context`` is for the hooks, to keep what they like.
    """

    consumer_group: str
    message_queue: MessageQueue
    message_list: Sequence[MessageView]
    namespace: str = ""
    success: bool = False
    status: str | None = None
    props: dict[str, str] = field(default_factory=dict)
    trace_context: object = None


@dataclass(slots=True)
class FilterMessageContext:
    """What a FilterMessageHook gets: ``message_list`` is what is kept, to be changed in place."""

    consumer_group: str
    message_queue: MessageQueue
    message_list: list[MessageView]
    unit_mode: bool = False


class ConsumeMessageHook(Protocol):
    """Called around a listener, in its thread or on its loop; by ``poll`` around what it gives."""

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        """Messages are about to be consumed."""
        ...

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """They were, with ``context.status``."""
        ...


class FilterMessageHook(Protocol):
    """Called with what was pulled, on the client's private loop: it must not block."""

    def filter_message(self, context: FilterMessageContext) -> None:
        """Take out of ``context.message_list`` what is not wanted."""
        ...


class ConsumeHooks:
    """The hooks around consuming of one consumer; false while there are none. From any thread."""

    def __init__(self, group: str, namespace: Namespace) -> None:
        self._group = namespace.unwrap(group)
        self._namespace = namespace
        self._hooks: tuple[ConsumeMessageHook, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def register(self, hook: ConsumeMessageHook) -> None:
        """Have ``hook`` called after those registered before it."""
        check_plain_function("consume_message_before", hook.consume_message_before, _ALLOWED)
        check_plain_function("consume_message_after", hook.consume_message_after, _ALLOWED)
        self._hooks = (*self._hooks, hook)
        log.info("consumer %s: %r is called around consuming", self._group, hook)

    def before(self, queue: MessageQueue, messages: Sequence[MessageView]) -> ConsumeMessageContext:
        """Call them before ``messages`` are consumed; the context is for :meth:`after`."""
        namespace = self._namespace
        context = ConsumeMessageContext(
            self._group, namespace.unwrap_queue(queue), messages, namespace.name or ""
        )
        for hook in self._hooks:
            _call(hook.consume_message_before, context)
        return context

    def after(
        self,
        context: ConsumeMessageContext,
        status: str,
        *,
        success: bool,
        return_type: ConsumeReturnType | None = None,
    ) -> None:
        """Call them after that; ``status`` as Java names it."""
        context.status = status
        context.success = success
        if return_type is not None:
            context.props[CONSUME_CONTEXT_TYPE] = return_type.value
        for hook in self._hooks:
            _call(hook.consume_message_after, context)

    def polled(self, queue: MessageQueue, messages: Sequence[MessageView]) -> None:
        """Call them before and after at once, for messages given to whoever polls."""
        self.after(self.before(queue, messages), "CONSUME_SUCCESS", success=True)


class FilterHooks:
    """The filters of one consumer; false while there are none. From any thread."""

    def __init__(
        self, group: str, namespace: Namespace = NO_NAMESPACE, *, unit_mode: bool = False
    ) -> None:
        self._group = namespace.unwrap(group)
        self._namespace = namespace
        self._hooks: tuple[FilterMessageHook, ...] = ()
        self._unit_mode = unit_mode

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def register(self, hook: FilterMessageHook) -> None:
        """Have ``hook`` called after those registered before it."""
        check_plain_function("filter_message", hook.filter_message, _ALLOWED)
        self._hooks = (*self._hooks, hook)
        log.info("consumer %s: %r filters its messages", self._group, hook)

    def filter(self, queue: MessageQueue, messages: Iterable[MessageView]) -> list[MessageView]:
        """What is left of ``messages``, which get the names the user knows."""
        messages = list(messages)
        self._namespace.unwrap_messages(queue, messages)
        queue = self._namespace.unwrap_queue(queue)
        context = FilterMessageContext(self._group, queue, messages, self._unit_mode)
        for hook in self._hooks:
            _call(hook.filter_message, context)
        return list(context.message_list)


def _call(function: Callable[[_ContextT], None], context: _ContextT) -> None:
    try:
        function(context)
    except BaseException:  # as listeners: sys.exit() must not end what calls a hook
        log.exception("hook %r failed; it is passed over for this batch", function)
