"""PullScheduleCore: a function of the user's called again and again for each queue in balance.

The function pulls the queue it is given, consumes what it got and moves the offset; when it is
called next is its own decision. Follows MQPullConsumerScheduleService and its PullTaskImpl. Beyond
Java, a queue that goes and a shutdown wait for the calls under way, so that the offset they set is
saved before another consumer begins.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeAlias, TypeVar

from orbitmq.client.functions import can_take, check_function, is_coroutine_function
from orbitmq.client.runners import (
    Reminder,
    Runner,
    TaskRunner,
    ThreadRunner,
    ends_task,
    refuse_shutdown_in,
)
from orbitmq.clock import SYSTEM_CLOCK, Clock, elapsed_ms
from orbitmq.consumer.config import (
    PullScheduleConfig,
)
from orbitmq.consumer.parts import PullScheduleArguments
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.consumer.pull.core import BalancedQueue, PullCore
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.message import MessageQueue

log = logging.getLogger("orbitmq.consumer.pull")

ConsumerT = TypeVar("ConsumerT")

_NEXT_DELAY_MS: Final = 200
_ERROR_DELAY_MS: Final = 1_000
_FAILED: Final = "group %s: the callback for %s failed; it is called again in %d ms"


class PullTaskContext(Generic[ConsumerT]):
    """What a callback gets besides its queue.

    ``pull_consumer`` is to pull with, and to move the offset. ``pull_next_delay_ms``: how long
    after this call the next one begins; 200 unless the callback says otherwise.
    """

    __slots__ = ("pull_consumer", "pull_next_delay_ms")

    def __init__(self, pull_consumer: ConsumerT) -> None:
        self.pull_consumer = pull_consumer
        self.pull_next_delay_ms = _NEXT_DELAY_MS


PullTaskCallback: TypeAlias = Callable[
    [MessageQueue, PullTaskContext[Any]], Awaitable[object] | object
]
"""``callback(queue, context)``; of a service for asyncio code a coroutine function."""

CallbackT = TypeVar("CallbackT", bound=PullTaskCallback)


class ScheduledQueue(BalancedQueue):
    """One queue, and the next call for it.

    Lives on the private loop, but for ``run`` and ``run_async``, which are the call.
    """

    def __init__(
        self, service: PullScheduleCore, queue: MessageQueue, process_queue: ProcessQueue
    ) -> None:
        super().__init__(queue, process_queue)
        self._service = service
        self._shown = service.namespace.unwrap_queue(queue)
        self._failure = (_FAILED, service.group, self._shown, _ERROR_DELAY_MS)
        self._lock = threading.Lock()
        self._stopped = False
        self._called = False  # the callback runs
        self._timer: asyncio.TimerHandle | None = None
        self._at_rest = asyncio.Event()
        self._at_rest.set()

    def begin(self, *, handed_over: bool = False) -> None:
        """Call the callback as soon as there is room, unless that is under way.

        Of a queue ``handed_over`` a little later, so that its last offset can be saved before.
        """
        if self._stopped or self._timer is not None or not self._at_rest.is_set():
            return
        if handed_over:
            self._later(self._service.config.handover_delay_ms)
            return
        if self._service.callback(self.queue.topic) is None:
            log.warning(
                "group %s: there is no callback for %s, which is not pulled; "
                "register one with register_pull_task_callback",
                self._service.group,
                self._shown,
            )
            return
        self._at_rest.clear()
        self._service.runner.submit([self])

    def stop(self) -> None:
        """Call no more; a call under way may end."""
        with self._lock:
            self._stopped = True
            called = self._called
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not called:
            self._at_rest.set()

    async def ended(self) -> None:
        """Wait for the call under way, for as long as the service allows."""
        patience_ms = 0 if self._service.runner.lost() else self._service.patience_ms
        try:
            async with asyncio.timeout(patience_ms / 1000):
                await self._at_rest.wait()
        except TimeoutError:
            log.warning(
                "group %s: the callback for %s still runs after %d ms and is left behind; "
                "offsets it sets now are not saved",
                self._service.group,
                self._shown,
                patience_ms,
            )
            self._at_rest.set()

    # The call

    @property
    def void(self) -> bool:
        """Whether it is not to be called any more."""
        return self._stopped

    def run(self) -> None:
        """Call a plain function."""
        if not self._enter():
            return
        context = self._service.new_context()
        try:
            _check_answer(self._callback()(self._shown, context))
        except ClientStateError as error:
            self._refused(error)
            context.pull_next_delay_ms = _ERROR_DELAY_MS
        except BaseException:  # as Throwable in Java: sys.exit() must not end a thread of the pool
            log.exception(*self._failure)
            context.pull_next_delay_ms = _ERROR_DELAY_MS
        self._leave(context)

    async def run_async(self) -> None:
        """Call a coroutine function."""
        if not self._enter():
            return
        task = asyncio.current_task()
        context = self._service.new_context()
        try:
            await self._callback()(self._shown, context)
        except ClientStateError as error:
            self._refused(error)
            context.pull_next_delay_ms = _ERROR_DELAY_MS
        except BaseException as error:  # asyncio ends a loop whose task raises SystemExit
            context.pull_next_delay_ms = _ERROR_DELAY_MS
            if ends_task(task, error):
                raise
            log.exception(*self._failure)
        finally:
            self._leave(context)

    def _enter(self) -> bool:
        with self._lock:
            self._called = not self._stopped
            return self._called

    def _callback(self) -> Callable[..., Any]:
        callback = self._service.callback(self.queue.topic)
        assert callback is not None  # noqa: S101 - begin saw it, and none is ever taken away
        return callback

    def _refused(self, error: ClientStateError) -> None:
        """A pull that the shutdown ended is no failure."""
        if self._service.closing:
            log.debug("the callback for %s was interrupted by the shutdown", self._shown)
        else:
            log.error(*self._failure, exc_info=error)

    def _leave(self, context: PullTaskContext[Any]) -> None:
        self._service.thread.post(self._rest, context.pull_next_delay_ms)

    def _rest(self, delay_ms: int) -> None:
        self._called = False
        self._at_rest.set()
        if not self._stopped:
            self._later(delay_ms)

    def _later(self, delay_ms: int) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(delay_ms, 0) / 1000, self._again)

    def _again(self) -> None:
        self._timer = None
        self.begin()


class PullScheduleCore(PullCore):
    """A schedule service without a face.

    Plain functions are called in threads, coroutine functions on ``callback_loop``. ``consumer``
    is what they get as ``context.pull_consumer``.
    """

    config_type = PullScheduleConfig
    config: PullScheduleConfig

    def __init__(
        self, group: str, arguments: PullScheduleArguments, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(group, arguments, clock=clock)
        self.consumer: object = None
        self.callback_loop: asyncio.AbstractEventLoop | None = None
        self.patience_ms = self.config.shutdown_timeout_ms
        self.runner: Runner
        self._reminder = Reminder(group, clock)
        self._callbacks: dict[str, PullTaskCallback] = {}

    async def set_up(self) -> None:
        """As every consumer; and where callbacks run."""
        await super().set_up()
        size = self.config.pull_thread_nums
        if self.callback_loop is not None:
            self.runner = TaskRunner(self.callback_loop, size)
        else:
            self.runner = ThreadRunner(size, f"orbitmq-pull-{self.group}")

    def refuse_shutdown_here(self) -> None:
        """Raise ClientStateError in one of its callbacks, which a shutdown waits for."""
        if hasattr(self, "runner"):  # it was started
            refuse_shutdown_in([self.runner], f"consumer {self.group!r}", "callback")

    async def shutdown(self, timeout_ms: int | None = None) -> None:
        """As every consumer, once the calls under way have ended, or after ``timeout_ms``."""
        if timeout_ms is not None:
            self.patience_ms = timeout_ms
        await super().shutdown()

    async def take_down(self) -> None:
        """As every consumer, without waiting for calls that take too long."""
        self.end_pulls()
        tasks = list(self.tasks.values())
        for task in tasks:
            task.stop()
        await asyncio.gather(*(task.ended() for task in tasks))
        await super().take_down()
        self.runner.stop()

    def register(self, topic: str, callback: PullTaskCallback, *, coroutine: bool) -> None:
        """Have ``callback`` called for the queues of ``topic``; from any thread.

        Raises ConfigError unless it is a coroutine function where ``coroutine`` wants one, or a
        plain one where not, and can be called with a queue and a context.
        """
        kind = "a coroutine function" if coroutine else "a plain function"
        allowed = f"{kind} of a queue and a PullTaskContext"
        check_function("callback", callback, allowed)
        if is_coroutine_function(callback) is not coroutine or not can_take(callback, 2):
            raise ConfigError("callback", callback, allowed)
        name = self.namespace.wrap(topic)
        self._callbacks[name] = callback
        self.register_topics(topic)
        if self.lifecycle.running:
            self.thread.post(self._begin_all, name)

    async def rebalance(self) -> bool:
        """As every consumer; and look whether callbacks can be called."""
        self._reminder.look([self.runner], "queues", lambda: len(self.tasks))
        return await super().rebalance()

    def callback(self, topic: str) -> PullTaskCallback | None:
        """What is called for the queues of ``topic``."""
        return self._callbacks.get(topic)

    def new_context(self) -> PullTaskContext[Any]:
        """For one call."""
        return PullTaskContext(self.consumer)

    def hold(self, queue: MessageQueue) -> BalancedQueue:
        """One whose callback is called."""
        return ScheduledQueue(self, queue, ProcessQueue(elapsed_ms(self.clock)))

    def _begin_all(self, topic: str) -> None:
        for task in list(self.tasks.values()):
            if task.queue.topic == topic:
                task.begin()


def _check_answer(answer: object) -> None:
    """Raise TypeError for what a plain callback wants to be awaited."""
    if answer is None or not isinstance(answer, Awaitable):
        return
    if inspect.iscoroutine(answer):
        answer.close()
    raise TypeError(
        f"the callback returned {answer!r}, which nobody awaits: use "
        "AsyncPullConsumerScheduleService, and register a coroutine function"
    )
