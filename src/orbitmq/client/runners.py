"""Where listeners run: in a pool of threads, or, being coroutines, as tasks of an event loop.

Never on the client's private loop, which must not be kept waiting. Java's ``consumeExecutor``, an
executor of ``consumeThreadMin`` threads whose queue has no end. Whatever a job raises, threads and
tasks go on with the next one.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from orbitmq.client.loop import loop_thread
from orbitmq.client.mailbox import Mailbox
from orbitmq.clock import Clock
from orbitmq.errors import ClientStateError

log = logging.getLogger("orbitmq.client.functions")

T = TypeVar("T")

_TURN_SECONDS: Final = 0.005
_RETRY_SECONDS: Final = 1.0
"""How long a pool is left as it is after a thread or a task of it was lost."""
_REMIND_SECONDS: Final = 10.0
_MANY_JOBS: Final = 10_000
_NOT_DONE: Final = (
    "group %s holds %d %s that nobody does anything with, and nothing of them is committed: %s"
)
_FAILED: Final = "%r could not be done"


class Job(Protocol):
    """Work for a listener."""

    @property
    def void(self) -> bool:
        """Whether it will do nothing, because its queue is gone."""
        ...

    def run(self) -> None:
        """Do it in this thread; for plain functions."""
        ...

    def run_async(self) -> Coroutine[Any, Any, None]:
        """Do it on this loop; for coroutine functions."""
        ...


class Place(Protocol):
    """Where code of the user's may run."""

    def is_here(self) -> bool:
        """Whether the caller is there."""
        ...


class Runner(Place, Protocol):
    """Where listeners run."""

    def submit(self, jobs: Iterable[Job]) -> None:
        """Have ``jobs`` run as soon as there is room, begun in this order. From any thread."""
        ...

    async def run_apart(self, job: Job) -> None:
        """Do ``job`` beside all others, however many there are, and wait for it."""
        ...

    def resize(self, size: int) -> None:
        """Have room for ``size`` jobs at once from now on. From any thread."""
        ...

    def stop(self) -> None:
        """Take no more; what runs may end."""
        ...

    def lost(self) -> str | None:
        """Why nobody is there to do jobs, and the remedy; None while all is well."""
        ...


class Reminder:
    """Says in the log, every 10 s at most, that jobs of ``group`` are not done, and why."""

    def __init__(self, group: str, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._next = clock.monotonic()

    def look(self, runners: Iterable[Runner], what: str, count_held: Callable[[], int]) -> None:
        """Look whether ``runners`` are lost while something, such as "messages", is held."""
        for runner in runners:
            why = runner.lost()
            now = self._clock.monotonic()
            if why is not None and now >= self._next and (held := count_held()):
                self._next = now + _REMIND_SECONDS
                log.error(_NOT_DONE, self._group, held, what, why)


def refuse_shutdown_in(places: Iterable[Place], who: str, function: str) -> None:
    """Raise ClientStateError in one of ``places``, which the shutdown of ``who`` would wait for.

    ``who`` is such as ``consumer 'orders'``.
    """
    if any(place.is_here() for place in places):
        client = who.partition(" ")[0]
        raise ClientStateError(
            f"{who} cannot be shut down in its own {function}, for whose end it would wait. Set an "
            "event that the main program waits for before it shuts down; or do not wait here: "
            f"threading.Thread(target={client}.shutdown).start(), among coroutines "
            f"asyncio.create_task({client}.shutdown())"
        )


def ends_task(task: asyncio.Task[Any] | None, error: BaseException) -> bool:
    """Whether ``error`` was thrown into ``task`` to end it; else the code in it raised it.

    A task is cancelled, or its coroutine is closed from outside.
    """
    if isinstance(error, asyncio.CancelledError):
        return task is not None and task.cancelling() > 0
    return isinstance(error, GeneratorExit) and _current_task() is not task


class Jobs(deque[Job]):
    """Jobs in their order.

    Flow control bounds those of the queues held. Those of queues that are gone are thrown out
    before they pile up behind listeners that never end.
    """

    def __init__(self) -> None:
        super().__init__()
        self._many = _MANY_JOBS

    def add(self, jobs: Iterable[Job]) -> None:
        """Put ``jobs`` to the end."""
        self.extend(jobs)
        if len(self) > self._many:
            wanted = [job for job in self if not job.void]
            self.clear()
            self.extend(wanted)
            self._many = max(_MANY_JOBS, 2 * len(wanted))


_here = threading.local()
"""``runner``: the ThreadRunner this thread belongs to."""


class ThreadRunner:
    """A pool of ``size`` threads, begun when needed. The one that was busy last is woken first.

    One thread is woken at a time, and wakes the next when there is more to do before it begins:
    listeners that wait for something have the whole pool at work at once, while listeners that
    only compute, of which Python runs one at a time, do not wake threads in vain. While the system
    starts no more threads those there are do all jobs, and one more is tried every second.
    """

    def __init__(self, size: int, name: str) -> None:
        self._size = size
        self._name = name
        self._lock = threading.Lock()
        self._jobs = Jobs()
        self._idle: list[threading.Lock] = []
        self._threads = 0
        self._waking = False
        self._stopped = False
        self._refused: str | None = None  # why no thread could be started a moment ago
        self._told = False

    def submit(self, jobs: Iterable[Job]) -> None:
        """Queue ``jobs``, and see to it that somebody does them."""
        with self._lock:
            self._jobs.add(jobs)
            wake = self._next_to_wake()
        if wake is not None:
            wake()

    async def run_apart(self, job: Job) -> None:
        """Do it in a thread of its own."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def work() -> None:
            _here.runner = self
            if done.set_running_or_notify_cancel():
                try:
                    _run_logged(job)
                finally:
                    done.set_result(None)

        threading.Thread(target=work, name=f"{self._name}-apart", daemon=True).start()
        await asyncio.wrap_future(done)

    def resize(self, size: int) -> None:
        """Have ``size`` threads at most; those too many end once they have nothing to do."""
        with self._lock:
            self._size = size
            idle, self._idle = self._idle, []
            wake = self._next_to_wake()
        for parked in idle:
            parked.release()  # to see whether it is one too many
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

    def is_here(self) -> bool:
        """Whether this thread belongs to the pool."""
        return getattr(_here, "runner", None) is self

    def lost(self) -> str | None:
        """Why there is no thread at all."""
        if self._threads or self._refused is None:
            return None
        return f"no thread could be started ({self._refused}); it is tried again every second"

    def _next_to_wake(self) -> Callable[[], None] | None:
        """With the lock: what wakes or starts one more thread, if there is need and room."""
        if self._waking or not self._jobs:
            return None
        if self._idle:
            self._waking = True
            return self._idle.pop().release
        if self._threads < self._size and self._refused is None:
            self._waking = True
            self._threads += 1
            return partial(self._begin_thread, f"{self._name}-{self._threads}")
        return None

    def _begin_thread(self, name: str) -> None:
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except (RuntimeError, MemoryError) as error:
            self._not_begun(error)

    def _not_begun(self, error: Exception) -> None:
        """Give the place back, and try again in a second."""
        with self._lock:
            self._threads -= 1
            self._waking = False
            self._refused = repr(error)
            told, self._told = self._told, True
            wake = self._next_to_wake()
        if not told:
            log.error(
                "%s has %d threads of %d, for the system starts no more (%s): it is tried again "
                "every second. Raise its limit of threads, or run fewer listeners at once",
                self._name,
                self._threads,
                self._size,
                error,
            )
        try:
            thread = loop_thread()
            thread.post(thread.loop.call_later, _RETRY_SECONDS, self._try_again)
        except ClientStateError as at_exit:  # where no thread starts any more
            log.debug("%s is not given another thread: %s", self._name, at_exit)
        if wake is not None:
            wake()

    def _try_again(self) -> None:
        with self._lock:
            self._refused = None
            wake = self._next_to_wake()
        if wake is not None:
            wake()

    def _work(self) -> None:
        _here.runner = self
        self._told = False
        parked = threading.Lock()
        parked.acquire()
        woken = True
        while True:
            with self._lock:
                if woken:
                    self._waking = woken = False
                job = None
                surplus = self._threads > self._size
                if surplus:
                    self._threads -= 1
                elif self._jobs:
                    job = self._jobs.popleft()
                elif self._stopped:
                    return
                else:
                    self._idle.append(parked)
                wake = self._next_to_wake()
            if wake is not None:
                wake()
            if surplus:
                return
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
    """Tasks of ``loop``, at most ``size`` at once.

    Jobs for a loop that is closed are dropped, told once, with the ``consequence``; :meth:`lost`
    says so again.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        size: int,
        consequence: str = "messages are not consumed",
    ) -> None:
        self._size = size
        self._consequence = consequence
        self._loop = loop
        self._mailbox = Mailbox(loop)
        self._jobs = Jobs()
        self._workers: set[asyncio.Task[None]] = set()
        self._apart: set[asyncio.Task[Any]] = set()
        self._told = False

    def submit(self, jobs: Iterable[Job]) -> None:
        """Hand ``jobs`` to the loop."""
        if not self._post(self._start, list(jobs)) and not self._told:
            self._told = True
            log.error("%s: %s", self._consequence, self.lost())

    async def run_apart(self, job: Job) -> None:
        """Do it as one task more."""
        await asyncio.wrap_future(self._hand_over(job.run_async()))

    def complete(self, work: Coroutine[Any, Any, T]) -> T:
        """Do ``work`` beside all jobs, and wait for it in this thread, another than the loop's.

        Raises RuntimeError where the loop is closed.
        """
        return self._hand_over(work).result()

    def resize(self, size: int) -> None:
        """Have ``size`` tasks at most; those too many end after what they are doing."""
        self._post(self._resize, size)

    def stop(self) -> None:
        """Forget the jobs not begun; what runs may end."""
        self._post(self._jobs.clear)

    def is_here(self) -> bool:
        """Whether this task is one of them; not so the tasks that a listener begins."""
        task = _current_task()
        return task is not None and (task in self._workers or task in self._apart)

    def lost(self) -> str | None:
        """Why the loop does nothing."""
        if self._loop.is_running():
            return None
        state = "is closed" if self._loop.is_closed() else "does not run"
        return (
            f"the event loop that runs the coroutines {state}. Shut the client down, which still "
            "works, and start a new one on a loop that runs for as long: asyncio.run() closes its "
            "loop at the end, so use `async with` in it"
        )

    def _post(self, function: Callable[..., None], *args: object) -> bool:
        """Have the loop call ``function``; False where it is closed."""
        if self._loop.is_closed():
            return False
        try:
            self._mailbox.post(function, *args)
        except RuntimeError:
            return False
        return True

    def _hand_over(self, work: Coroutine[Any, Any, T]) -> concurrent.futures.Future[T]:
        apart = self._run_apart(work)
        try:
            return asyncio.run_coroutine_threadsafe(apart, self._loop)
        except RuntimeError:  # the loop is closed
            apart.close()
            work.close()
            raise

    async def _run_apart(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - _hand_over made one
        self._apart.add(task)
        try:
            return await work
        finally:
            self._apart.discard(task)

    def _resize(self, size: int) -> None:
        self._size = size
        self._start(())

    def _start(self, jobs: Iterable[Job]) -> None:
        self._jobs.add(jobs)
        for _ in range(min(len(self._jobs), self._size - len(self._workers))):
            task = self._loop.create_task(self._work())
            self._workers.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Have another one do what came since ``task`` found no more to do.

        One that was cancelled was so by its listener, or because the loop is about to close. If
        it does not close it is replaced, a little later.
        """
        self._workers.discard(task)
        if task.cancelled() or task.cancelling():
            self._loop.call_later(_RETRY_SECONDS, self._start, ())
        else:
            self._start(())

    async def _work(self) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - this is one
        turn = Turn()
        while self._jobs and len(self._workers) <= self._size and not task.cancelling():
            job = self._jobs.popleft()
            try:
                await job.run_async()
            except BaseException as error:
                if ends_task(task, error):
                    raise
                _log_failure(job, error)
            await turn.end()


def _run_logged(job: Job) -> None:
    try:
        job.run()
    except BaseException as error:  # noqa: BLE001 - it is logged
        _log_failure(job, error)


def _log_failure(job: Job, error: BaseException) -> None:
    if isinstance(error, ClientStateError):  # the private loop takes no more: the process ends
        log.debug(_FAILED, job, exc_info=error)
    else:
        log.error(_FAILED, job, exc_info=error)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # no loop runs in this thread
        return None
