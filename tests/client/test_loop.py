"""The private loop: hand-over in order and in bursts, blocking waits, callbacks, fork and exit."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from orbitmq.client.loop import loop_thread
from orbitmq.client.mailbox import Mailbox, Waiter
from orbitmq.errors import ClientStateError
from orbitmq.testing.wait import wait_until
from tests.program import run_python


class HandCrankedLoop:
    """Stands for a loop: counts its wake-ups and runs them when told to."""

    def __init__(self) -> None:
        self.scheduled: list[Callable[[], None]] = []
        self.wake_ups = 0

    def call_soon_threadsafe(self, function: Callable[[], None]) -> None:
        self.wake_ups += 1
        self.scheduled.append(function)

    def call_soon(self, function: Callable[[], None]) -> None:
        self.scheduled.append(function)

    def turn(self) -> None:
        scheduled, self.scheduled = self.scheduled, []
        for function in scheduled:
            function()


def mailbox_of(loop: HandCrankedLoop) -> Mailbox:
    return Mailbox(loop)  # type: ignore[arg-type]


def test_a_burst_of_posts_wakes_the_loop_once_and_keeps_its_order() -> None:
    loop = HandCrankedLoop()
    mailbox = mailbox_of(loop)
    seen: list[int] = []
    for number in range(1000):
        mailbox.post(seen.append, number)
    loop.turn()
    assert loop.wake_ups == 1
    assert seen == list(range(1000))
    mailbox.post(seen.append, 1000)
    loop.turn()
    assert loop.wake_ups == 2
    assert seen[-1] == 1000


def test_what_is_posted_while_the_loop_works_off_the_mailbox_is_not_forgotten() -> None:
    loop = HandCrankedLoop()
    mailbox = mailbox_of(loop)
    seen: list[str] = []

    def first() -> None:
        seen.append("first")
        mailbox.post(seen.append, "second")

    mailbox.post(first)
    loop.turn()
    assert seen == ["first"]
    loop.turn()
    assert seen == ["first", "second"]
    assert loop.wake_ups == 2


@pytest.mark.parametrize("woken", [False, True])
def test_a_post_interrupted_at_the_wake_up_is_made_up_for_by_the_next(woken: bool) -> None:
    loop = HandCrankedLoop()
    mailbox = mailbox_of(loop)
    seen: list[int] = []
    wake = loop.call_soon_threadsafe

    def interrupted(function: Callable[[], None]) -> None:
        if woken:
            wake(function)
        raise KeyboardInterrupt

    loop.call_soon_threadsafe = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        mailbox.post(seen.append, 0)
    loop.call_soon_threadsafe = wake  # type: ignore[method-assign]
    mailbox.post(seen.append, 1)
    loop.turn()
    assert seen == [0, 1]
    mailbox.post(seen.append, 2)
    loop.turn()
    assert seen == [0, 1, 2]


def test_work_that_a_signal_interrupts_goes_on_in_another_turn() -> None:
    loop = HandCrankedLoop()
    mailbox = mailbox_of(loop)
    seen: list[int] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    mailbox.post(interrupted)
    mailbox.post(seen.append, 1)
    with pytest.raises(KeyboardInterrupt):
        loop.turn()
    loop.turn()
    assert seen == [1]


def test_a_call_that_fails_is_logged_and_the_next_still_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = HandCrankedLoop()
    mailbox = mailbox_of(loop)
    seen: list[int] = []
    mailbox.post(int, "no number")
    mailbox.post(seen.append, 1)
    loop.turn()
    assert seen == [1]
    assert "no number" in caplog.text


def test_threads_that_post_at_once_each_keep_their_order() -> None:
    seen: dict[int, list[int]] = {writer: [] for writer in range(4)}

    def write(writer: int) -> None:
        for number in range(2000):
            loop_thread().post(seen[writer].append, number)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    wait_until(lambda: all(len(numbers) == 2000 for numbers in seen.values()), "all posts")
    assert all(numbers == list(range(2000)) for numbers in seen.values())


async def double(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def fail() -> None:
    raise ValueError("on purpose")


def test_run_gives_the_result_or_raises_the_error() -> None:
    assert loop_thread().run(double(21)) == 42
    with pytest.raises(ValueError, match="on purpose"):
        loop_thread().run(fail())


def test_run_cancels_what_takes_too_long() -> None:
    cancelled = threading.Event()

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(TimeoutError):
        loop_thread().run(long(), timeout_seconds=0.01)
    assert cancelled.wait(5)


def test_a_blocking_call_on_the_private_loop_is_refused_instead_of_hanging() -> None:
    async def block() -> None:
        loop_thread().run(double(1))

    with pytest.raises(ClientStateError, match="asynchronous"):
        loop_thread().run(block())


def test_coroutines_run_for_a_loop_of_the_users() -> None:
    async def main() -> list[int]:
        results = await asyncio.gather(*(loop_thread().run_async(double(n)) for n in range(50)))
        with pytest.raises(ValueError, match="on purpose"):
            await loop_thread().run_async(fail())
        return results

    assert asyncio.run(main()) == [2 * n for n in range(50)]


def test_a_cancelled_caller_cancels_its_coroutine() -> None:
    started = threading.Event()
    cancelled = threading.Event()

    async def long() -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def main() -> None:
        task = asyncio.create_task(loop_thread().run_async(long()))
        await asyncio.to_thread(started.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert cancelled.wait(5)


def test_a_result_for_a_loop_that_is_closed_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "orbitmq.client")

    async def ask() -> Any:
        return loop_thread().answer_to_running_loop()

    answer = asyncio.run(ask())
    answer.set_result(1)
    assert "closed" in caplog.text


def test_a_waiter_times_out_and_passes_errors_on() -> None:
    with pytest.raises(TimeoutError):
        Waiter[int]().wait(0.001)
    waiter: Waiter[int] = Waiter()
    waiter.set_exception(ValueError("given"))
    with pytest.raises(ValueError, match="given"):
        waiter.wait()


def test_callbacks_run_in_order_on_a_thread_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []
    thread = loop_thread()
    before = thread.callbacks_called
    thread.call_back(lambda: seen.append(threading.current_thread().name))
    thread.call_back(int, "no number")
    thread.call_back(sys.exit)
    for number in range(100):
        thread.call_back(seen.append, number)
    wait_until(lambda: thread.callbacks_called == before + 103, "all callbacks")
    assert seen == ["orbitmq-callbacks", *range(100)]
    assert "no number" in caplog.text
    assert "SystemExit" in caplog.text


def test_ctrl_c_interrupts_a_wait() -> None:
    done = run_python(
        """
        import asyncio, os, signal, threading
        from orbitmq.client.loop import loop_thread

        cancelled = threading.Event()

        async def long():
            try:
                await asyncio.sleep(0.3)  # by then the main thread waits
                os.kill(os.getpid(), signal.SIGINT)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise

        try:
            loop_thread().run(long())
        except KeyboardInterrupt:
            print("interrupted", cancelled.wait(5))
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted True\n", "", 0)


def test_a_process_ends_although_a_client_was_not_shut_down() -> None:
    done = run_python(
        """
        import socket
        from orbitmq import Producer

        with socket.create_server(("127.0.0.1", 0)) as nobody:
            producer = Producer("g", name_server="127.0.0.1:%d" % nobody.getsockname()[1])
            producer.start()
            print("started")
        """
    )
    assert (done.stdout, done.returncode) == ("started\n", 0)
    assert "ResourceWarning: producer 'g' was not shut down" in done.stderr


def test_what_is_registered_runs_at_the_end_of_the_process_for_as_long_as_it_may() -> None:
    done = run_python(
        """
        import asyncio
        from orbitmq.client.loop import loop_thread

        thread = loop_thread()

        async def slow():
            await asyncio.sleep(0.05)
            await thread.run_async(asyncio.sleep(0))  # calls still work
            called = asyncio.Event()
            thread.call_back(print, "drained")
            thread.call_back(thread.post, called.set)
            await called.wait()

        async def for_ever():
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                print("cancelled")
                raise

        async def fail():
            raise ValueError("on purpose")

        async def taken_back():
            print("never")

        thread.at_exit(fail, 10)
        thread.at_exit(slow, 10)
        thread.at_exit(for_ever, 0.2)
        thread.at_exit(taken_back, 10)()
        print("end")
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("end\ndrained\ncancelled\n", "", 0)


def test_a_forked_child_gets_a_thread_of_its_own() -> None:
    done = run_python(
        """
        import os, warnings
        from orbitmq.client.loop import loop_thread
        from orbitmq.errors import ClientStateError

        async def answer():
            return os.getpid()

        of_parent = loop_thread()
        of_parent.run(answer())
        warnings.simplefilter("ignore", DeprecationWarning)  # fork beside threads, from 3.12 on
        child = os.fork()
        if not child:
            try:
                of_parent.run(answer())
            except ClientStateError as error:
                assert "fork" in str(error)
                os._exit(7 if loop_thread().run(answer()) == os.getpid() else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    )
    assert (done.stdout, done.stderr, done.returncode) == ("7\n", "", 0)
