"""Push consumers whose listeners raise, end or forget what a consumer lives on."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from orbitmq import Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client import runners
from orbitmq.consumer.push import consume_concurrently
from orbitmq.errors import ClientStateError
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import (
    LISTENERS_THREAD,
    QUEUES,
    Inbox,
    committed,
    consume,
    make,
    make_async,
    move,
    send,
    threads,
)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_coroutine_that_wants_to_end_the_program_only_fails(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock, error: type[BaseException]
) -> None:
    inbox = Inbox()
    seen: set[bytes] = set()

    async def listener(messages: Sequence[MessageView]) -> None:
        await asyncio.sleep(0)
        body = messages[0].body
        if int(body) % 2 and body not in seen:
            seen.add(body)
            raise error
        inbox(messages)

    send(producer, range(60))
    with make(broker, listener) as consumer:
        consumer.subscribe("orders")
        inbox.wait(30)
        wait_until(lambda: len(seen) == 30)
        wait_until(lambda: sum(q.topic == "%RETRY%readers" for q in consumer._core.tasks))
        wait_until(lambda: not sum(task.process_queue.count for task in tasks_of(consumer)))
        move(broker, clock, 11)
        inbox.wait(60)
    assert inbox.threads == {LISTENERS_THREAD}
    assert inbox.numbers() == list(range(60))
    assert committed(broker) == [15] * 4
    assert LISTENERS_THREAD not in threads()


def tasks_of(consumer: PushConsumer) -> list[Any]:
    return [task for task in consumer._core.tasks.values() if task.queue.topic == "orders"]


def test_a_task_that_a_listener_left_alone_does_not_end_its_loop(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox = Inbox()
    left: list[asyncio.Task[None]] = []

    async def leave() -> None:
        sys.exit(3)

    async def listener(messages: Sequence[MessageView]) -> None:
        left.append(asyncio.create_task(leave()))
        await asyncio.sleep(0)
        inbox(messages)

    send(producer, range(20))
    with make(broker, listener) as consumer:
        consumer.subscribe("orders")
        inbox.wait(20)
    assert {type(task.exception()) for task in left} == {SystemExit}


def test_a_listener_on_the_users_loop_does_not_end_it(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()

    async def listener(messages: Sequence[MessageView]) -> None:
        if messages[0].body == b"3":
            sys.exit("the listener wants to leave")
        inbox(messages)

    async def scenario() -> str:
        async with make_async(broker, listener) as consumer:
            consumer.subscribe("orders")
            await asyncio.to_thread(inbox.wait, 9)
        return "still here"

    send(producer, range(10))
    assert asyncio.run(asyncio.wait_for(scenario(), 20)) == "still here"
    assert "the listener wants to leave" in caplog.text
    assert sum(committed(broker)) == 10  # the one that failed is in the retry topic


@pytest.mark.parametrize("orderly", [False, True])
def test_messages_wait_where_the_loop_of_their_listener_is_closed(
    broker: EmbeddedBroker,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    orderly: bool,
) -> None:
    monkeypatch.setattr(runners, "_REMIND_SECONDS", 0.05)
    inbox = Inbox()

    async def listener(messages: Sequence[MessageView]) -> None:
        inbox(messages)

    consumer = make_async(
        broker,
        listener,
        orderly=orderly,
        pull_threshold_for_queue=5,
        pull_batch_size=4,
        rebalance_interval_ms=20,
        rebalance_min_interval_ms=20,
    )
    consumer.subscribe("orders")

    async def forget_to_shut_down() -> None:
        await consumer.start()
        await asyncio.to_thread(inbox.wait, 4)

    send(producer, range(4))
    asyncio.run(asyncio.wait_for(forget_to_shut_down(), 20))
    send(producer, range(4, 84))
    core = consumer._core
    wait_until(lambda: all(core.tasks[queue].held_back for queue in QUEUES))
    assert all(5 < core.tasks[queue].process_queue.count <= 9 for queue in QUEUES)
    wait_until(lambda: caplog.text.count("messages that nobody does anything with") >= 3)
    assert "so use `async with` in it" in caplog.text
    assert "`async with`" in caplog.text
    consumer.update_core_pool_size(3)
    asyncio.run(asyncio.wait_for(consumer.shutdown(), 20))
    assert committed(broker) == [1] * 4
    with make(broker, inbox) as other:
        other.subscribe("orders")
        assert inbox.wait(84) == list(range(84))


def test_a_loop_that_is_closed_under_its_listeners_is_not_waited_for(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    """Nobody cancelled them: what they have is theirs for ever."""
    begun = threading.Event()

    async def listener(messages: Sequence[MessageView]) -> None:
        begun.set()
        await asyncio.Event().wait()

    consumer = make_async(broker, listener)
    consumer.subscribe("orders")
    send(producer, [1])
    loop = asyncio.new_event_loop()
    loop.run_until_complete(consumer.start())
    loop.run_until_complete(asyncio.to_thread(begun.wait, 10))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    asyncio.run(asyncio.wait_for(consumer.shutdown(), 20))  # and not for 30 s
    inbox = Inbox()
    with make(broker, inbox) as other:
        other.subscribe("orders")
        assert inbox.wait(1) == [1]
    del consumer
    gc.collect()


@pytest.mark.parametrize("kind", ["plain", "coroutine", "awaitable"])
def test_a_listener_cannot_shut_its_consumer_down(
    broker: EmbeddedBroker, producer: Producer, kind: str
) -> None:
    raised: list[BaseException] = []

    def end() -> None:
        try:
            consumer.shutdown()
        except ClientStateError as error:
            raised.append(error)
            threading.Thread(target=consumer.shutdown).start()

    async def end_later() -> None:
        end()

    def plain(_: Sequence[MessageView]) -> None:
        end()

    async def coroutine(_: Sequence[MessageView]) -> None:
        end()

    def awaitable(_: Sequence[MessageView]) -> Awaitable[None]:
        return end_later()

    listeners: dict[str, Callable[..., Any]] = {
        "plain": plain, "coroutine": coroutine, "awaitable": awaitable
    }  # fmt: skip
    consumer = make(broker, listeners[kind])
    consumer.subscribe("orders")
    send(producer, [1])
    with consumer:
        assert consumer.wait(10)
    (error,) = raised
    assert "cannot be shut down in its own listener" in str(error)
    assert "threading.Thread(target=consumer.shutdown).start()" in str(error)
    wait_until(lambda: committed(broker)[1] == 1)


@pytest.mark.parametrize("kind", ["plain", "coroutine"])
def test_a_listener_cannot_shut_its_asynchronous_consumer_down(
    broker: EmbeddedBroker, producer: Producer, kind: str
) -> None:
    raised: list[BaseException] = []
    ended: list[asyncio.Task[None]] = []

    async def coroutine(_: Sequence[MessageView]) -> None:
        try:
            await consumer.shutdown()
        except ClientStateError as error:
            raised.append(error)
        ended.append(asyncio.create_task(consumer.shutdown()))

    def plain(_: Sequence[MessageView]) -> None:
        try:
            asyncio.run(consumer.shutdown())
        except ClientStateError as error:
            raised.append(error)

    consumer = make_async(broker, {"plain": plain, "coroutine": coroutine}[kind])
    consumer.subscribe("orders")

    async def scenario() -> None:
        await consumer.start()
        await asyncio.to_thread(wait_until, lambda: raised)
        if kind == "plain":
            ended.append(asyncio.create_task(consumer.shutdown()))
        await asyncio.to_thread(wait_until, lambda: ended)
        await ended[0]

    send(producer, [1])
    asyncio.run(asyncio.wait_for(scenario(), 20))
    (error,) = raised
    assert "asyncio.create_task(consumer.shutdown())" in str(error)
    assert committed(broker)[1] == 1


def test_a_listener_may_shut_another_consumer_down(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    other = make(broker, Inbox(), group="others")
    other.subscribe("orders")
    other.start()
    send(producer, [1])
    with make(broker, lambda _: other.shutdown()) as consumer:
        consumer.subscribe("orders")
        assert other.wait(10)
        wait_until(lambda: consumer._core.offsets.get(QUEUES[1]) == 1)


def test_hooks_that_want_to_end_the_program_harm_nothing(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    class Hook:
        def consume_message_before(self, _: object) -> None:
            sys.exit("before")

        def consume_message_after(self, _: object) -> None:
            sys.exit("after")

        def filter_message(self, _: object) -> None:
            sys.exit("filter")

    inbox = Inbox()
    send(producer, range(8))
    consumer = make(broker, inbox)
    consumer.register_consume_message_hook(Hook())
    consumer.register_filter_message_hook(Hook())
    consumer.subscribe("orders")
    with consumer:
        assert inbox.wait(8) == list(range(8))
    assert committed(broker) == [2] * 4
    for where in ("before", "after", "filter"):
        assert f"SystemExit: {where}" in caplog.text


# The end


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("kind", ["plain", "coroutine", "blocking coroutine", "awaitable"])
def test_listeners_that_go_on_after_the_shutdown_change_nothing(
    broker: EmbeddedBroker, producer: Producer, kind: str, orderly: bool
) -> None:
    begun, release, over = threading.Event(), threading.Event(), threading.Event()

    def plain(_: Sequence[MessageView]) -> None:
        begun.set()
        release.wait(20)
        over.set()

    async def coroutine(_: Sequence[MessageView]) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def blocking(messages: Sequence[MessageView]) -> None:
        plain(messages)

    def awaitable(messages: Sequence[MessageView]) -> Awaitable[None]:
        return coroutine(messages)

    listeners: dict[str, Callable[..., Any]] = {
        "plain": plain,
        "coroutine": coroutine,
        "blocking coroutine": blocking,
        "awaitable": awaitable,
    }
    send(producer, range(3), queue=1)
    consumer = make(broker, listeners[kind], orderly=orderly)
    consumer.subscribe("orders")
    consumer.start()
    assert begun.wait(10)
    consumer.shutdown(timeout=0.05)
    assert not over.is_set()
    assert consumer.wait(0)
    assert committed(broker)[1] == 0
    inbox = Inbox()
    with make(broker, inbox) as other:
        other.subscribe("orders")
        assert inbox.wait(3) == [0, 1, 2]
        release.set()
        wait_until(lambda: LISTENERS_THREAD not in threads())
        wait_until(lambda: other._core.offsets.get(QUEUES[1]) == 3)
    assert committed(broker)[1] == 3


def test_ctrl_c_while_the_main_program_waits_is_an_orderly_end(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    begun, release = threading.Event(), threading.Event()
    inbox = Inbox()

    def listener(messages: Sequence[MessageView]) -> None:
        begun.set()
        assert release.wait(20)
        inbox(messages)

    def interrupt() -> None:
        begun.wait(10)
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        wait_until(lambda: not consumer._core.lifecycle.running)
        release.set()

    send(producer, range(4), queue=1)
    consumer = make(broker, listener, consume_threads=1)
    consumer.subscribe("orders")
    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt), consumer:
        consumer.wait()
    helper.join()
    assert inbox.numbers() == [0]
    assert committed(broker)[1] == 1


def test_a_listener_loop_that_cannot_be_made_is_told_to_who_starts(
    broker: EmbeddedBroker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def limited(self: threading.Thread) -> None:
        if "orbitmq-listeners" in self.name:
            raise RuntimeError("can't start new thread")
        start(self)

    inbox = Inbox()
    consumer = make(broker, functools.partial(consume, inbox))
    consumer.subscribe("orders")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        with pytest.raises(RuntimeError, match="new thread"):
            consumer.start()
        late = make(broker, Inbox(), group="late")
        with late, pytest.raises(RuntimeError, match="new thread"):
            late.subscribe("orders", listener=functools.partial(consume, inbox))
    send(producer, range(4))
    with consumer:
        inbox.wait(4)
    assert committed(broker) == [1] * 4


def test_a_start_that_fails_leaves_no_listener_loop(broker: EmbeddedBroker) -> None:
    with make(broker, Inbox()) as first:
        first.subscribe("orders")
        second = make(broker, functools.partial(consume, Inbox()), instance_name="same")
        third = make(broker, Inbox(), instance_name="same")
        second.subscribe("orders")
        third.subscribe("orders")
        with third, pytest.raises(ClientStateError):
            second.start()
        assert LISTENERS_THREAD not in threads()


def test_a_listener_that_breaks_its_message_has_it_again(
    broker: EmbeddedBroker,
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What cannot be given back is consumed again here."""
    monkeypatch.setattr(consume_concurrently, "_RETRY_HERE_SECONDS", 0.01)
    inbox = Inbox()
    times = 0

    def listener(messages: Sequence[MessageView]) -> None:
        nonlocal times
        times += 1
        if times == 1:
            messages[0].broker_name = "no-such-broker"
            messages[0].properties = {"tags": 7}  # type: ignore[dict-item]
            raise ValueError
        inbox(messages)

    send(producer, [1])
    with caplog.at_level(logging.WARNING), make(broker, listener) as consumer:
        consumer.subscribe("orders")
        inbox.wait(1)
    assert "consumed again here" in caplog.text
    assert committed(broker)[1] == 1
