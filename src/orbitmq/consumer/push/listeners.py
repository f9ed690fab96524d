"""Listeners: the user's functions that consume messages, and what they answer.

A function is called as it wants to be, with messages or with messages and context, and whatever it
answers or raises becomes a ConsumeStatus. Answers follow Java's ConsumeConcurrentlyStatus and
ConsumeOrderlyStatus, contexts the classes of the same names.
"""

from __future__ import annotations

import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.consumer.consume")

_MANY: Final = 99
_FAILED: Final = "listener %r failed on %d messages of %s, from offset %d on"


class ConsumeStatus(Enum):
    """What a listener says of the messages it got. None and True stand for SUCCESS.

    RECONSUME_LATER, or False: they failed and come again; in order the queue waits meanwhile,
    which is also called SUSPEND_CURRENT_QUEUE_A_MOMENT. COMMIT and ROLLBACK are for orderly
    listeners that set ``context.auto_commit = False``: what succeeded since the last COMMIT is
    then done, or comes again.
    """

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume later"
    SUSPEND_CURRENT_QUEUE_A_MOMENT = "suspend current queue a moment"
    COMMIT = "commit"
    ROLLBACK = "rollback"


class ConsumeConcurrentlyContext:
    """What a listener may say besides, when messages are consumed concurrently.

    ``ack_index``: messages up to this index succeeded, those after it failed (default: none
    failed). ``delay_level_when_next_consume``: after which delay those that failed come again: 1
    to 18 as the broker's levels, 0 as the broker sees fit, -1 never, to the dead-letter queue.
    ``raised`` says in a line what the listener raised, if it did.
    """

    __slots__ = ("ack_index", "delay_level_when_next_consume", "message_queue", "raised")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.ack_index: int | None = None
        self.delay_level_when_next_consume = 0
        self.raised: str | None = None


class ConsumeOrderlyContext:
    """What a listener may say besides, when messages are consumed in order.

    ``auto_commit``: False keeps what succeeds until it answers COMMIT or ROLLBACK.
    ``suspend_current_queue_time_ms``: how long the queue waits after a failure (default: as the
    consumer's setting). ``raised`` says in a line what the listener raised, if it did.
    """

    __slots__ = ("auto_commit", "message_queue", "raised", "suspend_current_queue_time_ms")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.auto_commit = True
        self.suspend_current_queue_time_ms: int | None = None
        self.raised: str | None = None


ConsumeContext: TypeAlias = ConsumeConcurrentlyContext | ConsumeOrderlyContext

ListenerFunction: TypeAlias = Callable[..., ConsumeStatus | bool | Awaitable[Any] | None]
"""``function(messages)`` or ``function(messages, context)``, plain or ``async``."""


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Whether calling ``function``, or the object that stands for one, gives a coroutine."""
    of_object = inspect.iscoroutinefunction(type(function).__call__)
    return of_object or inspect.iscoroutinefunction(function)


class Listener:
    """One function of the user's, called the way it wants to be."""

    __slots__ = ("_function", "_wants_context", "is_async")

    def __init__(self, function: ListenerFunction) -> None:
        self._function: Callable[..., Any] = function
        self._wants_context = _required_arguments(function) > 1
        self.is_async = is_coroutine_function(function)

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def call(self, messages: Sequence[MessageView], context: ConsumeContext) -> ConsumeStatus:
        """Have a plain function consume ``messages``; what it raises is a failure, logged."""
        try:
            return _status(self._function(*self._arguments(messages, context)))
        except BaseException as error:  # as Throwable in Java: sys.exit() must not end a thread
            context.raised = _described(error)
            log.exception(_FAILED, *self._told(messages, context))
            return ConsumeStatus.RECONSUME_LATER

    async def call_async(
        self, messages: Sequence[MessageView], context: ConsumeContext
    ) -> ConsumeStatus:
        """The same for a coroutine function; one that is cancelled stays so."""
        try:
            return _status(await self._function(*self._arguments(messages, context)))
        except Exception as error:
            context.raised = _described(error)
            log.exception(_FAILED, *self._told(messages, context))
            return ConsumeStatus.RECONSUME_LATER

    def _arguments(
        self, messages: Sequence[MessageView], context: ConsumeContext
    ) -> tuple[object, ...]:
        return (messages, context) if self._wants_context else (messages,)

    def _told(self, messages: Sequence[MessageView], context: ConsumeContext) -> tuple[object, ...]:
        return self, len(messages), context.message_queue, messages[0].queue_offset


def _status(answer: object) -> ConsumeStatus:
    if isinstance(answer, ConsumeStatus):
        return answer
    if answer is None or answer is True:
        return ConsumeStatus.SUCCESS
    if answer is False:
        return ConsumeStatus.RECONSUME_LATER
    raise TypeError(f"a listener returns None, a bool or a ConsumeStatus, not {answer!r}")


def _described(error: BaseException) -> str:
    """The error and where it was raised (UtilAll.exceptionSimpleDesc), without keeping either."""
    said = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said}, {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}"


def _required_arguments(function: Callable[..., object]) -> int:
    """How many positional arguments ``function`` must, or with ``*args`` may, be given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built-in functions have no signature
        return 1
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return _MANY
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(
        parameter.kind in positional
        and (parameter.default is parameter.empty or parameter.name == "context")
        for parameter in parameters
    )
