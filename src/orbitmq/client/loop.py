"""The private loop: the one thread of a process on which all its clients live.

A user's own thread or loop may block for as long as it likes without costing a heartbeat or a
queue lock. Both directions cross the threads in one way, a Mailbox: any number of calls for one
wake-up of the loop that shall run them. Code of the user's never runs on the private loop;
callbacks of sends run on a thread of their own.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from queue import SimpleQueue
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from orbitmq.client.background import Background
from orbitmq.client.mailbox import Mailbox, Waiter
from orbitmq.errors import ClientStateError

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

Undo: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Takes back what a coroutine did that nobody waits for any more."""

Drain: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Waits for what is on its way, at the end of the process."""

Call: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]
"""A function and what it is called with."""

_Callbacks: TypeAlias = tuple[Sequence[Call], Callable[[], object] | None]

_FORKED: Final = (
    "this client was made before the process was forked, and its thread stayed with the parent; "
    "make a new client in the child"
)
_ENDED: Final = (
    "the process ends, and OrbitMQ has ended with it; shut clients down before, or use them in a "
    "with statement"
)
_STOP_SECONDS: Final = 5.0
_TURNS_TO_CLOSE: Final = 5
"""Turns of the loop that a transport takes at most from its close to its end."""


class Client(Protocol):
    """What the private loop asks of a client that runs."""

    def loop_ends(self, error: ClientStateError) -> None:
        """Give ``error`` to whoever waits for an outcome; on the loop, for the last time."""
        ...

    def left_running(self) -> None:
        """Tell that it was not shut down; the loop has ended with the process."""
        ...


class Sink(Protocol[T_contra]):
    """Where the outcome of a call goes."""

    def set_result(self, result: T_contra) -> None:
        """It is this."""
        ...

    def set_exception(self, error: BaseException) -> None:
        """There is none."""
        ...


class LoopThread:
    """The thread that runs the private loop. Use :func:`loop_thread`, not this class."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self.gone: str | None = None
        """Why nothing works any more; None while it does."""
        self.clients: set[Client] = set()
        """Those that were started and not shut down."""
        self._mailbox = Mailbox(self.loop)
        self._homes: dict[asyncio.AbstractEventLoop, Mailbox] = {}
        self._callbacks: SimpleQueue[_Callbacks | None] = SimpleQueue()
        self._callback_thread: threading.Thread | None = None
        self.callbacks_called = 0
        """How many have returned, of all clients."""
        self._drains: dict[object, tuple[Drain, float]] = {}
        self._thread = threading.Thread(target=self._run, name="orbitmq-client", daemon=True)
        self._thread.start()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have the private loop call ``function(*args)``; the calls of a thread keep their order.

        Raises ClientStateError in a process forked after the thread was started, and when the
        process ends.
        """
        if self.gone is not None:
            raise ClientStateError(self.gone)
        try:
            self._mailbox.put(function, args)
        except RuntimeError:
            if self.gone is None:
                raise
            raise ClientStateError(self.gone) from None  # the loop was closed just now

    def run(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_seconds: float | None = None,
        *,
        undo: Undo | None = None,
        keep: bool = False,
    ) -> T:
        """Run ``coroutine`` on the private loop and wait for its result.

        Ctrl-C, and the end of ``timeout_seconds`` (TimeoutError), cancel it; or, with ``undo``,
        have that run as soon as the coroutine has ended well; or, with ``keep``, it runs on.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientStateError(
                "a blocking call on OrbitMQ's own thread would wait for itself; "
                "use the asynchronous client there"
            )
        waiter: Waiter[T] = Waiter()
        call = _Call(self, coroutine, waiter, undo, keep=keep)
        try:
            call.begin()
            return waiter.wait(timeout_seconds)
        except BaseException:
            call.abandon()
            raise

    async def run_async(
        self, coroutine: Coroutine[Any, Any, T], *, undo: Undo | None = None, keep: bool = False
    ) -> T:
        """Run ``coroutine`` on the private loop, awaited on the caller's own loop.

        A cancelled caller cancels it, has it undone or runs it on, as in :meth:`run`; else a
        result that came too late for that is lost.
        """
        if asyncio.get_running_loop() is self.loop:
            return await coroutine
        answer: Answer[T] = self.answer_to_running_loop()
        call = _Call(self, coroutine, answer, undo, keep=keep)
        try:
            call.begin()
            return await answer.future
        except BaseException:
            call.abandon()
            raise

    def answer_to_running_loop(self) -> Answer[Any]:
        """What the private loop gives a result to, for the running loop to await."""
        home = asyncio.get_running_loop()
        mailbox = self._homes.get(home)
        if mailbox is None:
            for other in list(self._homes):
                if other.is_closed():
                    self._homes.pop(other, None)
            mailbox = self._homes[home] = Mailbox(home)
        return Answer(home.create_future(), mailbox)

    def call_back(self, function: Callable[..., object], /, *args: Any) -> None:
        """Have the callback thread call ``function(*args)``; what it raises is logged.

        Callbacks run one after the other, in the order asked for.
        """
        self.call_back_all([(function, args)])

    def call_back_all(
        self, calls: Sequence[Call], then: Callable[[], object] | None = None
    ) -> None:
        """As :meth:`call_back`, for all ``calls``; ``then`` is called after each in any case."""
        if self._callback_thread is None:
            self.expect_callbacks()
        self._callbacks.put((calls, then))

    def expect_callbacks(self) -> None:
        """Have the thread for them run: at the end of the process it is too late to start it."""
        if self._callback_thread is None and self.gone is None:
            self.post(self._start_callback_thread)  # there, where no signal interrupts it

    @property
    def is_current(self) -> bool:
        """Whether the caller is on the private loop."""
        return threading.get_ident() == self._thread.ident

    @property
    def on_callback_thread(self) -> bool:
        """Whether the caller is a callback."""
        return threading.current_thread() is self._callback_thread

    def at_exit(self, drain: Drain, timeout_seconds: float) -> Callable[[], None]:
        """Have ``drain()`` run on the private loop when the process ends without a shutdown.

        All drains run at once, while calls and callbacks still work; one is cancelled after its
        ``timeout_seconds``. What is returned takes it back. Any thread may call both.
        """
        key = object()
        self._drains[key] = (drain, timeout_seconds)

        def take_back() -> None:
            self._drains.pop(key, None)

        return take_back

    def stop(self) -> None:
        """End both threads, once the drains have run; what else runs on the loop is cancelled.

        Nothing works afterwards.
        """
        try:
            if self._drains and self._thread.is_alive():
                self.run(self._run_drains())
        finally:
            self.gone = _ENDED
            if self._thread.is_alive():
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join(_STOP_SECONDS)
            self._callbacks.put(None)
        with contextlib.ExitStack() as each:  # also where warnings are errors
            for client in list(self.clients):
                each.callback(client.left_running)

    async def _run_drains(self) -> None:
        _resolve_names_here(self.loop)
        drains = list(self._drains.values())
        await asyncio.gather(*(_run_drain(drain, seconds) for drain, seconds in drains))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            for client in list(self.clients):
                client.loop_ends(ClientStateError(self.gone))
            self.loop.run_until_complete(_end_tasks(self.loop))
            self.loop.close()
            self._mailbox.work_off_when_closed()

    def _start_callback_thread(self) -> None:
        if self._callback_thread is None:
            self._callback_thread = threading.Thread(
                target=self._run_callbacks, name="orbitmq-callbacks", daemon=True
            )
            self._callback_thread.start()

    def _run_callbacks(self) -> None:
        while (asked := self._callbacks.get()) is not None:
            calls, then = asked
            for function, args in calls:
                try:
                    function(*args)
                except BaseException:  # also sys.exit(): the others' callbacks go on
                    log.exception("a callback failed: %r", function)
                self.callbacks_called += 1
                if then is not None:
                    then()


class Answer(Generic[T]):
    """A result on its way from the private loop to a future on a loop of the user's."""

    __slots__ = ("_mailbox", "future")

    def __init__(self, future: asyncio.Future[T], mailbox: Mailbox) -> None:
        self.future = future
        self._mailbox = mailbox

    def set_result(self, result: T) -> None:
        """Give the result; called on the private loop."""
        try:
            self._mailbox.post(_set_result, self.future, result)
        except RuntimeError:
            _came_too_late(result)

    def set_exception(self, error: BaseException) -> None:
        """Give the error."""
        try:
            self._mailbox.post(_set_exception, self.future, error)
        except RuntimeError:
            _came_too_late(error)


class _Call(Generic[T]):
    """A coroutine run as a task of the private loop, its outcome handed to whoever asked.

    Whoever asked may be interrupted at any moment: then it says that it has gone, without knowing
    how far things got. The mailbox keeps the order, so the loop knows.
    """

    __slots__ = ("_coroutine", "_keep", "_sink", "_task", "_thread", "_undo")

    def __init__(
        self,
        thread: LoopThread,
        coroutine: Coroutine[Any, Any, T],
        sink: Sink[T],
        undo: Undo | None,
        *,
        keep: bool,
    ) -> None:
        self._thread = thread
        self._coroutine = coroutine
        self._sink = sink
        self._undo = undo
        self._keep = keep
        self._task: asyncio.Task[T] | None = None

    def begin(self) -> None:
        """Have it run."""
        self._thread.post(self._start)

    def abandon(self) -> None:
        """Nobody wants the outcome any more; from any thread."""
        try:
            self._thread.post(self._abandon)
        except ClientStateError:
            if self._task is None:
                self._coroutine.close()

    def _start(self) -> None:
        if self._thread.gone is not None:
            self._coroutine.close()
            self._sink.set_exception(ClientStateError(self._thread.gone))
            return
        self._task = self._thread.loop.create_task(self._coroutine)
        self._task.add_done_callback(self._done)

    def _abandon(self) -> None:
        if self._keep:
            if self._task is None:
                self._start()
        elif self._task is None:
            self._coroutine.close()
        elif self._undo is None:
            self._task.cancel()
        else:
            self._task.add_done_callback(self._take_back)

    def _take_back(self, task: asyncio.Task[T]) -> None:
        if self._undo is not None and not task.cancelled() and task.exception() is None:
            Background(self._undo(), "the shutdown after an interrupted start")

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            gone = self._thread.gone
            self._sink.set_exception(
                concurrent.futures.CancelledError() if gone is None else ClientStateError(gone)
            )
        elif (error := task.exception()) is not None:
            self._sink.set_exception(error)
        else:
            self._sink.set_result(task.result())


def _came_too_late(outcome: object) -> None:
    log.debug("a result came after the loop that wanted it was closed: %r", outcome)


def _set_result(future: asyncio.Future[Any], result: object) -> None:
    if not future.done():
        future.set_result(result)


def _set_exception(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


async def _run_drain(drain: Drain, timeout_seconds: float) -> None:
    try:
        async with asyncio.timeout(timeout_seconds):
            await drain()
    except TimeoutError:
        log.debug("%r was ended after %g s", drain, timeout_seconds)
    except Exception:
        log.exception("%r, run at the end of the process, failed", drain)


def _resolve_names_here(loop: asyncio.AbstractEventLoop) -> None:
    """Have asyncio's own loop ask for addresses itself: its threads take no work any more."""
    if not isinstance(loop, asyncio.BaseEventLoop):
        return

    async def getaddrinfo(host: Any, port: Any, **hints: int) -> Any:
        return socket.getaddrinfo(host, port, **hints)

    loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what runs on ``loop`` and see it end, transports included."""
    me = asyncio.current_task()
    while tasks := [task for task in asyncio.all_tasks(loop) if task is not me]:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for _ in range(_TURNS_TO_CLOSE):
        await asyncio.sleep(0)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop where it is installed, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


_guard = threading.Lock()
_current: LoopThread | None = None


def loop_thread() -> LoopThread:
    """The private loop of this process, started when first asked for."""
    global _current  # noqa: PLW0603 - one a process is the point
    if _current is not None:
        return _current
    with _guard:
        if _current is None:
            _current = LoopThread()
        return _current


def _at_exit() -> None:
    if _current is not None:
        _current.stop()


def _after_fork_in_child() -> None:
    global _current, _guard  # noqa: PLW0603 - the parent's thread and lock did not come along
    _guard = threading.Lock()
    if _current is not None:
        _current.gone = _FORKED
    _current = None


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
