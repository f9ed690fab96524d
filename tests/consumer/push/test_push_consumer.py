"""The push consumers against our broker: what every listener gets, and what holds pulls back."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from orbitmq import Producer
from orbitmq.aio.push_consumer import AsyncPushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ClientStateError, ConfigError, IllegalNameError
from orbitmq.message import Message
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import QUEUES, Inbox, committed, delayed, make, move, send


def test_every_message_is_consumed_once_and_committed(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(100))
    inbox = Inbox()
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(100) == list(range(100))
        send(producer, range(100, 120))
        assert inbox.wait(120) == list(range(120))
    assert committed(broker) == [30] * 4
    assert set(inbox.batches) == {1}
    again = Inbox()
    with make(broker, again) as consumer:
        consumer.subscribe("orders")
        send(producer, [500])
        assert again.wait(1) == [500]


def test_batches_are_cut_to_size(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, range(50), queue=2)
    inbox = Inbox()
    with make(broker, inbox, consume_batch_size=10, pull_batch_size=25) as consumer:
        consumer.subscribe("orders")
        inbox.wait(50)
    assert Counter(inbox.batches) == {10: 4, 5: 2}


def test_the_decorator_and_a_listener_for_each_topic(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    producer.send(Message("bills", b"1", tags="due"))
    producer.send(Message("bills", b"2", tags="paid"))
    send(producer, [3])
    consumer = make(broker)
    bills, orders = Inbox(), Inbox()

    @consumer.subscribe("bills", "due || overdue")
    def handle(messages: Sequence[MessageView]) -> None:
        bills(messages)

    consumer.subscribe("orders", listener=orders)
    assert callable(handle)
    with consumer:
        assert bills.wait(1) == [1]
        assert orders.wait(1) == [3]
        unsent = Inbox()
        decorate = consumer.subscribe("parcels")
        producer.send(Message("parcels", b"4"))
        decorate(unsent)
        assert unsent.wait(1) == [4]
        consumer.unsubscribe("parcels")
        wait_until(lambda: {queue.topic for queue in consumer._core.tasks} >= {"bills", "orders"})
        wait_until(lambda: "parcels" not in {queue.topic for queue in consumer._core.tasks})


def test_coroutines_run_on_a_loop_of_their_own(broker: EmbeddedBroker, producer: Producer) -> None:
    inbox = Inbox()
    most = running = 0

    async def listener(messages: Sequence[MessageView]) -> None:
        nonlocal most, running
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        inbox(messages)
        running -= 1

    send(producer, range(100))
    with make(broker, listener, consume_threads=5) as consumer:
        consumer.subscribe("orders")
        inbox.wait(100)
    assert most == 5
    assert inbox.threads == {"orbitmq-listeners-readers"}
    assert not [t for t in threading.enumerate() if t.name == "orbitmq-listeners-readers"]


def test_an_asynchronous_consumer_runs_coroutines_on_the_users_loop(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox, plain = Inbox(), Inbox()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        consumer = AsyncPushConsumer(
            "readers",
            name_server=broker.name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )

        @consumer.subscribe("orders")
        async def listener(messages: Sequence[MessageView]) -> None:
            assert asyncio.get_running_loop() is loop
            await asyncio.sleep(0)
            inbox(messages)

        consumer.subscribe("bills", listener=plain)
        async with consumer:
            await asyncio.to_thread(send, producer, range(40))
            await asyncio.to_thread(producer.send, Message("bills", b"77"))
            await asyncio.to_thread(inbox.wait, 40)
            consumer.suspend()
            consumer.resume()
            await asyncio.to_thread(plain.wait, 1)
            consumer.unsubscribe("bills")

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert inbox.threads == {"MainThread"}
    assert all(name.startswith("consume-readers") for name in plain.threads)
    assert committed(broker) == [10] * 4


def test_the_offset_waits_for_the_first_message_not_done(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    release = threading.Event()
    inbox = Inbox()

    def listener(messages: Sequence[MessageView]) -> None:
        if messages[0].body == b"3":
            assert release.wait(20)
        inbox(messages)

    send(producer, range(10), queue=1)
    with make(broker, listener) as consumer:
        consumer.subscribe("orders")
        inbox.wait(9)
        wait_until(lambda: consumer._core.offsets.get(QUEUES[1]) == 3)
        release.set()
        wait_until(lambda: consumer._core.offsets.get(QUEUES[1]) == 10)


def test_flow_control_holds_pulls_back_until_there_is_room(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    release = threading.Event()
    inbox = Inbox()

    def listener(messages: Sequence[MessageView]) -> None:
        assert release.wait(20)
        inbox(messages)

    send(producer, range(200), queue=1)
    with make(broker, listener, pull_threshold_for_queue=20, pull_batch_size=8) as consumer:
        consumer.subscribe("orders")
        core = consumer._core
        wait_until(lambda: core.flow.held_back > 0)
        assert 20 < core.tasks[QUEUES[1]].process_queue.count <= 28
        release.set()
        assert inbox.wait(200) == list(range(200))


def test_thresholds_of_a_topic_are_divided_among_its_queues(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, range(4))
    with make(
        broker, Inbox(), pull_threshold_for_topic=100, pull_threshold_size_for_topic=3
    ) as consumer:
        consumer.subscribe("orders")
        # 4 queues, and one of the retry topic.
        wait_until(lambda: consumer._core.flow.limits.messages == 20)
        assert consumer._core.flow.limits.mib == 1


def test_suspending(
    broker: EmbeddedBroker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.consumer.push.core._SUSPENDED_DELAY_MS", 600_000)
    inbox = Inbox()
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        send(producer, range(4))
        inbox.wait(4)
        consumer.suspend()
        send(producer, range(4, 8))
        inbox.wait(8)  # the pulls the broker held already
        send(producer, range(8, 12))
        tasks = consumer._core.tasks
        wait_until(lambda: all(task._timer for task in tasks.values() if task.queue in QUEUES))
        assert len(inbox.messages) == 8
        consumer.resume()  # which ends those waits
        inbox.wait(12)


@pytest.mark.parametrize("orderly", [False, True])
def test_an_illegal_offset_is_corrected(
    broker: EmbeddedBroker, producer: Producer, orderly: bool
) -> None:
    send(producer, range(4))
    with make(broker, Inbox()) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: consumer._core.tasks)
    broker.call(lambda node: node.broker.offsets.commit("readers", "orders", 1, 1000))
    inbox = Inbox()
    with make(broker, inbox, orderly=orderly) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: committed(broker)[1] == 1)
        send(producer, [5])
        wait_until(lambda: 5 in inbox.numbers())


def test_a_message_whose_listener_is_gone_stays_with_the_broker(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    """A retry of a topic that is not subscribed any more fails until somebody takes it."""
    inbox = Inbox()
    inbox.fail = {b"1"}
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        send(producer, [1])
        wait_until(lambda: delayed(broker) == 1)
    bills = Inbox()
    consumer = make(broker)
    consumer.subscribe("bills", listener=bills)
    producer.send(Message("bills", b"9"))
    with consumer:
        bills.wait(1)
        move(broker, clock, 11)
        wait_until(lambda: delayed(broker) == 2)
    assert bills.numbers() == [9]


def test_what_is_wrong_is_said_before_anything_runs(broker: EmbeddedBroker) -> None:
    consumer = make(broker)
    consumer.subscribe("orders")
    with pytest.raises(ClientStateError, match="no listener for orders"):
        consumer.start()
    with pytest.raises(IllegalNameError):
        consumer.subscribe("no spaces please")
    with pytest.raises(ConfigError):
        consumer.subscribe("orders", "||")
    with pytest.raises(ConfigError, match="consume_threads"):
        make(broker, consume_threads=0)
    consumer.subscribe("orders", listener=Inbox())
    with consumer, pytest.raises(ClientStateError):
        consumer.start()
    consumer.shutdown()


def test_the_log_says_who_gave_and_took(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, range(4))
    with (
        caplog.at_level(logging.INFO, "orbitmq.consumer.rebalance"),
        make(broker, Inbox()) as first,
    ):
        first.subscribe("orders")
        wait_until(lambda: len(first._core.tasks) == 5)
        with make(broker, Inbox()) as second:
            second.subscribe("orders")
            wait_until(lambda: sum(q.topic == "orders" for q in first._core.tasks) == 2)
            joined = second._core.instance.client_id
        wait_until(lambda: sum(q.topic == "orders" for q in first._core.tasks) == 4)
    assert f"(joined: {joined})" in caplog.text
    assert f"from {joined} (left: {joined})" in caplog.text
