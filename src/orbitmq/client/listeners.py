"""Listeners: the user's functions that consume messages, what they answer, and where they run.

A plain function runs in a pool of threads, a coroutine function as tasks of an event loop; never
on the client's private loop, which must not be kept waiting. Answers follow Java's
ConsumeConcurrentlyStatus and ConsumeOrderlyStatus, contexts the classes of the same names.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import Any, Final, Protocol, TypeAlias

from orbitmq.client.loop import Mailbox, new_event_loop
from orbitmq.message import MessageQueue
from orbitmq.wire.message_view import MessageView

log = logging.getLogger("orbitmq.client.consume")

_MANY: Final = 99
_TURN_SECONDS: Final = 0.005
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
    """

    __slots__ = ("ack_index", "delay_level_when_next_consume", "message_queue")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.ack_index: int | None = None
        self.delay_level_when_next_consume = 0


class ConsumeOrderlyContext:
    """What a listener may say besides, when messages are consumed in order.

    ``auto_commit``: False keeps what succeeds until it answers COMMIT or ROLLBACK.
    ``suspend_current_queue_time_ms``: how long the queue waits after a failure (default: as the
    consumer's setting).
    """

    __slots__ = ("auto_commit", "message_queue", "suspend_current_queue_time_ms")

    def __init__(self, message_queue: MessageQueue) -> None:
        self.message_queue = message_queue
        self.auto_commit = True
        self.suspend_current_queue_time_ms: int | None = None


ConsumeContext: TypeAlias = ConsumeConcurrentlyContext | ConsumeOrderlyContext

ListenerFunction: TypeAlias = Callable[..., ConsumeStatus | bool | Awaitable[Any] | None]
"""``function(messages)`` or ``function(messages, context)``, plain or ``async``."""


class Listener:
    """One function of the user's, called the way it wants to be."""

    __slots__ = ("_function", "_wants_context", "is_async")

    def __init__(self, function: ListenerFunction) -> None:
        self._function: Callable[..., Any] = function
        self._wants_context = _required_arguments(function) > 1
        call = function.__call__ if not inspect.isroutine(function) else function  # type: ignore[operator]
        self.is_async = inspect.iscoroutinefunction(call)

    def __repr__(self) -> str:
        return getattr(self._function, "__qualname__", repr(self._function))

    def call(self, messages: Sequence[MessageView], context: ConsumeContext) -> ConsumeStatus:
        """Have a plain function consume ``messages``; what it raises is a failure, logged."""
        try:
            return _status(self._function(*self._arguments(messages, context)))
        except BaseException:  # as Throwable in Java: sys.exit() must not end a thread of the pool
            log.exception(_FAILED, *self._told(messages, context))
            return ConsumeStatus.RECONSUME_LATER

    async def call_async(
        self, messages: Sequence[MessageView], context: ConsumeContext
    ) -> ConsumeStatus:
        """The same for a coroutine function; one that is cancelled stays so."""
        try:
            return _status(await self._function(*self._arguments(messages, context)))
        except Exception:
            log.exception(_FAILED, *self._told(messages, context))
            return ConsumeStatus.RECONSUME_LATER

    def _arguments(
        self, messages: Sequence[MessageView], context: ConsumeContext
    ) -> tuple[object, ...]:
        return (messages, context) if self._wants_context else (messages,)

    def _told(self, messages: Sequence[MessageView], context: ConsumeContext) -> tuple[object, ...]:
        return self, len(messages), context.message_queue, messages[0].queue_offset


class Job(Protocol):
    """Work for a listener."""

    def run(self) -> None:
        """Do it in this thread; for plain functions."""
        ...

    async def run_async(self) -> None:
        """Do it on this loop; for coroutine functions."""
        ...


class Runner(Protocol):
    """Where listeners run."""

    def submit(self, jobs: Iterable[Job]) -> None:
        """Have ``jobs`` run as soon as there is room, begun in this order. From any thread."""
        ...

    def stop(self) -> None:
        """Take no more; what runs may end."""
        ...


class ThreadRunner:
    """A pool of ``size`` threads, begun when needed. The one that was busy last is woken first.

    One thread is woken at a time, and wakes the next when there is more to do before it begins:
    listeners that wait for something have the whole pool at work at once, while listeners that
    only compute, of which Python runs one at a time, do not wake threads in vain.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._waking = False
        self._stopped = False

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue ``jobs``, and see to it that somebody does them."""
        with self._lock:
            self._jobs.extend(jobs)
            wake = self._next_to_wake()
        if wake is not None:
            wake()

    def stop(self) -> None:
        """Forget the jobs not begun; the threads end when they are idle."""
        with self._lock:
            self._stopped = True
            self._jobs.clear()
            idle, self._idle = self._idle, []
        for parked in idle:
            parked.release()

    def _next_to_wake(self) -> Callable[[], None] | None:
        """With the lock: what wakes or starts one more thread, if there is need and room."""
        if self._waking or not self._jobs:
            return None
        if self._idle:
            self._waking = True
            return self._idle.pop().release
        if self._threads < self._size:
            self._waking = True
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            return threading.Thread(target=self._work, name=name, daemon=True).start
        return None

    def _work(self) -> None:
        parked = threading.Lock()
        parked.acquire()
        woken = True
        while True:
            with self._lock:
                if woken:
                    self._waking = woken = False
                job = self._jobs.popleft() if self._jobs else None
                if job is None:
                    if self._stopped:
                        return
                    self._idle.append(parked)
                wake = self._next_to_wake()
            if wake is not None:
                wake()
            if job is None:
                parked.acquire()
                woken = True
            else:
                _run_logged(job)


class Turn:
    """How long a task has had its loop for itself: a listener may never wait for anything."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def end(self) -> None:
        """Let others have the loop, if it was long enough."""
        if time.monotonic() - self._began > _TURN_SECONDS:
            await asyncio.sleep(0)
            self._began = time.monotonic()


class TaskRunner:
    """Tasks of ``loop``, at most ``size`` at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, size: int) -> None:
        self._size = size
        self._loop = loop
        self._mailbox = Mailbox(loop)
        self._jobs: deque[Job] = deque()
        self._working = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, jobs: Iterable[Job]) -> None:
        """Hand ``jobs`` to the loop."""
        try:
            self._mailbox.post(self._start, list(jobs))
        except RuntimeError:
            log.warning("messages are not consumed: the event loop of their listener is closed")

    def stop(self) -> None:
        """Forget the jobs not begun; what runs may end."""
        self._jobs.clear()

    def _start(self, jobs: list[Job]) -> None:
        self._jobs.extend(jobs)
        for _ in range(min(len(jobs), self._size - self._working)):
            self._working += 1
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        turn = Turn()
        try:
            while self._jobs:
                job = self._jobs.popleft()
                try:
                    await job.run_async()
                except Exception:
                    log.exception("%r could not be done", job)
                await turn.end()
        finally:
            self._working -= 1  # at once, or a job that comes now would find nobody


class ListenerLoop:
    """An event loop on a thread of its own, for coroutine listeners of users who have none."""

    def __init__(self, name: str) -> None:
        self.loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; listeners still running are cancelled."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.get_loop()
            self.loop.run_forever()


def _run_logged(job: Job) -> None:
    try:
        job.run()
    except Exception:
        log.exception("%r could not be done", job)


def _status(answer: object) -> ConsumeStatus:
    if isinstance(answer, ConsumeStatus):
        return answer
    if answer is None or answer is True:
        return ConsumeStatus.SUCCESS
    if answer is False:
        return ConsumeStatus.RECONSUME_LATER
    raise TypeError(f"a listener returns None, a bool or a ConsumeStatus, not {answer!r}")


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
