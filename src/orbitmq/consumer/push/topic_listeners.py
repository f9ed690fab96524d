"""TopicListeners: which function consumes which topic, and where it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from orbitmq.consumer.push.listeners import Listener, ListenerFunction
from orbitmq.consumer.runners import ListenerLoop, Runner, TaskRunner, ThreadRunner
from orbitmq.errors import ClientStateError
from orbitmq.wire.message_view import MessageView


class TopicListeners:
    """The listeners of the consumer of ``group``, ``size`` of them at once.

    ``default`` consumes the topics without a listener of their own. Coroutines run on ``loop``, or
    where that is None on a loop of their own.
    """

    def __init__(self, group: str, default: ListenerFunction | None, size: int) -> None:
        self.size = size
        self.loop: asyncio.AbstractEventLoop | None = None
        self._group = group
        self._default = Listener(default) if default is not None else None
        self._by_topic: dict[str, Listener] = {}
        self._threads: ThreadRunner | None = None
        self._tasks: TaskRunner | None = None
        self._own_loop: ListenerLoop | None = None

    @property
    def several(self) -> bool:
        """Whether topics may have different ones."""
        return bool(self._by_topic)

    def put(self, topic: str, function: ListenerFunction) -> None:
        """Have ``function`` consume ``topic``; from any thread."""
        self._by_topic = {**self._by_topic, topic: Listener(function)}

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

    def runner_of(self, listener: Listener) -> Runner:
        """Threads, or tasks of a loop; made when they are needed, on the private loop."""
        if not listener.is_async:
            if self._threads is None:
                self._threads = ThreadRunner(self.size, f"consume-{self._group}")
            return self._threads
        if self._tasks is None:
            loop = self.loop
            if loop is None:
                self._own_loop = ListenerLoop(f"orbitmq-listeners-{self._group}")
                loop = self._own_loop.loop
            self._tasks = TaskRunner(loop, self.size)
        return self._tasks

    def resize(self, size: int) -> None:
        """Have ``size`` at once from now on, on the private loop."""
        self.size = size
        for runner in (self._threads, self._tasks):
            if runner is not None:
                runner.resize(size)

    async def stop(self) -> None:
        """Begin no more; those at work may end, but for coroutines on a loop of their own."""
        for runner in (self._threads, self._tasks):
            if runner is not None:
                runner.stop()
        if self._own_loop is not None:
            own_loop, self._own_loop = self._own_loop, None
            await asyncio.to_thread(own_loop.stop)


def _no_listener(messages: Sequence[MessageView]) -> None:
    raise ClientStateError(f"there is no listener for topic {messages[0].topic}")


_NOBODY: Final = Listener(_no_listener)
