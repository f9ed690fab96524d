"""TopicListeners: which function consumes which topic, and where it runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Final

from orbitmq.client.listener_loop import ListenerLoop
from orbitmq.client.runners import (
    Place,
    Reminder,
    Runner,
    TaskRunner,
    ThreadRunner,
    refuse_shutdown_in,
)
from orbitmq.clock import Clock
from orbitmq.consumer.push.listeners import ConsumeStatus, Listener, ListenerFunction
from orbitmq.errors import ClientStateError
from orbitmq.wire.message_view import MessageView


class TopicListeners:
    """The listeners of the consumer of ``group``, ``size`` of them at once.

    ``default`` consumes the topics without a listener of their own. Coroutines, and awaitables that
    plain functions answer, run on ``loop``, or where that is None on a loop of their own.
    """

    def __init__(
        self, group: str, default: ListenerFunction | None, size: int, clock: Clock
    ) -> None:
        self.size = size
        self.loop: asyncio.AbstractEventLoop | None = None
        self._group = group
        self._default = Listener(default, self._complete) if default is not None else None
        self._by_topic: dict[str, Listener] = {}
        self._open = False
        self._making = threading.Lock()
        self._threads: ThreadRunner | None = None
        self._tasks: TaskRunner | None = None
        self._own_loop: ListenerLoop | None = None
        self._reminder = Reminder(group, clock)

    @property
    def several(self) -> bool:
        """Whether topics may have different ones."""
        return bool(self._by_topic)

    def put(self, topic: str, function: ListenerFunction) -> None:
        """Have ``function`` consume ``topic``; from any thread. ConfigError for one that cannot."""
        listener = Listener(function, self._complete)
        if self._open:
            self.runner_of(listener)
        self._by_topic = {**self._by_topic, topic: listener}

    def of(self, message: MessageView) -> Listener:
        """Who consumes ``message``."""
        return self._by_topic.get(message.topic) or self._default or _NOBODY

    def has(self, topic: str) -> bool:
        """Whether somebody consumes ``topic``."""
        return self._default is not None or topic in self._by_topic

    def check(self, topics: Collection[str]) -> None:
        """Raise ClientStateError where nobody consumes one of ``topics``."""
        missing = sorted(topic for topic in topics if not self.has(topic))
        if missing:
            raise ClientStateError(
                f"consumer {self._group!r} has no listener for {', '.join(missing)}: give one to "
                "subscribe(), or to the consumer"
            )

    # Where they run

    def open(self) -> None:
        """Make anew what listeners run in, so that whoever starts hears what cannot be made."""
        self._threads = self._tasks = None
        self._open = True
        for listener in (self._default, *self._by_topic.values()):
            if listener is not None:
                self.runner_of(listener)

    def runner_of(self, listener: Listener) -> Runner:
        """Threads, or tasks of a loop; from any thread."""
        return self._task_runner() if listener.is_async else self._thread_runner()

    def resize(self, size: int) -> None:
        """Have ``size`` at once from now on, on the private loop."""
        self.size = size
        for runner in self._runners():
            runner.resize(size)

    def lost(self) -> bool:
        """Whether no listener can run any more."""
        return all(runner.lost() is not None for runner in self._runners())

    def remind(self, count_held: Callable[[], int]) -> None:
        """Say again and again why nobody consumes messages that are held."""
        self._reminder.look(self._runners(), "messages", count_held)

    def refuse_shutdown_here(self) -> None:
        """Raise ClientStateError in one of these listeners, which shutdown would wait for."""
        places: list[Place] = [*self._runners()]
        if self._own_loop is not None:
            places.append(self._own_loop)
        refuse_shutdown_in(places, f"consumer {self._group!r}", "listener")

    async def stop(self) -> None:
        """Begin no more; those at work may end, but for coroutines on a loop of their own."""
        self._open = False
        for runner in self._runners():
            runner.stop()
        if self._own_loop is not None:
            own_loop, self._own_loop = self._own_loop, None
            await own_loop.end()

    def _runners(self) -> list[Runner]:
        return [runner for runner in (self._threads, self._tasks) if runner is not None]

    def _thread_runner(self) -> Runner:
        if self._threads is None:
            with self._making:
                if self._threads is None:
                    self._threads = ThreadRunner(self.size, f"consume-{self._group}")
                return self._threads
        return self._threads

    def _task_runner(self) -> TaskRunner:
        if self._tasks is None:
            with self._making:
                if self._tasks is None:
                    self._tasks = TaskRunner(self._loop(), self.size)
                return self._tasks
        return self._tasks

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self.loop is not None:
            return self.loop
        if not self._open:
            raise ClientStateError(f"consumer {self._group!r} does not run")
        self._own_loop = ListenerLoop(f"orbitmq-listeners-{self._group}")
        return self._own_loop.loop

    def _complete(self, work: Coroutine[Any, Any, ConsumeStatus]) -> ConsumeStatus:
        """Await what a plain function answered, in its thread, on the loop of the coroutines."""
        try:
            runner = self._task_runner()
        except BaseException:
            work.close()
            raise
        return runner.complete(work)


def _no_listener(messages: Sequence[MessageView]) -> None:
    raise ClientStateError(f"there is no listener for topic {messages[0].topic}")


_NOBODY: Final = Listener(_no_listener)
