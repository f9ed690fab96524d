"""Where listeners run: in a pool of threads, or, being coroutines, as tasks of an event loop.

Never on the client's private loop, which must not be kept waiting. Java's ``consumeExecutor``, an
executor of ``consumeThreadMin`` threads whose queue has no end.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol

from orbitmq.client.loop import new_event_loop
from orbitmq.client.mailbox import Mailbox

log = logging.getLogger("orbitmq.consumer.consume")

_TURN_SECONDS: Final = 0.005


class Job(Protocol):
    """Work for a listener."""

    def run(self) -> None:
        """Do it in this thread; for plain functions."""
        ...

    def run_async(self) -> Coroutine[Any, Any, None]:
        """Do it on this loop; for coroutine functions."""
        ...


class Runner(Protocol):
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

    async def run_apart(self, job: Job) -> None:
        """Do it in a thread of its own."""
        done: concurrent.futures.Future[None] = concurrent.futures.Future()

        def work() -> None:
            if done.set_running_or_notify_cancel():
                try:
                    job.run()
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

    async def run_apart(self, job: Job) -> None:
        """Do it as one task more."""
        work = job.run_async()
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:  # the loop is closed
            work.close()
            raise
        await asyncio.wrap_future(done)

    def resize(self, size: int) -> None:
        """Have ``size`` tasks at most; those too many end after what they are doing."""
        self._mailbox.post(self._resize, size)

    def stop(self) -> None:
        """Forget the jobs not begun; what runs may end."""
        self._jobs.clear()

    def _resize(self, size: int) -> None:
        self._size = size
        self._start([])

    def _start(self, jobs: list[Job]) -> None:
        self._jobs.extend(jobs)
        for _ in range(min(len(self._jobs), self._size - self._working)):
            self._working += 1
            task = self._loop.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self) -> None:
        turn = Turn()
        try:
            while self._jobs and self._working <= self._size:
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
