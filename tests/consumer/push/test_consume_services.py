"""Consuming, without brokers: the rare turns that a running cluster seldom takes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, cast

import pytest

from orbitmq.client.config import make_config
from orbitmq.client.instance import ClientInstance
from orbitmq.client.loop import LoopThread
from orbitmq.client.namespace import NO_NAMESPACE
from orbitmq.client.runners import Job, Runner
from orbitmq.clock import elapsed_ms
from orbitmq.consumer.config import PushConfig
from orbitmq.consumer.hooks import CONSUME_CONTEXT_TYPE, ConsumeHooks, ConsumeMessageContext
from orbitmq.consumer.offsets import OffsetStore
from orbitmq.consumer.process_queue import LOCK_EXPIRES_MS, ProcessQueue
from orbitmq.consumer.pull_task import PullTask
from orbitmq.consumer.push import consume_concurrently, consume_orderly
from orbitmq.consumer.push.consume_concurrently import ConsumeConcurrently
from orbitmq.consumer.push.consume_orderly import ConsumeOrderly
from orbitmq.consumer.push.consume_stats import ConsumeStats
from orbitmq.consumer.push.listeners import ConsumeStatus, Listener, ListenerFunction
from orbitmq.consumer.retries import SendBack
from orbitmq.errors import ConnectError
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.message_view import MessageView
from tests.consumer.records import messages, offsets
from tests.consumer.test_offsets import MemoryStore

QUEUE = MessageQueue("orders", "broker-a", 0)


class Task:
    """What consuming needs of a PullTask."""

    def __init__(self) -> None:
        self.queue = QUEUE
        self.process_queue = ProcessQueue(0)


class Consumer:
    """A consumer whose listeners run at once, in the loop of the test."""

    def __init__(self, listener: ListenerFunction, **settings: Any) -> None:
        self.config = make_config(PushConfig, {"name_server": "x:1", **settings})
        self.message_model = MessageModel.CLUSTERING
        self.group = "readers"
        self.clock = ManualClock(1_000_000)
        self.namespace = NO_NAMESPACE
        self.consume_hooks = ConsumeHooks(self.group, NO_NAMESPACE)
        self.stats = ConsumeStats(elapsed_ms(self.clock))
        self.offsets: OffsetStore = MemoryStore()
        self.thread = cast("LoopThread", self)
        self.instance = cast("ClientInstance", self)
        self.send_back = cast("SendBack", self)
        self.listener = Listener(listener)
        self.sent_back: list[tuple[int, int]] = []
        self.sent_as_new: list[int] = []
        self.refuse = 0
        self.idle = 0
        self.locks = 0
        self.lockable = True
        self.spawned: list[asyncio.Task[Any]] = []
        self.loop = asyncio.get_running_loop()

    def post(self, function: Callable[..., None], *args: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            function(*args)
        else:
            self.loop.call_soon_threadsafe(function, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self.spawned.append(asyncio.get_running_loop().create_task(coroutine))

    async def send(self, message: MessageView, delay_level: int) -> None:
        if self.refuse:
            self.refuse -= 1
            raise ConnectError("no broker")
        self.sent_back.append((message.queue_offset, delay_level))

    async def send_as_new(self, message: MessageView) -> None:
        if self.refuse:
            self.refuse -= 1
            raise ConnectError("no broker")
        self.sent_as_new.append(message.queue_offset)

    def submit(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.run()

    def listener_of(self, message: MessageView) -> Listener:
        return self.listener

    def runner_of(self, listener: Listener) -> Runner:
        return cast("Runner", self)

    def one_listener(self, task: PullTask) -> bool:
        return True

    def progressed(self, task: PullTask, *, idle: bool) -> None:
        self.idle += idle

    async def lock_all(self) -> None:
        self.locks += 1

    async def lock_again(self, task: PullTask) -> bool:
        self.locks += 1
        if self.lockable:
            task.process_queue.lock_granted(elapsed_ms(self.clock))
        return self.lockable


async def quiet(consumer: Consumer, *, timers: int = 0) -> None:
    """Wait for what was spawned, and for ``timers`` more that were set, shortened to nothing."""
    for _ in range(2 + 2 * timers):
        await asyncio.gather(*consumer.spawned)
        await asyncio.sleep(0.001)


def put(task: Task, *numbers: int) -> tuple[list[MessageView], bool]:
    pulled = messages(numbers)
    return pulled, task.process_queue.put(pulled)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(cast("Coroutine[Any, Any, None]", scenario()), 10))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_concurrently, "_RETRY_HERE_SECONDS", 0)
    for name in ("_RELOCK_DELAY_MS", "_NOT_LOCKED_DELAY_MS", "_SOON_MS", "_MIN_SUSPEND_MS"):
        monkeypatch.setattr(consume_orderly, name, 0)
    monkeypatch.setattr(consume_orderly, "_MAX_SUSPEND_MS", 0)


def test_what_no_broker_takes_back_is_consumed_again_here() -> None:
    seen: list[tuple[int, int]] = []

    def listener(batch: list[MessageView]) -> bool:
        seen.extend((message.queue_offset, message.reconsume_times) for message in batch)
        return len(seen) > 3

    async def scenario() -> None:
        consumer = Consumer(listener, consume_batch_size=3)
        consumer.refuse = 2
        service = ConsumeConcurrently(consumer)
        task = Task()
        pulled, _ = put(task, 0, 1, 2)
        service.submit(cast("PullTask", task), pulled, dispatch=True)
        await quiet(consumer, timers=1)
        assert consumer.sent_back == [(2, 0)]
        assert seen == [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1)]
        assert task.process_queue.count == 0
        assert consumer.offsets.get(QUEUE) == 3

    run(scenario)


def test_what_would_be_consumed_again_here_is_left_to_the_queues_next_owner() -> None:
    async def scenario() -> None:
        consumer = Consumer(lambda _: False)
        consumer.refuse = 1
        service = ConsumeConcurrently(consumer)
        task = Task()
        pulled, _ = put(task, 0, 1)
        service.submit(cast("PullTask", task), pulled, dispatch=True)
        task.process_queue.leaving = True
        await quiet(consumer, timers=1)
        assert consumer.idle == 1
        assert offsets(task.process_queue._messages.values()) == [0]
        assert consumer.offsets.get(QUEUE) == 0

    run(scenario)


def test_what_fails_after_the_queue_was_lost_is_left_to_its_next_owner() -> None:
    async def scenario() -> None:
        def listener(batch: list[MessageView]) -> bool:
            task.process_queue.drop()
            return False

        consumer = Consumer(listener)
        task = Task()
        pulled, _ = put(task, 0)
        ConsumeConcurrently(consumer).submit(cast("PullTask", task), pulled, dispatch=True)
        await quiet(consumer)
        assert consumer.sent_back == []
        assert consumer.offsets.get(QUEUE) == -1
        assert consumer.idle == 1

    run(scenario)


def test_messages_a_listener_sits_on_are_sent_back_and_not_twice() -> None:
    release = threading.Event()
    begun = threading.Event()

    def listener(batch: list[MessageView]) -> bool:
        begun.set()
        assert release.wait(10)
        return False

    async def scenario() -> None:
        consumer = Consumer(listener, consume_batch_size=2, consume_timeout_ms=60_000)
        service = ConsumeConcurrently(consumer)
        task = Task()
        pulled, _ = put(task, 5, 6)
        submit = asyncio.to_thread(service.submit, cast("PullTask", task), pulled, dispatch=True)
        running = asyncio.create_task(submit)
        assert await asyncio.to_thread(begun.wait, 10)
        consumer.clock.advance(60_000)
        consumer.clock.set_wall_clock(0)  # by which nothing goes here
        await service.send_back_expired()
        assert consumer.sent_back == []
        consumer.clock.advance(1)
        await service.send_back_expired()
        assert consumer.sent_back == [(5, 3), (6, 3)]
        assert task.process_queue.count == 0
        await service.send_back_expired()
        release.set()
        await running
        await quiet(consumer)
        assert len(consumer.sent_back) == 2

    run(scenario)


def test_of_each_queue_sixteen_at_most_are_sent_back_from_the_first_on() -> None:
    """Java's cleanExpiredMsg looks at the first message of a queue again and again."""

    async def scenario() -> None:
        consumer = Consumer(lambda _: True, consume_timeout_ms=60_000)
        service = ConsumeConcurrently(consumer)
        task = Task()
        pulled, _ = put(task, *range(21))
        for message in [pulled[20], *pulled[:20]]:  # the last began first
            request = consume_concurrently.ConsumeRequest(
                service, cast("PullTask", task), (message,), consumer.listener
            )
            assert service.may_begin(request)
            service.begin(request)
        consumer.clock.advance(60_001)
        await service.send_back_expired()
        assert consumer.sent_back == [(number, 3) for number in range(16)]
        await service.send_back_expired()
        assert consumer.sent_back[16:] == [(number, 3) for number in range(16, 21)]

    run(scenario)


@pytest.mark.parametrize("orderly", [False, True])
def test_calls_are_counted_and_timed(orderly: bool) -> None:
    told: list[str] = []

    class Hook:
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            pass

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            told.append(context.props[CONSUME_CONTEXT_TYPE])

    async def scenario() -> None:
        def listener(batch: list[MessageView]) -> bool:
            consumer.clock.advance(1000 if batch[0].queue_offset else 3000)
            return batch[0].queue_offset != 2 or batch[0].reconsume_times > 0

        consumer = Consumer(listener, consume_batch_size=2, consume_timeout_ms=3000)
        consumer.consume_hooks.register(Hook())
        service = ConsumeOrderly(consumer) if orderly else ConsumeConcurrently(consumer)
        task = Task()
        task.process_queue.lock_granted(elapsed_ms(consumer.clock))
        pulled, dispatch = put(task, *range(5))
        service.submit(cast("PullTask", task), pulled, dispatch=dispatch)
        await quiet(consumer, timers=1)
        status = consumer.stats.status("orders", elapsed_ms(consumer.clock))
        assert status.consume_failed_msgs == 2
        if orderly:  # the two that failed were consumed again at once
            assert told == ["TIME_OUT", "FAILED", "SUCCESS", "SUCCESS"]
            assert status.consume_ok_tps == 0.5
            assert status.consume_rt == 1500
        else:
            assert told == ["TIME_OUT", "FAILED", "SUCCESS"]
            assert status.consume_ok_tps == 0.3
            assert status.consume_rt == pytest.approx(5000 / 3)

    run(scenario)


def test_an_expired_message_that_cannot_be_sent_back_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        consumer = Consumer(lambda _: True, consume_timeout_ms=60_000)
        service = ConsumeConcurrently(consumer)
        task = Task()
        pulled, _ = put(task, 5)
        request = consume_concurrently.ConsumeRequest(
            service, cast("PullTask", task), tuple(pulled), consumer.listener
        )
        assert service.may_begin(request)
        service.begin(request)
        consumer.clock.advance(60_001)
        consumer.refuse = 1
        await service.send_back_expired()
        assert task.process_queue.count == 1
        assert "was not sent back" in caplog.text
        consumer.message_model = MessageModel.BROADCASTING
        await service.send_back_expired()
        assert consumer.sent_back == []

    run(scenario)


def test_statuses_of_the_other_kind_are_failures_or_success(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        consumer = Consumer(lambda _: ConsumeStatus.COMMIT)
        task = Task()
        pulled, _ = put(task, 0)
        concurrent = ConsumeConcurrently(consumer)
        concurrent.submit(cast("PullTask", task), pulled, dispatch=True)
        await quiet(consumer)
        assert consumer.sent_back == [(0, 0)]
        orderly = Task()
        orderly.process_queue.lock_granted(elapsed_ms(consumer.clock))
        pulled, dispatch = put(orderly, 0, 1)
        ConsumeOrderly(consumer).submit(cast("PullTask", orderly), pulled, dispatch=dispatch)
        assert orderly.process_queue.count == 0
        assert "only for orderly listeners" in caplog.text
        assert "means SUCCESS" in caplog.text

    run(scenario)


def test_a_queue_whose_lock_ran_out_waits_for_a_new_one() -> None:
    seen: list[int] = []

    async def scenario() -> None:
        consumer = Consumer(lambda batch: seen.append(batch[0].queue_offset))
        consumer.lockable = False
        service = ConsumeOrderly(consumer)
        task = Task()
        task.process_queue.lock_granted(elapsed_ms(consumer.clock) - LOCK_EXPIRES_MS - 1)
        pulled, dispatch = put(task, 0, 1)
        service.submit(cast("PullTask", task), pulled, dispatch=dispatch)
        await quiet(consumer, timers=1)
        assert consumer.locks > 1
        assert seen == []
        consumer.lockable = True
        await quiet(consumer, timers=2)
        assert seen == [0, 1]
        assert not task.process_queue.consuming

    run(scenario)


def test_after_a_minute_other_queues_have_their_turn() -> None:
    async def scenario() -> None:
        def listener(batch: list[MessageView]) -> None:
            runs.append(consumer.submissions)
            consumer.clock.advance(25_000)
            task.process_queue.lock_granted(elapsed_ms(consumer.clock))

        class Counting(Consumer):
            submissions = 0

            def submit(self, jobs: Iterable[Job]) -> None:
                self.submissions += 1
                super().submit(jobs)

        runs: list[int] = []
        consumer = Counting(listener)
        task = Task()
        task.process_queue.lock_granted(elapsed_ms(consumer.clock))
        pulled, dispatch = put(task, *range(5))
        ConsumeOrderly(consumer).submit(cast("PullTask", task), pulled, dispatch=dispatch)
        await quiet(consumer, timers=1)
        assert runs == [1, 1, 1, 2, 2]

    run(scenario)


def test_a_message_that_cannot_be_given_up_is_consumed_once_more() -> None:
    seen: list[int] = []

    def listener(batch: list[MessageView]) -> bool:
        seen.append(batch[0].queue_offset)
        return batch[0].queue_offset != 0

    async def scenario() -> None:
        consumer = Consumer(listener, max_reconsume_times=0)
        consumer.refuse = 1
        task = Task()
        task.process_queue.lock_granted(elapsed_ms(consumer.clock))
        pulled, dispatch = put(task, 0, 1)
        ConsumeOrderly(consumer).submit(cast("PullTask", task), pulled, dispatch=dispatch)
        await quiet(consumer, timers=2)
        assert seen == [0, 0, 1]
        assert consumer.sent_as_new == [0]
        assert consumer.offsets.get(QUEUE) == 2

    run(scenario)


def test_a_leaving_queue_is_left_alone() -> None:
    async def scenario() -> None:
        consumer = Consumer(lambda _: pytest.fail("nobody may consume it"))
        task = Task()
        task.process_queue.lock_granted(elapsed_ms(consumer.clock))
        pulled, dispatch = put(task, 0)
        task.process_queue.leaving = True
        ConsumeOrderly(consumer).submit(cast("PullTask", task), pulled, dispatch=dispatch)
        ConsumeConcurrently(consumer).submit(cast("PullTask", task), pulled, dispatch=True)
        await quiet(consumer)
        assert task.process_queue.count == 1

    run(scenario)


@pytest.mark.parametrize("orderly", [False, True])
def test_a_cancelled_coroutine_has_failed(orderly: bool) -> None:
    async def listener(_: list[MessageView]) -> None:
        await asyncio.Event().wait()

    async def scenario() -> None:
        jobs: list[asyncio.Task[None]] = []

        class Spawning(Consumer):
            def submit(self, submitted: Iterable[Job]) -> None:
                jobs.extend(asyncio.create_task(job.run_async()) for job in submitted)

        consumer = Spawning(listener)
        task = Task()
        task.process_queue.lock_granted(elapsed_ms(consumer.clock))
        pulled, dispatch = put(task, 0)
        service = ConsumeOrderly(consumer) if orderly else ConsumeConcurrently(consumer)
        service.submit(cast("PullTask", task), pulled, dispatch=dispatch)
        await asyncio.sleep(0)
        jobs[0].cancel()
        await asyncio.gather(*jobs[:1], return_exceptions=True)
        task.process_queue.leaving = True
        await quiet(consumer)
        assert task.process_queue.running == 0
        assert bool(consumer.sent_back) is not orderly
        for job in jobs:
            job.cancel()
        await asyncio.gather(*jobs, return_exceptions=True)

    run(scenario)
