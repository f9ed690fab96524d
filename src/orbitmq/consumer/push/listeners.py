"""Listeners: the user's functions that consume messages, and what they answer.

A function is called as it wants to be, with messages or with messages and context, and whatever it
answers or raises becomes a ConsumeStatus. Answers follow Java's ConsumeConcurrentlyStatus and
ConsumeOrderlyStatus, contexts the classes of the same names.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from typing import Any, Final, TypeAlias

from orbitmq.client.functions import can_take, check_function, is_coroutine_function
from orbitmq.client.runners import ends_task
from orbitmq.errors import ConfigError
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.consumer.consume")

_ALLOWED: Final = "it must take messages, or messages and a context: function(messages, context)"
_INT32: Final = range(-(2**31), 2**31)
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

    __slots__ = ("_ack_index", "_delay_level", "message_queue", "raised")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.raised: str | None = None
        self._ack_index: int | None = None
        self._delay_level = 0

    @property
    def ack_index(self) -> int | None:
        """The index of the last message that succeeded; None for all."""
        return self._ack_index

    @ack_index.setter
    def ack_index(self, index: int | None) -> None:
        self._ack_index = None if index is None else _checked("ack_index", index)

    @property
    def delay_level_when_next_consume(self) -> int:
        """After which delay what failed comes again."""
        return self._delay_level

    @delay_level_when_next_consume.setter
    def delay_level_when_next_consume(self, level: int) -> None:
        self._delay_level = _checked("delay_level_when_next_consume", level)


class ConsumeOrderlyContext:
    """What a listener may say besides, when messages are consumed in order.

    ``auto_commit``: False keeps what succeeds until it answers COMMIT or ROLLBACK.
    ``suspend_current_queue_time_ms``: how long the queue waits after a failure (default: as the
    consumer's setting). ``raised`` says in a line what the listener raised, if it did.
    """

    __slots__ = ("_suspend_ms", "auto_commit", "message_queue", "raised")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.auto_commit = True
        self.raised: str | None = None
        self._suspend_ms: int | None = None

    @property
    def suspend_current_queue_time_ms(self) -> int | None:
        """How long the queue waits after a failure; None as the consumer's setting says."""
        return self._suspend_ms

    @suspend_current_queue_time_ms.setter
    def suspend_current_queue_time_ms(self, milliseconds: int | None) -> None:
        name = "suspend_current_queue_time_ms"
        self._suspend_ms = None if milliseconds is None else _checked(name, milliseconds)


ConsumeContext: TypeAlias = ConsumeConcurrentlyContext | ConsumeOrderlyContext

ListenerFunction: TypeAlias = Callable[..., ConsumeStatus | bool | Awaitable[Any] | None]
"""``function(messages)`` or ``function(messages, context)``, plain or ``async``."""

Complete: TypeAlias = Callable[[Coroutine[Any, Any, ConsumeStatus]], ConsumeStatus]
"""Runs a coroutine on a loop, and waits for it."""

_PLAIN_ANSWERS: Final = (type(None), bool, ConsumeStatus)


class Listener:
    """One function of the user's, called the way it wants to be.

    ConfigError, naming the function, for one that cannot be called with messages, or with messages
    and context. Where a plain function answers an awaitable, ``complete`` has a coroutine, which
    awaits it, run on a loop, and waits for the outcome; by default on a loop in this thread.
    """

    __slots__ = ("_complete", "_function", "_wants_context", "is_async")

    def __init__(self, function: ListenerFunction, complete: Complete = asyncio.run) -> None:
        check_function("listener", function, _ALLOWED)
        if isinstance(function, type):
            raise ConfigError("listener", function, f"{_ALLOWED}; give an object of this class")
        self._function: Callable[..., Any] = function
        self._complete = complete
        self._wants_context = _wants_context(function)
        self.is_async = is_coroutine_function(function)

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def call(self, messages: Sequence[MessageView], context: ConsumeContext) -> ConsumeStatus:
        """Have a plain function consume ``messages``; what it raises is a failure, logged."""
        answer: object = None
        try:
            answer = self._ask(messages, context)
            if answer is None:
                return ConsumeStatus.SUCCESS
            if not isinstance(answer, _PLAIN_ANSWERS) and isinstance(answer, Awaitable):
                return self._complete(self._awaited(answer, messages, context))
            return _status(answer)
        except BaseException as error:  # noqa: BLE001 - as Throwable in Java, for sys.exit()
            if inspect.iscoroutine(answer):
                answer.close()  # its loop is closed, so it never ran
            return self._failed(error, messages, context)

    async def call_async(
        self, messages: Sequence[MessageView], context: ConsumeContext
    ) -> ConsumeStatus:
        """The same for a coroutine function. A task that is cancelled from outside stays so."""
        answer = self._ask(messages, context)
        return await self._awaited(answer, messages, context)

    async def _awaited(
        self, answer: Awaitable[Any], messages: Sequence[MessageView], context: ConsumeContext
    ) -> ConsumeStatus:
        task = asyncio.current_task()
        try:
            return _status(await answer)
        except BaseException as error:  # asyncio ends a loop whose task raises SystemExit
            if ends_task(task, error):
                raise
            return self._failed(error, messages, context)

    def _failed(
        self, error: BaseException, messages: Sequence[MessageView], context: ConsumeContext
    ) -> ConsumeStatus:
        context.raised = _described(error)
        count, first = len(messages), messages[0].queue_offset
        log.error(_FAILED, self, count, context.message_queue, first, exc_info=error)
        return ConsumeStatus.RECONSUME_LATER

    def _ask(self, messages: Sequence[MessageView], context: ConsumeContext) -> Any:
        if self._wants_context:
            return self._function(messages, context)
        return self._function(messages)


def _checked(name: str, value: object) -> int:
    """ConfigError, in the listener, for what would fail when it has ended."""
    if not isinstance(value, int) or not _INT32.start <= value < _INT32.stop:
        raise ConfigError(f"context.{name}", value, "a whole number of 32 bits")
    return value


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


def _wants_context(function: Callable[..., object]) -> bool:
    """Whether ``function`` must be given a context, or may be: as ``context``, or in ``*args``."""
    one, two = can_take(function, 1), can_take(function, 2)
    if not (one or two):
        raise ConfigError("listener", function, _ALLOWED)
    if not (one and two):
        return two
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built-in functions may have no signature
        return False
    kinds = {parameter.kind for parameter in parameters[:2]}
    return inspect.Parameter.VAR_POSITIONAL in kinds or parameters[1].name == "context"
