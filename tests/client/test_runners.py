"""Runners: pools of threads and of tasks, in which no job is forgotten and none begins too many."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from orbitmq.client import runners
from orbitmq.client.listener_loop import ListenerLoop
from orbitmq.client.runners import Job, Jobs, Reminder, Runner, TaskRunner, ThreadRunner
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until


class Note:
    """A job that notes where and when it ran."""

    void = False

    def __init__(self, log: list[object], entry: object = None) -> None:
        self.log = log
        self.entry = entry

    def run(self) -> None:
        self.log.append(self.entry or threading.current_thread().name)

    async def run_async(self) -> None:
        await asyncio.sleep(0)
        self.run()


class Block:
    """A job that waits until it is let go."""

    void = False

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.release = threading.Event()

    def run(self) -> None:
        self.begun.set()
        assert self.release.wait(10)

    async def run_async(self) -> None:
        self.begun.set()
        await asyncio.to_thread(self.release.wait, 10)


def test_a_pool_runs_as_many_jobs_at_once_as_it_has_threads() -> None:
    runner = ThreadRunner(3, "pool")
    blocks = [Block() for _ in range(4)]
    runner.submit(blocks)
    for block in blocks[:3]:
        assert block.begun.wait(10)
    assert not blocks[3].begun.is_set()
    blocks[1].release.set()
    assert blocks[3].begun.wait(10)
    for block in blocks:
        block.release.set()
    runner.stop()


def test_a_pool_begins_jobs_in_order_and_reuses_its_threads() -> None:
    runner = ThreadRunner(5, "pool")
    log: list[object] = []
    for number in range(200):
        runner.submit([Note(log, number + 1)])
    wait_until(lambda: len(log) == 200)
    runner.submit([Note(log)])
    wait_until(lambda: len(log) == 201)
    assert str(log[-1]).startswith("pool-")
    runner.stop()


def test_a_stopped_pool_forgets_what_was_not_begun_and_ends_its_threads() -> None:
    runner = ThreadRunner(1, "stopped-pool")
    block, log = Block(), list[object]()
    runner.submit([block, Note(log)])
    assert block.begun.wait(10)
    runner.stop()
    block.release.set()
    wait_until(lambda: not any("stopped-pool" in t.name for t in threading.enumerate()))
    assert log == []


class Broken(Note):
    """A job that raises what is no failure of its own."""

    def __init__(self, error: BaseException) -> None:
        super().__init__([])
        self.error = error

    def run(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("broken job"),
        SystemExit("broken job"),
        KeyboardInterrupt("broken job"),
        GeneratorExit("broken job"),
        asyncio.CancelledError("broken job"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_whatever_a_job_raises_the_next_one_is_done(
    kind: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    loop = ListenerLoop("loop")
    runner = ThreadRunner(1, "pool") if kind == "threads" else TaskRunner(loop.loop, 1)
    log: list[object] = []
    runner.submit([Broken(error), Note(log, 1), Broken(error), Note(log, 2)])
    wait_until(lambda: log == [1, 2])
    assert caplog.text.count("broken job") >= 2
    runner.stop()
    loop.stop().result(10)


def test_a_task_that_its_job_cancels_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    class Suicide(Note):
        async def run_async(self) -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await super().run_async()

    monkeypatch.setattr(runners, "_RETRY_SECONDS", 0.01)
    loop = ListenerLoop("loop")
    runner = TaskRunner(loop.loop, 1)
    log: list[object] = []
    runner.submit([Suicide(log, "never"), Note(log, 1), Suicide(log, "never"), Note(log, 2)])
    wait_until(lambda: log == [1, 2])
    loop.stop().result(10)


def test_tasks_that_all_are_cancelled_before_they_begin_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runners, "_RETRY_SECONDS", 0.01)
    loop = ListenerLoop("loop")
    runner = TaskRunner(loop.loop, 3)
    log: list[object] = []

    def begin_and_cancel() -> None:
        runner._start([Note(log, number + 1) for number in range(3)])
        for task in asyncio.all_tasks(loop.loop):
            task.cancel()

    loop.loop.call_soon_threadsafe(begin_and_cancel)
    wait_until(lambda: sorted(map(str, log)) == ["1", "2", "3"])
    loop.stop().result(10)


def test_a_listener_loop_goes_on_whatever_is_done_to_it(caplog: pytest.LogCaptureFixture) -> None:
    """A task that nobody awaits may raise SystemExit, and a listener may stop its loop."""
    loop = ListenerLoop("the-loop")
    runner = TaskRunner(loop.loop, 1)
    log: list[object] = []
    harm: list[Callable[[], object]] = [sys.exit, loop.loop.stop]
    for number, harmful in enumerate(harm):
        loop.loop.call_soon_threadsafe(harmful)
        runner.submit([Note(log, number + 1)])
        wait_until(partial(done_of, log, number + 1))
    assert "the-loop, which goes on" in caplog.text
    loop.stop().result(10)


def done_of(log: list[object], count: int) -> bool:
    return len(log) == count


def test_a_listener_loop_that_is_kept_busy_is_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = ListenerLoop("busy-loop")
    block = Block()
    loop.loop.call_soon_threadsafe(block.run)
    assert block.begun.wait(10)
    asyncio.run(loop.end())
    assert "busy-loop is left behind" in caplog.text
    block.release.set()
    loop.stop().result(10)
    asyncio.run(loop.end())  # again does nothing


@contextmanager
def threads_that_start(
    allowed: Callable[[str], bool], monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[str]]:
    """The system starts no thread of a pool whose name ``allowed`` does not allow."""
    refused: list[str] = []
    start = threading.Thread.start

    def limited(self: threading.Thread) -> None:
        if "limited-pool" in self.name and not allowed(self.name):
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        patch.setattr(runners, "_RETRY_SECONDS", 0.02)
        yield refused


def test_a_thread_that_did_not_start_leaves_no_place_empty(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def allowed(name: str) -> bool:
        return name != "limited-pool-3" or bool(refused)

    with threads_that_start(allowed, monkeypatch) as refused:
        runner = ThreadRunner(20, "limited-pool")
        blocks = [Block() for _ in range(20)]
        runner.submit(blocks)
        for block in blocks:
            assert block.begun.wait(10)
    assert refused == ["limited-pool-3"]
    assert "2 threads of 20" in caplog.text
    assert "Raise its limit" in caplog.text
    for block in blocks:
        block.release.set()
    runner.stop()


def test_the_threads_there_are_do_all_jobs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with threads_that_start(lambda name: name.endswith(("-1", "-2")), monkeypatch) as refused:
        runner = ThreadRunner(20, "limited-pool")
        log: list[object] = []
        blocks = [Block(), Block()]
        runner.submit([*blocks, *(Note(log, "job") for _ in range(50))])
        wait_until(lambda: len(refused) >= 3)  # it is tried again and again
        for block in blocks:
            block.release.set()
        wait_until(lambda: len(log) == 50)
        assert runner.lost() is None
        assert caplog.text.count("can't start new thread") == 1
        runner.stop()


def test_a_pool_without_any_thread_gets_one_later(monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()
    with threads_that_start(lambda _: free.is_set(), monkeypatch) as refused:
        runner = ThreadRunner(5, "limited-pool")
        log: list[object] = []
        runner.submit([Note(log, "job")])
        wait_until(lambda: len(refused) >= 3)
        assert log == []
        free.set()
        wait_until(lambda: log == ["job"])
        assert runner.lost() is None
        runner.stop()


def test_without_any_thread_the_runner_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    with threads_that_start(lambda _: False, monkeypatch):
        runner = ThreadRunner(5, "limited-pool")
        assert runner.lost() is None
        runner.submit([Note([])])
        wait_until(lambda: "can't start new thread" in str(runner.lost()))
        runner.stop()


def test_jobs_of_queues_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue may come and go while all listeners are stuck: each time its messages come along."""
    monkeypatch.setattr(runners, "_MANY_JOBS", 10)
    jobs, kept = Jobs(), list[Job]()
    for _ in range(100):
        batch = [Note([]) for _ in range(8)]
        jobs.add(batch)
        kept.append(batch[0])
        for job in batch[1:]:
            job.void = True
    assert len(jobs) <= 2 * len(kept) + 8
    assert [job for job in jobs if not job.void] == kept


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_runner_knows_its_own(kind: str) -> None:
    loop = ListenerLoop("loop")
    runner: Runner = ThreadRunner(1, "pool") if kind == "threads" else TaskRunner(loop.loop, 1)
    seen: list[object] = []

    class Look(Note):
        def run(self) -> None:
            seen.append(runner.is_here())

    runner.submit([Look([])])
    wait_until(lambda: seen == [True])
    asyncio.run(runner.run_apart(Look([])))
    assert seen == [True, True]
    assert not runner.is_here()
    runner.stop()
    loop.stop().result(10)


def test_a_reminder_comes_back_while_something_waits(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    loop = ListenerLoop("loop")
    runner = TaskRunner(loop.loop, 1)
    reminder = Reminder("readers", clock)
    wait_until(loop.loop.is_running)
    reminder.look([runner], "messages", lambda: 7)
    assert not caplog.records
    loop.stop().result(10)
    reminder.look([runner], "messages", lambda: 0)
    assert not caplog.records
    for seconds, times in [(0, 1), (9, 1), (1, 2), (10, 3)]:
        clock.advance(seconds * 1000)
        reminder.look([runner], "messages", lambda: 7)
        assert caplog.text.count("group readers holds 7 messages") == times


def test_tasks_are_limited_too() -> None:
    loop = ListenerLoop("loop")
    runner = TaskRunner(loop.loop, 2)
    blocks = [Block() for _ in range(3)]
    runner.submit(blocks)
    for block in blocks[:2]:
        assert block.begun.wait(10)
    assert not blocks[2].begun.is_set()
    blocks[0].release.set()
    assert blocks[2].begun.wait(10)
    for block in blocks:
        block.release.set()
    loop.stop().result(10)


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_no_job_is_forgotten_however_they_come(kind: str) -> None:
    """Jobs that come just when the last one ends must find somebody."""
    loop = ListenerLoop("loop")
    runner: Runner = ThreadRunner(4, "pool") if kind == "threads" else TaskRunner(loop.loop, 4)
    log: list[object] = []
    for number in range(500):
        runner.submit([Note(log, "job") for _ in range(number % 7)])
        if number % 3 == 0:
            wait_until(partial(done, log, number))
    wait_until(partial(done, log, 499))
    runner.stop()
    loop.stop().result(10)


def done(log: list[object], number: int) -> bool:
    return len(log) == sum(n % 7 for n in range(number + 1))


def test_a_listener_that_never_waits_leaves_others_their_turn() -> None:
    class Greedy(Note):
        async def run_async(self) -> None:
            threading.Event().wait(0.002)  # busy without an await
            self.log.append("job")

    loop = ListenerLoop("loop")
    runner = TaskRunner(loop.loop, 1)
    log: list[object] = []
    runner.submit([Greedy(log) for _ in range(50)])
    loop.loop.call_soon_threadsafe(lambda: log.append("other"))
    wait_until(lambda: len(log) == 51)
    assert log.index("other") < 50
    runner.stop()
    loop.stop().result(10)


def test_jobs_for_a_closed_loop_are_given_up_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = ListenerLoop("loop")
    loop.stop().result(10)
    runner = TaskRunner(loop.loop, 1)
    for _ in range(3):
        runner.submit([Note([])])
    runner.resize(2)
    runner.stop()
    assert caplog.text.count("is closed") == 1
    assert "start a new one" in str(runner.lost())


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_pool_grows_and_shrinks_while_it_works(kind: str) -> None:
    loop = ListenerLoop("loop")
    runner: Runner = ThreadRunner(1, "pool") if kind == "threads" else TaskRunner(loop.loop, 1)
    blocks = [Block() for _ in range(6)]
    runner.submit(blocks)
    assert blocks[0].begun.wait(10)
    assert not blocks[1].begun.is_set()
    runner.resize(3)
    for block in blocks[:3]:
        assert block.begun.wait(10)
    assert not blocks[3].begun.is_set()
    runner.resize(1)
    for block in blocks[:2]:
        block.release.set()
    runner.submit([])  # nobody begins the fourth: one is still at work
    assert not blocks[3].begun.wait(0.05)
    blocks[2].release.set()
    assert blocks[3].begun.wait(10)
    assert not blocks[4].begun.is_set()
    for block in blocks:
        block.release.set()
    for block in blocks:
        assert block.begun.wait(10)
    runner.stop()
    loop.stop().result(10)


def test_idle_threads_too_many_end() -> None:
    runner = ThreadRunner(4, "shrinking-pool")
    blocks = [Block() for _ in range(4)]
    runner.submit(blocks)
    for block in blocks:
        assert block.begun.wait(10)
        block.release.set()
    runner.resize(1)
    wait_until(lambda: sum("shrinking-pool" in t.name for t in threading.enumerate()) == 1)
    log: list[object] = []
    runner.submit([Note(log, "job") for _ in range(10)])
    wait_until(lambda: len(log) == 10)
    runner.stop()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_job_apart_runs_although_the_pool_is_full(kind: str) -> None:
    loop = ListenerLoop("loop")
    runner: Runner = ThreadRunner(1, "pool") if kind == "threads" else TaskRunner(loop.loop, 1)
    block, log = Block(), list[object]()
    runner.submit([block])
    assert block.begun.wait(10)
    asyncio.run(runner.run_apart(Note(log, "apart")))
    assert log == ["apart"]
    block.release.set()
    runner.stop()
    loop.stop().result(10)
