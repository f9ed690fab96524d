"""The schedule service of pulls: who is called for which queue, when, and what ends it."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from typing import Any

import pytest

from orbitmq import (
    AsyncPullConsumerScheduleService,
    Producer,
    PullConsumer,
    PullConsumerScheduleService,
    PullTaskContext,
)
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.pull import schedule
from orbitmq.consumer.pull.schedule import PullTaskCallback
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.message import MessageQueue
from orbitmq.testing.wait import wait_until
from tests.consumer.push.pushing import QUEUES, committed, send


def make(broker: EmbeddedBroker, **settings: Any) -> PullConsumerScheduleService:
    return PullConsumerScheduleService("readers", name_server=broker.name_server, **settings)


class Work:
    """A callback that consumes its queue, and says when it wants to be called again."""

    def __init__(self, delay_ms: int = 5) -> None:
        self.delay_ms = delay_ms
        self.bodies: list[int] = []
        self.calls: Counter[MessageQueue] = Counter()
        self.threads: set[str] = set()
        self.entered = threading.Semaphore(0)
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        self.calls[queue] += 1
        self.threads.add(threading.current_thread().name)
        consumer = context.pull_consumer
        offset = max(0, consumer.fetch_consume_offset(queue))
        result = consumer.pull(queue, "*", offset, 32)
        self.entered.release()
        self.gate.wait(10)
        self.bodies += [int(message.body) for message in result.messages]
        consumer.update_consume_offset(queue, result.next_begin_offset)
        context.pull_next_delay_ms = self.delay_ms


def test_each_queue_in_balance_is_worked_through(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(40))
    work = Work()
    service = make(broker)

    @service.register_pull_task_callback("orders")
    def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        assert context.pull_consumer is service.pull_consumer
        assert context.pull_next_delay_ms == 200
        work(queue, context)

    with service:
        wait_until(lambda: len(work.bodies) == 40)
        send(producer, range(40, 48))
        wait_until(lambda: len(work.bodies) == 48)
        assert service.pull_consumer.fetch_message_queues_in_balance("orders") == QUEUES
        assert not service.wait(0)
    assert service.wait(0)
    assert sorted(work.bodies) == list(range(48))
    assert committed(broker) == [12] * 4
    assert all(name.startswith("orbitmq-pull-readers-") for name in work.threads)


def test_queues_are_worked_on_at_once_in_as_many_threads_as_there_are(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    work = Work()
    work.gate.clear()
    service = make(broker, pull_thread_nums=3)
    service.register_pull_task_callback("orders", work)
    with service:
        for _ in range(3):
            assert work.entered.acquire(timeout=10)
        assert sum(work.calls.values()) == 3
        work.gate.set()
        wait_until(lambda: len(work.calls) == 4)
    assert len(work.threads) == 3


def test_the_next_call_comes_when_the_callback_wants_it(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, [0], queue=0)
    times: list[float] = []

    def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        if queue.queue_id == 0:
            times.append(time.monotonic())
            context.pull_next_delay_ms = [100, -1, 60_000][min(len(times) - 1, 2)]

    service = make(broker)
    service.register_pull_task_callback("orders", callback)
    with service:
        wait_until(lambda: len(times) == 3)
    assert times[1] - times[0] >= 0.09


def test_a_callback_that_raises_is_logged_and_called_again_a_second_later(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, [0], queue=0)
    times: list[float] = []

    def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        if queue.queue_id == 0:
            times.append(time.monotonic())
            if len(times) == 1:
                raise SystemExit("give up")

    service = make(broker)
    service.register_pull_task_callback("orders", callback)
    with service:
        wait_until(lambda: len(times) == 2)
    assert times[1] - times[0] >= 0.9
    assert "SystemExit: give up" in caplog.text
    assert "called again in 1000 ms" in caplog.text


def test_queues_that_go_are_called_no_more_and_their_offsets_go_along(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(40))
    work, other_work = Work(), Work()
    service, other = make(broker), make(broker)
    service.register_pull_task_callback("orders", work)
    other.register_pull_task_callback("orders", other_work)
    with service:
        wait_until(lambda: len(work.bodies) == 40)
        with other:
            wait_until(lambda: len(other_work.calls) == 2)
            taken = set(other_work.calls)
            wait_until(
                lambda: len(service.pull_consumer.fetch_message_queues_in_balance("orders")) == 2
            )
            before = {queue: work.calls[queue] for queue in taken}
            send(producer, range(40, 80))
            wait_until(lambda: len(work.bodies) + len(other_work.bodies) == 80)
            assert {queue: work.calls[queue] for queue in taken} == before
        wait_until(
            lambda: service.pull_consumer.fetch_message_queues_in_balance("orders") == QUEUES
        )
        send(producer, range(80, 88))
        wait_until(lambda: len(work.bodies) + len(other_work.bodies) >= 88)
    assert sorted(work.bodies + other_work.bodies) == list(range(88))


def test_a_queue_that_goes_waits_for_the_call_under_way(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(40))
    work, other_work = Work(), Work()
    service, other = make(broker), make(broker)
    service.register_pull_task_callback("orders", work)
    other.register_pull_task_callback("orders", other_work)
    work.gate.clear()
    with service:
        for _ in range(4):
            assert work.entered.acquire(timeout=10)
        with other:
            wait_until(
                lambda: len(other.pull_consumer.fetch_message_queues_in_balance("orders")) == 2
            )
            work.gate.set()
            wait_until(lambda: len(work.bodies) + len(other_work.bodies) >= 40)
            wait_until(lambda: len(other_work.calls) == 2)
    assert sorted(work.bodies + other_work.bodies) == list(range(40))


def test_shutdown_waits_for_calls_and_saves_what_they_consumed(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(8))
    work = Work(delay_ms=60_000)
    work.gate.clear()
    service = make(broker)
    service.register_pull_task_callback("orders", work)
    service.start()
    for _ in range(4):
        assert work.entered.acquire(timeout=10)
    ending = threading.Thread(target=service.shutdown)
    ending.start()
    wait_until(lambda: service._core.closing)
    assert ending.is_alive()
    work.gate.set()
    ending.join(10)
    assert sorted(work.bodies) == list(range(8))
    assert committed(broker) == [2] * 4


def test_a_call_that_never_ends_is_left_behind(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, range(8))
    work = Work()
    work.gate.clear()
    service = make(broker)
    service.register_pull_task_callback("orders", work)
    service.start()
    assert work.entered.acquire(timeout=10)
    service.shutdown(timeout=0.05)
    assert "still runs after 50 ms and is left behind" in caplog.text
    work.gate.set()
    assert service.wait(0)


def test_shutdown_ends_the_pulls_of_calls_without_an_outcry(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, range(4))

    def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        context.pull_consumer.pull_block_if_not_found(queue, "*", 1, 32)

    service = make(broker)
    service.register_pull_task_callback("orders", callback)
    with service:
        wait_until(lambda: broker.call(lambda node: len(node.broker.pulling.held)) == 4)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not [item for item in caplog.records if item.levelno >= logging.ERROR]


def test_shutdown_ends_pulls_beside_the_callbacks_too(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, [0], queue=0)
    service = make(broker, enable_rebalance=False)
    service.start()
    waiting = service.pull_consumer.pull_async(QUEUES[0], "*", 1, 32, block_if_not_found=True)
    wait_until(lambda: broker.call(lambda node: len(node.broker.pulling.held)) == 1)
    service.shutdown()
    with pytest.raises(ClientStateError, match="shut down during a pull"):
        waiting.result(10)


def test_a_callback_registered_while_it_runs_is_called(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, range(4))
    first, second = Work(), Work()
    service = make(broker)
    service.pull_consumer.register_topics("orders")
    with service:
        wait_until(lambda: caplog.text.count("there is no callback for") == 4)
        service.register_pull_task_callback("orders", first)
        wait_until(lambda: len(first.calls) == 4)
        service.register_pull_task_callback("orders", second)  # in its place
        wait_until(lambda: len(second.calls) == 4)


def test_under_broadcasting_each_service_is_called_for_all_queues(
    broker: EmbeddedBroker, producer: Producer, tmp_path: Any
) -> None:
    send(producer, range(8))
    work, other_work = Work(), Work()
    own: dict[str, Any] = {"message_model": "BROADCASTING", "local_offset_dir": str(tmp_path)}
    service = make(broker, instance_name="one", **own)
    other = make(broker, instance_name="two", **own)
    service.register_pull_task_callback("orders", work)
    other.register_pull_task_callback("orders", other_work)
    with service, other:
        wait_until(lambda: len(work.bodies) == len(other_work.bodies) == 8)


def test_a_failed_start_leaves_nothing_behind(broker: EmbeddedBroker) -> None:
    service = make(broker, instance_name="one")
    with service:
        again = make(broker, instance_name="one")
        with pytest.raises(ClientStateError, match="in use"):
            again.start()
        with pytest.raises(ClientStateError, match="RUNNING"):
            service.start()
    again.start()
    again.shutdown()
    again.shutdown()


async def coroutine(queue: MessageQueue, context: PullTaskContext[Any]) -> None:
    """A callback of the other kind."""


def answers_a_coroutine(queue: MessageQueue, context: PullTaskContext[Any]) -> Any:
    """A plain function, as it seems."""
    return coroutine(queue, context)


def print_one(queue: MessageQueue) -> None:
    """A callback without a context."""


def plain(queue: MessageQueue, context: PullTaskContext[Any]) -> None:
    """A callback of one kind."""


def test_callbacks_are_of_the_service_s_kind(broker: EmbeddedBroker) -> None:
    with pytest.raises(ConfigError, match="a plain function"):
        make(broker).register_pull_task_callback("orders", coroutine)
    service = AsyncPullConsumerScheduleService("readers", name_server=broker.name_server)
    callback: PullTaskCallback = plain
    with pytest.raises(ConfigError, match="a coroutine function"):
        service.register_pull_task_callback("orders", callback)
    with pytest.raises(ConfigError, match="pull_thread_nums"):
        make(broker, pull_thread_nums=0)
    wrong: Any = print_one
    with pytest.raises(ConfigError, match=r"print_one.*of a queue and a PullTaskContext"):
        make(broker).register_pull_task_callback("orders", wrong)


def test_a_plain_callback_that_answers_an_awaitable_is_told_to_be_none(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, [0], queue=0)
    service = make(broker)
    service.register_pull_task_callback("orders", answers_a_coroutine)
    with service:
        wait_until(lambda: "which nobody awaits" in caplog.text)
    assert "use AsyncPullConsumerScheduleService" in caplog.text


@pytest.mark.parametrize("face", ["service", "consumer"])
def test_a_callback_cannot_shut_its_service_down(
    broker: EmbeddedBroker, producer: Producer, face: str
) -> None:
    raised: list[str] = []

    def callback(queue: MessageQueue, context: PullTaskContext[PullConsumer]) -> None:
        try:
            (service if face == "service" else context.pull_consumer).shutdown()
        except ClientStateError as error:
            raised.append(str(error))
            threading.Thread(target=service.shutdown).start()

    send(producer, [0], queue=0)
    service = make(broker)
    service.register_pull_task_callback("orders", callback)
    with service:
        assert service.wait(10)
    assert "cannot be shut down in its own callback" in raised[0]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_whatever_a_coroutine_raises_it_is_called_again(
    broker: EmbeddedBroker,
    producer: Producer,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
) -> None:
    monkeypatch.setattr(schedule, "_ERROR_DELAY_MS", 10)
    calls: list[int] = []
    refused: list[str] = []

    async def run() -> str:
        again = asyncio.Event()
        service = AsyncPullConsumerScheduleService("readers", name_server=broker.name_server)

        @service.register_pull_task_callback("orders")
        async def callback(queue: MessageQueue, context: PullTaskContext[Any]) -> None:
            calls.append(queue.queue_id)
            if calls.count(queue.queue_id) == 1:
                raise error("the callback wants to leave")
            try:
                await service.shutdown()
            except ClientStateError as state_error:
                refused.append(str(state_error))
            again.set()

        async with service, asyncio.timeout(10):
            await again.wait()
        return "still here"

    send(producer, [0], queue=0)
    assert asyncio.run(run()) == "still here"
    assert "the callback wants to leave" in caplog.text
    assert "in its own callback" in refused[0]


def test_callbacks_whose_loop_is_closed_are_told_of(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    service = AsyncPullConsumerScheduleService(
        "readers",
        name_server=broker.name_server,
        rebalance_interval_ms=20,
        rebalance_min_interval_ms=20,
    )
    service.register_pull_task_callback("orders", coroutine)
    send(producer, range(4))
    asyncio.run(service.start())
    wait_until(lambda: "holds 4 queues that nobody does anything with" in caplog.text)
    asyncio.run(asyncio.wait_for(service.shutdown(), 20))


def test_coroutines_are_called_on_the_loop_it_was_started_on(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, range(40))
    bodies: list[int] = []
    most = running = failures = 0

    async def run() -> None:
        home = asyncio.get_running_loop()
        all_there = asyncio.Event()
        service = AsyncPullConsumerScheduleService(
            "readers", name_server=broker.name_server, pull_thread_nums=2
        )

        @service.register_pull_task_callback("orders")
        async def callback(queue: MessageQueue, context: PullTaskContext[Any]) -> None:
            nonlocal most, running, failures
            assert asyncio.get_running_loop() is home
            running += 1
            most = max(most, running)
            try:
                consumer = context.pull_consumer
                offset = await consumer.fetch_consume_offset(queue)
                result = await consumer.pull(queue, "*", offset, 5)
                if offset == 5 and not failures:
                    failures += 1
                    raise ValueError("once")
                bodies.extend(int(message.body) for message in result.messages)
                consumer.update_consume_offset(queue, result.next_begin_offset)
                context.pull_next_delay_ms = 0
            finally:
                running -= 1
            if len(bodies) == 40:
                all_there.set()

        async with service:
            async with asyncio.timeout(10):
                await all_there.wait()

    asyncio.run(run())
    assert sorted(bodies) == list(range(40))
    assert most == 2
    assert caplog.text.count("ValueError: once") == 1
    assert committed(broker) == [10] * 4
