"""Polls that are interrupted or cancelled, and consumers that end before the work: none is lost."""

from __future__ import annotations

import asyncio
import linecache
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from orbitmq import AsyncLitePullConsumer, ConsumeMessageContext, LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.lite_pull.assignment import LitePullAssignment
from orbitmq.consumer.process_queue import ProcessQueue
from orbitmq.errors import ClientStateError
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.lite_pull.lite_pulling import QUEUES, drain, make, numbers, send
from tests.consumer.records import messages, offsets
from tests.waiting import until

NOW = 1_000_000
COUNT = 100
_DEAF = ("with ", "return ")


# Ctrl-C


class CtrlC:
    """Raises KeyboardInterrupt before a line of the code under test, once.

    Not where a ``with`` statement begins or ends, nor at a return: Python sees to signals when
    something is called, or a loop goes on.
    """

    def __init__(self, line: int) -> None:
        self._left = line
        self.came = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.endswith(("assignment.py", "process_queue.py")):
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and not self.came and not line.lstrip().startswith(_DEAF):
            self._left -= 1
            if self._left < 0:
                self.came = True
                raise KeyboardInterrupt
        return self

    @contextmanager
    def during(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            yield
        finally:
            sys.settrace(before)


@pytest.mark.parametrize("take", [LitePullAssignment.take, LitePullAssignment.take_one])
def test_ctrl_c_at_any_line_of_a_poll_loses_nothing(
    take: Callable[[LitePullAssignment, int], object],
) -> None:
    for line in range(1000):
        assignment = LitePullAssignment()
        assigned = assignment.add(QUEUES[0], ProcessQueue(NOW))
        for pulled in ([0, 1, 2], [5], [6]):
            assignment.put(assigned, messages(pulled), pulled[-1] + 1)
        assignment.take_one(NOW)
        ctrl_c = CtrlC(line)
        try:
            with ctrl_c.during():
                take(assignment, NOW)
        except KeyboardInterrupt:
            assignment.begin_poll(0.0)
            assert (assignment.cached, assigned.settled) == (4, 1), line
            held = assigned.process_queue
            assert held.size == sum(one.store_size for one in held._messages.values()), line
            seen = []
            while (more := assignment.take(NOW)) is not None:
                seen += offsets(more)
            assert seen == [1, 2, 5, 6], line
            assert (assignment.cached, assigned.process_queue.size, assigned.position) == (0, 0, 7)
        if not ctrl_c.came:
            break
    assert line > 10


class Impatient:
    """A hook during which Ctrl-C comes, three times."""

    def __init__(self) -> None:
        self.left = 3

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        if self.left:
            self.left -= 1
            os.kill(os.getpid(), signal.SIGINT)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        """Nothing."""


@pytest.mark.parametrize("one", [False, True])
def test_what_ctrl_c_kept_from_the_user_is_polled_again(
    broker: EmbeddedBroker, producer: Producer, one: bool
) -> None:
    send(producer, COUNT)
    with make(broker) as consumer:
        hook = Impatient()
        consumer.register_consume_message_hook(hook)
        consumer.subscribe("orders")
        seen: list[MessageView] = []
        while len(seen) < COUNT:
            try:
                seen += [next(consumer)] if one else consumer.poll(5)
            except KeyboardInterrupt:
                continue
        assert hook.left == 0
        assert numbers(seen) == list(range(COUNT))


# Cancelled calls


def make_async(broker: EmbeddedBroker, **settings: Any) -> AsyncLitePullConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    return AsyncLitePullConsumer("readers", name_server=broker.name_server, **settings)


def run_async(scenario: Any, *args: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(*args), 30))


def work() -> None:
    """Work that waits for nothing, for so long that it is another task's turn then."""
    time.sleep(0.006)


async def read(consumer: AsyncLitePullConsumer, count: int) -> list[MessageView]:
    seen: list[MessageView] = []
    while len(seen) < count:
        seen += await consumer.poll(5)
    return seen


@pytest.mark.parametrize("one", [False, True])
def test_a_cancelled_poll_of_a_full_cache_has_taken_nothing(
    broker: EmbeddedBroker, producer: Producer, one: bool
) -> None:
    send(producer, COUNT)

    async def scenario() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe("orders")
            await until(lambda: consumer._core.assignment.cached == COUNT)
            seen: list[MessageView] = []
            for _ in range(5):
                call = anext(consumer) if one else consumer.poll(5)
                work()
                task = asyncio.ensure_future(call)
                await asyncio.sleep(0)
                if task.cancel():
                    with pytest.raises(asyncio.CancelledError):
                        await task
                else:
                    result: Any = task.result()
                    seen += [result] if one else result
            seen += await read(consumer, COUNT - len(seen))
            assert numbers(seen) == list(range(COUNT))

    run_async(scenario)


@pytest.mark.parametrize("one", [False, True])
def test_a_cancel_between_the_wake_up_and_the_poll_takes_nothing(
    broker: EmbeddedBroker, producer: Producer, one: bool
) -> None:
    send(producer, 1)

    async def scenario() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe("orders")
            await read(consumer, 1)
            loop = asyncio.get_running_loop()
            for number in range(5):
                task = asyncio.ensure_future(anext(consumer) if one else consumer.poll(20))
                await until(lambda: consumer._core.assignment._waiters)
                # This loop stands still until the wake-up has been posted to it ...
                send(producer, 1, queue=number % 4)
                wait_until(lambda: not consumer._core.assignment._waiters)
                # ... and cancels the task after that, but before the task goes on.
                loop.call_soon(task.cancel)
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert len(await consumer.poll(5)) == 1

    run_async(scenario)


def test_polls_cut_short_by_time_outs_lose_nothing(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    async def scenario() -> None:
        async with make_async(broker, pull_batch_size=1) as consumer:
            consumer.subscribe("orders")
            sending = asyncio.create_task(asyncio.to_thread(send, producer, COUNT))
            seen: list[MessageView] = []
            cut = 0
            while len(seen) < COUNT:
                try:
                    if cut % 2:
                        async with asyncio.timeout(0.0005):
                            seen += await consumer.poll(5)
                    else:
                        seen += await asyncio.wait_for(consumer.poll(5), 0.0005)
                except TimeoutError:
                    cut += 1
            await sending
            assert cut
            assert numbers(seen) == list(range(COUNT))

    run_async(scenario)


# Consumers that end before the work


def rest(broker: EmbeddedBroker, count: int) -> set[int]:
    """What another consumer of the group gets, at least ``count`` messages."""
    with make(broker) as consumer:
        consumer.subscribe("orders")
        seen: set[int] = set()

        def all_seen() -> bool:
            seen.update(numbers(consumer.poll(0.5)))
            return len(seen) >= count

        wait_until(all_seen)
        return seen


def test_a_task_cancelled_at_work_and_a_shutdown_leave_the_work_to_the_next(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, COUNT)
    done: set[int] = set()

    async def scenario() -> None:
        consumer = make_async(broker)
        consumer.subscribe("orders")
        await consumer.start()
        at_work = asyncio.Event()

        async def work() -> None:
            while True:
                polled = await consumer.poll()
                if len(done) > COUNT // 2:
                    at_work.set()
                    await asyncio.sleep(60)
                done.update(numbers(polled))

        task = asyncio.create_task(work())
        await at_work.wait()
        task.cancel()
        await consumer.shutdown()

    run_async(scenario)
    assert len(done) < COUNT
    assert done | rest(broker, COUNT - len(done)) == set(range(COUNT))


def test_a_worker_stopped_by_an_event_leaves_the_rest_of_its_poll_to_the_next(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, COUNT)
    done: set[int] = set()
    stop = threading.Event()

    def work() -> None:
        with make(broker) as consumer:
            consumer.subscribe("orders")
            while not stop.is_set():
                for message in consumer.poll(1):
                    if stop.is_set():
                        return
                    done.add(int(message.body))
                    if len(done) == 44:
                        stop.set()

    work()
    assert len(done) == 44
    assert done | rest(broker, COUNT - 44) == set(range(COUNT))


def by_break(consumer: LitePullConsumer) -> None:
    for message in consumer:
        if message.body == b"33":
            break


def by_ctrl_c(consumer: LitePullConsumer) -> None:
    for message in consumer:
        if message.body == b"33":
            os.kill(os.getpid(), signal.SIGINT)


def by_shutdown(consumer: LitePullConsumer) -> None:
    for message in consumer:
        if message.body == b"33":
            consumer.shutdown()
            return


@pytest.mark.parametrize("leave", [by_break, by_ctrl_c, by_shutdown])
def test_the_message_at_which_a_loop_was_left_comes_again(
    broker: EmbeddedBroker, producer: Producer, leave: Callable[[LitePullConsumer], None]
) -> None:
    send(producer, 40, queue=1)
    try:
        with make(broker) as consumer:
            consumer.subscribe("orders")
            leave(consumer)
    except KeyboardInterrupt:
        assert leave is by_ctrl_c
    with make(broker) as consumer:
        consumer.subscribe("orders")
        assert next(consumer).body == b"33"


def test_a_script_that_polls_once_gets_the_same_again_unless_it_commits(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)

    def script(*, commit: bool) -> list[int]:
        with make(broker) as consumer:
            consumer.subscribe("orders")
            polled = numbers(drain(consumer, 10))
            if commit:
                consumer.commit()
            return polled

    assert [script(commit=True), script(commit=False), script(commit=True)] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(10, 20)),
    ]


def test_a_commit_is_of_what_was_polled_when_it_was_called(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)

    async def scenario() -> None:
        async with make_async(broker, auto_commit=False) as consumer:
            consumer.subscribe("orders")
            await until(lambda: consumer._core.assignment.cached == 30)
            await consumer.poll()
            committing = asyncio.create_task(consumer.commit_sync())
            held = threading.Event()
            consumer._core.thread.post(held.wait)  # the private loop comes to it later
            await asyncio.sleep(0)
            committing.cancel()
            await consumer.poll()
            held.set()
            with pytest.raises(asyncio.CancelledError):
                await committing
            assert await consumer.committed(QUEUES[1]) == 10

    run_async(scenario)


# Iterating


def test_only_a_consumer_that_runs_is_iterated(broker: EmbeddedBroker) -> None:
    async def refuses(consumer: AsyncLitePullConsumer) -> None:
        with pytest.raises(ClientStateError, match="state is"):
            aiter(consumer)
        with pytest.raises(ClientStateError, match="state is"):
            await anext(consumer)

    async def scenario() -> None:
        consumer = make_async(broker)
        await refuses(consumer)
        async with consumer:
            loop = aiter(consumer)
        assert [message async for message in loop] == []  # one under way ends quietly
        await refuses(consumer)

    run_async(scenario)


@pytest.mark.parametrize("one", [False, True])
def test_other_tasks_have_their_turn_while_a_full_cache_is_polled(
    broker: EmbeddedBroker, producer: Producer, one: bool
) -> None:
    send(producer, 40)

    async def scenario() -> None:
        async with make_async(broker, pull_batch_size=1) as consumer:
            consumer.subscribe("orders")
            await until(lambda: consumer._core.assignment.cached == 40)
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in range(40):
                if one:
                    await anext(consumer)
                else:
                    assert len(await consumer.poll()) == 1
                work()
            task.cancel()
            assert turns >= 39

    run_async(scenario)
