"""Runners: pools of threads and of tasks, in which no job is forgotten and none begins too many."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from orbitmq.consumer.listener_loop import ListenerLoop
from orbitmq.consumer.runners import Runner, TaskRunner, ThreadRunner
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


def test_a_job_that_fails_leaves_the_pool_whole(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Note):
        def run(self) -> None:
            raise RuntimeError("broken job")

    loop = ListenerLoop("loop")
    log: list[object] = []
    runners: list[Runner] = [ThreadRunner(1, "pool"), TaskRunner(loop.loop, 1)]
    for runner in runners:
        runner.submit([Broken(log), Note(log)])
    wait_until(lambda: len(log) == 2)
    for runner in runners:
        runner.stop()
    loop.stop().result(10)
    assert caplog.text.count("broken job") >= 2


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
    TaskRunner(loop.loop, 1).submit([Note([])])
    assert "closed" in caplog.text


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
