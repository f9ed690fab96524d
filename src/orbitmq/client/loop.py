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
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from orbitmq.errors import ClientStateError

log = logging.getLogger("orbitmq.client")

T = TypeVar("T")

Drain: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
"""Waits for what is on its way, at the end of the process."""

_STOP_SECONDS = 5.0
_TURNS_TO_CLOSE = 5
"""Turns of the loop that a transport takes at most from its close to its end."""


class Mailbox:
    """Calls handed to ``loop`` from other threads, in order, coalesced into few wake-ups.

    ``post`` may be called from any thread. While the loop works off what is there, further posts
    only append.
    """

    __slots__ = ("_calls", "_loop", "_woken")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have the loop call ``function(*args)``. Raises RuntimeError when the loop is closed."""
        self._calls.append((function, args))
        if not self._woken:
            self._woken = True
            self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        calls = self._calls
        for _ in range(len(calls)):
            function, args = calls.popleft()
            try:
                function(*args)
            except Exception:
                log.exception("%r, handed to another thread, failed", function)
        self._woken = False
        # Posted since, by someone who still saw the mark above set.
        if calls and not self._woken:
            self._woken = True
            self._loop.call_soon(self._drain)


class Waiter(Generic[T]):
    """What one thread waits on until another gives a result or an error; used once.

    ``wait`` ends with KeyboardInterrupt on Ctrl-C.
    """

    __slots__ = ("_error", "_lock", "_result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._error: BaseException | None = None
        self._result: T

    def set_result(self, result: T) -> None:
        """End the wait."""
        self._result = result
        self._lock.release()

    def set_exception(self, error: BaseException) -> None:
        """End the wait with an error."""
        self._error = error
        self._lock.release()

    def wait(self, timeout_seconds: float | None = None) -> T:
        """The result, or the error raised. Raises TimeoutError when neither came in time."""
        if not self._lock.acquire(timeout=-1 if timeout_seconds is None else timeout_seconds):
            raise TimeoutError(f"no result within {timeout_seconds} s")
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the traceback's frame would keep itself alive
        return self._result


class LoopThread:
    """The thread that runs the private loop. Use :func:`loop_thread`, not this class."""

    def __init__(self) -> None:
        self.loop = new_event_loop()
        self.forked = False
        self._mailbox = Mailbox(self.loop)
        self._homes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()
        self._callbacks: SimpleQueue[tuple[Callable[..., object], tuple[Any, ...]] | None] = (
            SimpleQueue()
        )
        self._callback_thread: threading.Thread | None = None
        self.callbacks_called = 0
        """How many have returned, of all clients."""
        self._drains: dict[object, tuple[Drain, float]] = {}
        self._thread = threading.Thread(target=self._run, name="orbitmq-client", daemon=True)
        self._thread.start()

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have the private loop call ``function(*args)``; the calls of a thread keep their order.

        Raises ClientStateError in a process forked after the thread was started.
        """
        if self.forked:
            raise ClientStateError(
                "this client was made before the process was forked, and its thread stayed with "
                "the parent; make a new client in the child"
            )
        self._mailbox.post(function, *args)

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Run ``coroutine`` on the private loop and wait for its result.

        Ctrl-C, and the end of ``timeout_seconds`` (TimeoutError), cancel it.
        """
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise ClientStateError(
                "a blocking call on OrbitMQ's own thread would wait for itself; "
                "use the asynchronous client there"
            )
        waiter: Waiter[T] = Waiter()
        call = _Call(self, coroutine, waiter.set_result, waiter.set_exception)
        try:
            return waiter.wait(timeout_seconds)
        except BaseException:
            call.cancel()
            raise

    async def run_async(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` on the private loop, awaited on the caller's own loop.

        A cancelled caller cancels it; a result that came too late for that is lost.
        """
        if asyncio.get_running_loop() is self.loop:
            return await coroutine
        answer: Answer[T] = self.answer_to_running_loop()
        call = _Call(self, coroutine, answer.set_result, answer.set_exception)
        try:
            return await answer.future
        except asyncio.CancelledError:
            call.cancel()
            raise

    def answer_to_running_loop(self) -> Answer[Any]:
        """What the private loop gives a result to, for the running loop to await."""
        home = asyncio.get_running_loop()
        mailbox = self._homes.get(home)
        if mailbox is None:
            mailbox = self._homes[home] = Mailbox(home)
        return Answer(home.create_future(), mailbox)

    def call_back(self, function: Callable[..., object], *args: Any) -> None:
        """Have the callback thread call ``function(*args)``; what it raises is logged.

        Callbacks run one after the other, in the order asked for.
        """
        self.expect_callbacks()
        self._callbacks.put((function, args))

    def expect_callbacks(self) -> None:
        """Have the thread for them run: at the end of the process it is too late to start it."""
        if self._callback_thread is None:
            with _guard:
                self._start_callback_thread()

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
            if self._thread.is_alive():
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join(_STOP_SECONDS)
            self._callbacks.put(None)

    async def _run_drains(self) -> None:
        _resolve_names_here(self.loop)
        drains = list(self._drains.values())
        await asyncio.gather(*(_run_drain(drain, seconds) for drain, seconds in drains))

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(_end_tasks(self.loop))
            self.loop.close()

    def _start_callback_thread(self) -> None:
        if self._callback_thread is None:
            self._callback_thread = threading.Thread(
                target=self._run_callbacks, name="orbitmq-callbacks", daemon=True
            )
            self._callback_thread.start()

    def _run_callbacks(self) -> None:
        while (call := self._callbacks.get()) is not None:
            function, args = call
            try:
                function(*args)
            except BaseException:  # also sys.exit(): the others' callbacks go on
                log.exception("a callback failed: %r", function)
            self.callbacks_called += 1


class Answer(Generic[T]):
    """A result on its way from the private loop to a future on a loop of the user's."""

    __slots__ = ("_mailbox", "future")

    def __init__(self, future: asyncio.Future[T], mailbox: Mailbox) -> None:
        self.future = future
        self._mailbox = mailbox

    def set_result(self, result: T) -> None:
        """Give the result; called on the private loop."""
        self._post(_set_result, result)

    def set_exception(self, error: BaseException) -> None:
        """Give the error."""
        self._post(_set_exception, error)

    def _post(self, function: Callable[..., None], outcome: object) -> None:
        try:
            self._mailbox.post(function, self.future, outcome)
        except RuntimeError:
            log.debug("a result came after the loop that wanted it was closed: %r", outcome)


class _Call(Generic[T]):
    """A coroutine run as a task of the private loop, its outcome handed to whoever asked."""

    __slots__ = ("_cancelled", "_coroutine", "_on_error", "_on_result", "_task", "_thread")

    def __init__(
        self,
        thread: LoopThread,
        coroutine: Coroutine[Any, Any, T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._thread = thread
        self._coroutine = coroutine
        self._on_result = on_result
        self._on_error = on_error
        self._task: asyncio.Task[T] | None = None
        try:
            thread.post(self._start)
        except BaseException:
            coroutine.close()
            raise

    def cancel(self) -> None:
        """Cancel the task, from any thread."""
        self._thread.post(self._cancel)

    def _start(self) -> None:
        self._task = self._thread.loop.create_task(self._coroutine)
        self._task.add_done_callback(self._done)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._on_error(concurrent.futures.CancelledError())
        elif (error := task.exception()) is not None:
            self._on_error(error)
        else:
            self._on_result(task.result())


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
    tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
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
        _current.forked = True
    _current = None


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
