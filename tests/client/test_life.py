"""Start and shutdown of all clients: cancelled, called again, forgotten."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from orbitmq import (
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPullConsumerScheduleService,
    AsyncPushConsumer,
    ClientStateError,
    Message,
    Producer,
    PushConsumer,
)
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client.core import ClientCore
from orbitmq.client.lifecycle import ServiceState
from orbitmq.client.loop import loop_thread
from orbitmq.testing.wait import wait_until

MAKERS: dict[str, Callable[[str], Any]] = {
    "producer": lambda server: AsyncProducer("g", name_server=server),
    "push": lambda server: AsyncPushConsumer("g", print, name_server=server),
    "lite pull": lambda server: AsyncLitePullConsumer("g", name_server=server),
    "pull": lambda server: AsyncPullConsumer("g", name_server=server),
    "schedule": lambda server: AsyncPullConsumerScheduleService("g", name_server=server),
}
each_client = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


class SlowCore(ClientCore):
    """Starts and ends when told to."""

    def __init__(self) -> None:
        super().__init__("slow 'client'")
        self.may_start = threading.Event()
        self.may_end = threading.Event()
        self.steps: list[str] = []

    async def bring_up(self) -> None:
        self.steps.append("bring up")
        await asyncio.to_thread(self.may_start.wait, 30)

    def started(self) -> None:
        self.steps.append("started")

    async def take_down(self) -> None:
        self.steps.append("take down")
        await asyncio.to_thread(self.may_end.wait, 30)
        self.steps.append("ended")


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine function."""

    @wraps(test)
    def run(*args: Any, **how: Any) -> None:
        asyncio.run(test(*args, **how))

    return run


async def cancelled(call: Awaitable[object], until: Callable[[], bool]) -> None:
    """Cancel ``call`` as soon as that is so."""
    task = asyncio.ensure_future(call)
    while not until():  # noqa: ASYNC110 - what is waited for happens in another thread
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@on_a_loop
async def test_a_cancelled_shutdown_goes_on_and_the_next_waits_for_its_end() -> None:
    core = SlowCore()
    core.may_start.set()
    thread = loop_thread()
    await thread.run_async(core.start())
    await cancelled(thread.run_async(core.shutdown()), lambda: "take down" in core.steps)
    again = asyncio.create_task(thread.run_async(core.shutdown()))
    await asyncio.sleep(0.05)
    assert not again.done(), "it waits for the first"
    core.may_end.set()
    await again
    assert core.steps == ["bring up", "started", "take down", "ended"]
    await thread.run_async(core.shutdown())
    assert core.steps.count("take down") == 1
    assert core not in thread.clients


@on_a_loop
async def test_a_cancelled_start_ends_and_is_shut_down_again() -> None:
    core = SlowCore()
    core.may_end.set()
    thread = loop_thread()
    await cancelled(
        thread.run_async(core.start(), undo=core.shutdown), lambda: "bring up" in core.steps
    )
    shutdown = asyncio.create_task(thread.run_async(core.shutdown()))
    await asyncio.sleep(0.05)
    assert not shutdown.done(), "a client that is being started is shut down when it was"
    core.may_start.set()
    await shutdown
    assert core.steps == ["bring up", "started", "take down", "ended"]
    assert core not in thread.clients


@on_a_loop
async def test_a_start_cancelled_when_it_just_ended_is_taken_back() -> None:
    core = SlowCore()
    core.may_start.set()
    core.may_end.set()
    thread = loop_thread()
    call = asyncio.create_task(thread.run_async(core.start(), undo=core.shutdown))
    await asyncio.sleep(0)  # it is posted
    wait_until(lambda: "started" in core.steps)  # while this loop cannot hear of it
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.to_thread(wait_until, lambda: "ended" in core.steps)


@on_a_loop
async def test_a_start_that_fails_leaves_the_client_as_it_was() -> None:
    core = SlowCore()
    core.may_start.set()

    async def fail() -> None:
        raise ValueError("on purpose")

    good, core.bring_up = core.bring_up, fail  # type: ignore[method-assign]
    thread = loop_thread()
    with pytest.raises(ValueError, match="on purpose"):
        await thread.run_async(core.start(), undo=core.shutdown)
    await thread.run_async(core.shutdown())
    assert (core.steps, core.lifecycle.state) == ([], ServiceState.CREATE_JUST)
    core.bring_up = good  # type: ignore[method-assign]
    await thread.run_async(core.start())
    core.may_end.set()
    await thread.run_async(core.shutdown())


@each_client
@on_a_loop
async def test_a_start_cancelled_at_any_moment_leaves_no_client_behind(
    make: Callable[[str], Any], broker: EmbeddedBroker
) -> None:
    for turns in range(8):
        client = make(broker.name_server)
        call = asyncio.create_task(client.start())
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        try:
            await call
        except asyncio.CancelledError:
            await client.shutdown()  # which waits for the end of what was begun
        else:
            await client.shutdown()
        assert client._core not in loop_thread().clients
    async with make(broker.name_server):  # the group is free
        pass


@each_client
@on_a_loop
async def test_a_shutdown_cancelled_at_any_moment_leaves_no_client_behind(
    make: Callable[[str], Any], broker: EmbeddedBroker
) -> None:
    for turns in range(1, 5):
        client = make(broker.name_server)
        await client.start()
        call = asyncio.create_task(client.shutdown())
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        core = client._core
        await asyncio.to_thread(wait_until, lambda core=core: core not in loop_thread().clients)
        assert core.lifecycle.state is ServiceState.SHUTDOWN_ALREADY


def test_an_interrupted_shutdown_gives_its_queues_up(broker: EmbeddedBroker) -> None:
    go_on = threading.Event()
    working = threading.Event()

    def listener(messages: object) -> None:
        working.set()
        go_on.wait(30)

    with Producer("makers", name_server=broker.name_server) as producer:
        producer.send(Message("t", b"x"))
    first = PushConsumer("g", listener, name_server=broker.name_server)
    first.subscribe("t")
    first.start()
    assert working.wait(30)
    thread = loop_thread()
    with pytest.raises(TimeoutError):  # as Ctrl-C
        thread.run(first._core.shutdown(), timeout_seconds=0.05, keep=True)
    waiting = threading.Thread(target=first.shutdown)
    waiting.start()
    go_on.set()
    waiting.join(30)
    assert not waiting.is_alive()
    assert first._core not in thread.clients
    assert not first._core.tasks
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        first.min_offset(None)  # type: ignore[arg-type]


# Forgotten


def forget(start: bool, shut_down: bool) -> ClientCore:
    producer = Producer("forgetful", name_server="127.0.0.1:1")
    if start:
        producer.start()
    if shut_down:
        producer.shutdown()
    return producer._core


def test_a_client_forgotten_without_a_shutdown_is_told_of() -> None:
    with pytest.warns(ResourceWarning, match=r"producer 'forgetful' was not shut down.*with"):
        core = forget(start=True, shut_down=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        core.left_running()  # once
        loop_thread().run(core.shutdown())


@pytest.mark.parametrize("start", [False, True])
def test_a_client_shut_down_or_never_started_is_not(start: bool) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        forget(start=start, shut_down=True)
        gc.collect()
    assert not [str(warning.message) for warning in seen if "forgetful" in str(warning.message)]


def test_loops_of_the_users_are_not_kept() -> None:
    loops = []

    async def call() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        await loop_thread().run_async(asyncio.sleep(0))

    for _ in range(50):
        asyncio.run(call())
    gc.collect()
    assert sum(loop() is not None for loop in loops) <= 1, "but for the last"
