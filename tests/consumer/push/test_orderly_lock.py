"""The lock of an orderly queue, against a model and a moved clock: ConsumeOrderly step by step.

Whatever happens to the lock, and whatever listeners answer, one listener at a time works on the
queue, only while the broker's lock can be relied on, in the order of the messages, and nobody
forgets the queue.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from orbitmq.client.config import make_config
from orbitmq.client.instance import ClientInstance
from orbitmq.client.loop import LoopThread
from orbitmq.client.namespace import NO_NAMESPACE
from orbitmq.client.runners import Job, Runner
from orbitmq.clock import elapsed_ms
from orbitmq.consumer.config import PushConfig
from orbitmq.consumer.hooks import ConsumeHooks
from orbitmq.consumer.offsets import OffsetStore
from orbitmq.consumer.process_queue import LOCK_EXPIRES_MS, ProcessQueue
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.push import consume_orderly
from orbitmq.consumer.push.consume_orderly import ConsumeOrderly, OrderlyBatch, QueueRun
from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.consumer.push.listeners import ConsumeStatus, Listener
from orbitmq.consumer.retries import SendBack
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.message_view import MessageView
from tests.consumer.records import messages, offsets
from tests.consumer.test_offsets import MemoryStore

QUEUE = MessageQueue("orders", "broker-a", 0)
LIMIT = 2
HOUR_MS = 3_600_000


class Task:
    """What consuming needs of a PullTask."""

    def __init__(self, now_ms: int) -> None:
        self.queue = QUEUE
        self.process_queue = ProcessQueue(now_ms)


class Consumer:
    """A consumer whose private loop and listeners do one step at a time, when they are told."""

    def __init__(self, batch_size: int) -> None:
        self.config = make_config(
            PushConfig,
            {
                "name_server": "x:1",
                "orderly": True,
                "consume_batch_size": batch_size,
                "max_reconsume_times": LIMIT,
            },
        )
        self.group = "readers"
        self.namespace = NO_NAMESPACE
        self.message_model = MessageModel.CLUSTERING
        self.clock = ManualClock(1_000_000)
        self.offsets: OffsetStore = MemoryStore()
        self.consume_hooks = ConsumeHooks(self.group, self.namespace)
        self.stats = ConsumeStats(elapsed_ms(self.clock))
        self.thread = cast("LoopThread", self)
        self.instance = cast("ClientInstance", self)
        self.send_back = cast("SendBack", self)
        self.listener = Listener(lambda _: None)
        self.lockable = True
        self.given_up: list[int] = []
        self.posted: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.spawned: deque[Coroutine[Any, Any, Any]] = deque()
        self.runs: deque[QueueRun] = deque()
        self.idle = 0

    def post(self, function: Callable[..., None], *args: Any) -> None:
        self.posted.append((function, args))

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.spawned.append(coroutine)

    def submit(self, jobs: Iterable[Job]) -> None:
        self.runs.extend(cast("Iterable[QueueRun]", jobs))

    async def send_as_new(self, message: MessageView) -> None:
        self.given_up.append(message.queue_offset)

    async def send(self, message: MessageView, delay_level: int) -> None:
        raise AssertionError("orderly messages are not sent back")

    def listener_of(self, message: MessageView) -> Listener:
        return self.listener

    def runner_of(self, listener: Listener) -> Runner:
        return cast("Runner", self)

    def one_listener(self, task: PullTask) -> bool:
        return True

    def progressed(self, task: PullTask, *, idle: bool) -> None:
        self.idle += idle

    async def lock_all(self) -> None:
        raise AssertionError("nobody keeps locks here")

    async def lock_again(self, task: PullTask) -> bool:
        if self.lockable:
            task.process_queue.lock_granted(elapsed_ms(self.clock))
        else:
            task.process_queue.locked = False
        return self.lockable


class OrderlyLock(RuleBasedStateMachine):
    """The model: ``waiting`` is to be consumed, ``taken`` was since the last commit."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.consumer = Consumer(batch_size=2)
        self.service = ConsumeOrderly(self.consumer)
        self.task = Task(elapsed_ms(self.consumer.clock))
        self.queue = self.task.process_queue
        self.next = 0
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.committed = -1
        self.tries: dict[int, int] = {}
        self.locked_at: int | None = None
        self.working: tuple[QueueRun, OrderlyBatch] | None = None
        self.leaving = False

    def teardown(self) -> None:
        try:
            self.everything_is_consumed_in_the_end()
        finally:
            self.loop.close()

    def everything_is_consumed_in_the_end(self) -> None:
        if self.working is not None:
            self.listener_ends(ConsumeStatus.SUCCESS, auto_commit=True)
        self.consumer.lockable = True
        for _ in range(200):
            self.private_loop_does_what_is_due()
            if self.consumer.runs:
                self.listener_begins()
            if self.working is not None:
                self.listener_ends(ConsumeStatus.SUCCESS, auto_commit=True)
        if not self.leaving:
            assert self.waiting == []
            assert self.consumer.offsets.get(QUEUE) == self.committed
            assert not self.queue.consuming
        assert self.queue.running == 0

    # What the pull task, the brokers, rebalance and time do

    @precondition(lambda self: not self.leaving)
    @rule(count=st.integers(1, 5))
    def messages_come(self, count: int) -> None:
        pulled = messages(range(self.next, self.next + count))
        self.waiting += offsets(pulled)
        self.next += count
        dispatch = self.queue.put(pulled)
        self.service.submit(cast("PullTask", self.task), pulled, dispatch=dispatch)

    @rule()
    def the_broker_grants_the_lock(self) -> None:
        self.queue.lock_granted(elapsed_ms(self.consumer.clock))
        self.locked_at = elapsed_ms(self.consumer.clock)

    @rule()
    def another_consumer_has_the_lock(self) -> None:
        self.queue.locked = False
        self.locked_at = None

    @rule()
    def the_broker_changes_its_mind(self) -> None:
        self.consumer.lockable = not self.consumer.lockable

    @rule(ms=st.sampled_from([1, 1_000, LOCK_EXPIRES_MS - 1_000, 70_000]))
    def time_passes(self, ms: int) -> None:
        clock = self.consumer.clock
        clock.advance(ms)
        clock.set_wall_clock(clock.now_ms() - HOUR_MS)

    @precondition(lambda self: self.next > 15)  # else little else would happen
    @rule()
    def the_queue_is_given_up(self) -> None:
        self.queue.leaving = self.leaving = True

    def private_loop_does_what_is_due(self) -> None:
        consumer = self.consumer

        async def work() -> None:
            for _ in range(3):
                while consumer.posted or consumer.spawned:
                    if consumer.posted:
                        function, args = consumer.posted.popleft()
                        function(*args)
                    else:
                        locked = self.queue.last_lock_ms, self.queue.locked
                        await consumer.spawned.popleft()
                        if (self.queue.last_lock_ms, self.queue.locked) != locked:
                            self.locked_at = self.queue.last_lock_ms if self.queue.locked else None
                await asyncio.sleep(0)  # for the timers, which are due at once

        self.loop.run_until_complete(work())

    # What listeners do

    @rule(answers=st.lists(st.tuples(st.sampled_from(ConsumeStatus), st.booleans()), max_size=9))
    def listeners_work(self, answers: list[tuple[ConsumeStatus, bool]]) -> None:
        """One rule for it all, because Hypothesis leaves out some rules of each example."""
        for status, auto_commit in answers:
            if self.working is not None:
                self.listener_ends(status, auto_commit=auto_commit)
            elif self.consumer.runs:
                self.listener_begins()
            else:
                self.private_loop_does_what_is_due()

    def listener_begins(self) -> None:
        run = self.consumer.runs.popleft()
        run.started_ms = elapsed_ms(self.consumer.clock)
        self._next(run)

    def listener_ends(self, status: ConsumeStatus, *, auto_commit: bool) -> None:
        assert self.working is not None
        (run, batch), self.working = self.working, None
        batch.context.auto_commit = auto_commit
        goes_on = self.service.finished(run, batch, status)
        numbers = offsets(batch.messages)
        if status in (ConsumeStatus.RECONSUME_LATER, ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT):
            assert not goes_on
            self._failed(numbers, auto_commit=auto_commit)
            self.private_loop_does_what_is_due()
        elif auto_commit or status is ConsumeStatus.COMMIT:
            self._commit()
        elif status is ConsumeStatus.ROLLBACK:
            assert not goes_on
            self.waiting = sorted(self.taken + self.waiting)
            self.taken = []
        if goes_on:
            self._next(run)

    def _failed(self, numbers: list[int], *, auto_commit: bool) -> None:
        gone = [number for number in numbers if self.tries.get(number, 0) >= LIMIT]
        for number in set(numbers) - set(gone):
            self.tries[number] = self.tries.get(number, 0) + 1
        if len(gone) < len(numbers):  # with one that is tried again all others of the batch are
            self.taken = [number for number in self.taken if number not in numbers]
            self.waiting = numbers + self.waiting
        elif auto_commit:
            self._commit()

    def _commit(self) -> None:
        if self.taken:
            self.committed = max(self.taken) + 1
        self.taken = []

    def _next(self, run: QueueRun) -> None:
        batch = self.service.next_batch(run)
        if batch is None:
            return
        assert self.working is None
        assert not self.leaving
        assert self.locked_at is not None
        assert elapsed_ms(self.consumer.clock) - self.locked_at <= LOCK_EXPIRES_MS
        numbers = offsets(batch.messages)
        assert numbers == self.waiting[: len(numbers)]
        assert 1 <= len(numbers) <= 2
        self.waiting = self.waiting[len(numbers) :]
        self.taken += numbers
        self.working = (run, batch)

    @invariant()
    def the_offset_is_what_was_committed(self) -> None:
        if not self.consumer.posted and not self.consumer.spawned:
            assert self.consumer.offsets.get(QUEUE) == self.committed

    @invariant()
    def one_at_a_time(self) -> None:
        assert len(self.consumer.runs) + (self.working is not None) <= 1
        assert self.queue.running <= 1


TestOrderlyLock = OrderlyLock.TestCase
TestOrderlyLock.settings = settings(max_examples=200, stateful_step_count=50)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_RELOCK_DELAY_MS", "_NOT_LOCKED_DELAY_MS", "_SOON_MS", "_MIN_SUSPEND_MS"):
        monkeypatch.setattr(consume_orderly, name, 0)
    monkeypatch.setattr(consume_orderly, "_MAX_SUSPEND_MS", 0)
