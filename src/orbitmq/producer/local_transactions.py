"""Local transactions: the user's functions that carry one out, and know later how it ended.

They may be plain functions or coroutine functions. What they answer becomes a
LocalTransactionState; what raises, or answers something else, is UNKNOWN, and the log says why: the
broker asks again. Follows TransactionListener, and checkTransactionState and
sendMessageInTransaction of DefaultMQProducerImpl.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Final, TypeAlias

from orbitmq.client.functions import can_take, check_function, is_coroutine_function
from orbitmq.client.listener_loop import ListenerLoop
from orbitmq.client.runners import (
    Place,
    Runner,
    TaskRunner,
    ThreadRunner,
    ends_task,
    refuse_shutdown_in,
)
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.message import Message
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.producer.transactions")

_NOT_DONE: Final = "nobody answers brokers that ask about transactions"


class LocalTransactionState(Enum):
    """How a local transaction ended: its message is delivered, dropped, or asked about later.

    Java's names are COMMIT_MESSAGE, ROLLBACK_MESSAGE and UNKNOW.
    """

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


Answer: TypeAlias = LocalTransactionState | Awaitable[LocalTransactionState]
ExecuteFunction: TypeAlias = Callable[["TransactionMessage", Any], Answer]
"""``function(message, arg)``, plain or ``async``: carries out the local transaction."""
CheckFunction: TypeAlias = Callable[[MessageView], Answer]
"""``function(message)``, plain or ``async``: says how the local transaction ended."""
OnState: TypeAlias = Callable[[LocalTransactionState], None]


class TransactionMessage(Message):
    """The message of a transaction as ``execute_local_transaction`` gets it.

    It equals the one that was sent; ``transaction_id`` is what the transaction will be asked about
    by (:attr:`orbitmq.MessageView.transaction_id`).
    """

    __slots__ = ("transaction_id",)

    def __init__(self, message: Message, transaction_id: str) -> None:
        super().__init__(
            message.topic,
            message.body,
            **{name: getattr(message, name) for name in _KEPT},
        )
        self.transaction_id = transaction_id


_KEPT: Final = tuple(name for name in Message.__slots__ if name not in ("topic", "body"))


class LocalTransactions:
    """The user's two functions for the producers of ``group``; either may be missing.

    Coroutines run on ``loop``, or where that is None on a loop of their own; ``threads`` checks
    run at once, and ``hold_max`` wait at most. ConfigError for a function that cannot be called.
    """

    def __init__(
        self,
        group: str,
        execute: ExecuteFunction | None,
        check: CheckFunction | None,
        threads: int,
        hold_max: int,
    ) -> None:
        _check("execute_local_transaction", execute, 2, "a message and an argument")
        _check("check_local_transaction", check, 1, "a message")
        self.loop: asyncio.AbstractEventLoop | None = None
        self._group = group
        self._execute = execute
        self._checked_by = check
        self._threads = threads
        self._hold_max = hold_max
        self._held = 0
        self._counting = threading.Lock()
        self._plain: ThreadRunner | None = None
        self._tasks: TaskRunner | None = None
        self._own_loop: ListenerLoop | None = None

    # Life

    def open(self) -> None:
        """Make what they run in."""
        if self._checked_by is not None and not is_coroutine_function(self._checked_by):
            self._plain = ThreadRunner(self._threads, f"check-{self._group}")
        if any(map(is_coroutine_function, (self._execute, self._checked_by))):
            self._task_runner()

    async def stop(self) -> None:
        """Begin no more; what runs may end, but for coroutines on a loop of their own."""
        for runner in (self._plain, self._tasks):
            if runner is not None:
                runner.stop()
        if self._own_loop is not None:
            own_loop, self._own_loop = self._own_loop, None
            await own_loop.end()

    def refuse_shutdown_here(self) -> None:
        """Raise ClientStateError in one of these functions, which a shutdown would wait for."""
        places: list[Place] = [
            place for place in (self._plain, self._tasks, self._own_loop) if place is not None
        ]
        refuse_shutdown_in(places, f"producer {self._group!r}", "check_local_transaction")

    # To carry one out

    def execute(self, message: TransactionMessage, arg: object) -> LocalTransactionState:
        """Do so in this thread, or have a coroutine do it, and wait for the end."""
        function = self.executing()
        try:
            answer: object = function(message, arg)
            if inspect.isawaitable(answer):
                answer = self._task_runner().complete(_awaited(answer))
        except Exception as error:  # noqa: BLE001 - it is logged
            return _raised("execute_local_transaction", message.transaction_id, error)
        return _state(answer, "execute_local_transaction", message.transaction_id)

    async def execute_async(
        self, message: TransactionMessage, arg: object
    ) -> LocalTransactionState:
        """Do so in this task, or have a thread do it for a plain function."""
        function = self.executing()
        answer: object
        try:
            if is_coroutine_function(function):
                answer = function(message, arg)
            else:
                answer = await asyncio.to_thread(function, message, arg)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001 - it is logged
            return _raised("execute_local_transaction", message.transaction_id, error)
        return _state(answer, "execute_local_transaction", message.transaction_id)

    def executing(self) -> ExecuteFunction:
        """The function that does so; ClientStateError where there is none."""
        if self._execute is None:
            raise ClientStateError(
                f"producer {self._group!r} was given no execute_local_transaction: give it one, or "
                "use `with producer.transaction(message):`"
            )
        return self._execute

    # To say how one ended

    def check(self, message: MessageView, on_state: OnState) -> None:
        """Ask the user's function; ``on_state`` gets the answer, wherever that comes from."""
        function = self._checked_by
        if function is None:
            log.warning(
                "a broker asks producer %s how the transaction of message %s ended, and nobody "
                "knows: give it check_local_transaction",
                self._group, message.message_id,
            )  # fmt: skip
            return
        if not self._count(1):
            log.warning(
                "%d checks of producer %s wait already, one more is left out: it is asked again",
                self._hold_max, self._group,
            )  # fmt: skip
            return
        runner: Runner = self._plain if self._plain is not None else self._task_runner()
        runner.submit([_CheckJob(self, function, message, on_state)])

    def checked(self) -> None:
        """A check has ended."""
        self._count(-1)

    def complete(self, answer: Awaitable[Any]) -> object:
        """What an awaitable brings that a plain function answered; waits for it."""
        return self._task_runner().complete(_awaited(answer))

    def _count(self, by: int) -> bool:
        with self._counting:
            if by > 0 and self._held >= self._hold_max:
                return False
            self._held += by
            return True

    def _task_runner(self) -> TaskRunner:
        with self._counting:
            if self._tasks is None:
                loop = self.loop
                if loop is None:
                    self._own_loop = ListenerLoop(f"transactions-{self._group}")
                    loop = self._own_loop.loop
                self._tasks = TaskRunner(loop, self._threads, _NOT_DONE)
            return self._tasks


class _CheckJob:
    """One question of a broker."""

    void = False

    def __init__(
        self,
        owner: LocalTransactions,
        function: CheckFunction,
        message: MessageView,
        on_state: OnState,
    ) -> None:
        self._owner = owner
        self._function = function
        self._message = message
        self._on_state = on_state

    def __repr__(self) -> str:
        return f"the check of message {self._message.message_id}"

    def run(self) -> None:
        """Call a plain function."""
        try:
            answer: object = self._function(self._message)
            if inspect.isawaitable(answer):
                answer = self._owner.complete(answer)
            state = self._judged(answer)
        except BaseException as error:  # noqa: BLE001 - logged: sys.exit() ends no pool's thread
            state = self._raised(error)
        self._tell(state)

    async def run_async(self) -> None:
        """Await a coroutine function."""
        try:
            answer: object = self._function(self._message)
            state = self._judged(await answer if inspect.isawaitable(answer) else answer)
        except BaseException as error:
            if ends_task(asyncio.current_task(), error):
                self._owner.checked()
                raise
            state = self._raised(error)
        self._tell(state)

    def _judged(self, answer: object) -> LocalTransactionState:
        return _state(answer, "check_local_transaction", self._message.message_id)

    def _raised(self, error: BaseException) -> LocalTransactionState:
        return _raised("check_local_transaction", self._message.message_id, error)

    def _tell(self, state: LocalTransactionState) -> None:
        self._owner.checked()
        self._on_state(state)


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer


def _state(answer: object, function: str, transaction_id: str) -> LocalTransactionState:
    if isinstance(answer, LocalTransactionState):
        return answer
    log.error(
        "%s answered %r for transaction %s, which counts as UNKNOWN: answer a "
        "LocalTransactionState",
        function, answer, transaction_id,
    )  # fmt: skip
    return LocalTransactionState.UNKNOWN


def _raised(function: str, transaction_id: str, error: BaseException) -> LocalTransactionState:
    log.error(
        "%s failed for transaction %s, which is UNKNOWN now",
        function, transaction_id, exc_info=error,
    )  # fmt: skip
    return LocalTransactionState.UNKNOWN


def _check(name: str, function: object, count: int, what: str) -> None:
    if function is None:
        return
    allowed = f"a function, plain or async, of {what}"
    check_function(name, function, allowed)
    if isinstance(function, type) or not can_take(function, count):  # type: ignore[arg-type]
        raise ConfigError(name, function, allowed)
