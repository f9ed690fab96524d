"""What push consumers offer besides listening: queues, offsets, messages sent back, pool size."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from orbitmq import AsyncPushConsumer, Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.hooks import ConsumeMessageContext, FilterMessageContext
from orbitmq.errors import ClientStateError, ConfigError, TopicNotFoundError
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import QUEUES, Inbox, delayed, make, move, send


def test_what_a_broker_knows_of_queues(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    send(producer, range(3), queue=1)
    clock.advance(1_000)
    later = clock.now_ms()
    send(producer, range(3, 5), queue=1)
    consumer = make(broker, Inbox())
    with pytest.raises(ClientStateError):
        consumer.max_offset(QUEUES[1])
    with consumer:
        assert consumer.fetch_subscribe_message_queues("orders") == QUEUES
        assert consumer.min_offset(QUEUES[1]) == 0
        assert consumer.max_offset(QUEUES[1]) == 5
        assert consumer.search_offset(QUEUES[1], later) == 3
        with pytest.raises(TopicNotFoundError):
            consumer.fetch_subscribe_message_queues("nowhere")


def test_a_message_may_be_sent_back_by_hand(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    """A listener that took a message for good may still want it again."""
    inbox = Inbox()
    send(producer, [7])
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        inbox.wait(1)
        consumer.send_message_back(inbox.messages[0], 1)
        assert delayed(broker) == 1
        move(broker, clock, 2)
        inbox.wait(2)
    assert [(m.body, m.reconsume_times) for m in inbox.messages] == [(b"7", 0), (b"7", 1)]


def test_the_pool_is_resized_while_it_works(broker: EmbeddedBroker, producer: Producer) -> None:
    begun, release = threading.Semaphore(0), threading.Event()

    def listener(messages: Sequence[MessageView]) -> None:
        begun.release()
        assert release.wait(20)

    send(producer, range(8))
    consumer = make(broker, listener, consume_threads=5)
    consumer.update_core_pool_size(1)
    with consumer:
        consumer.subscribe("orders")
        assert begun.acquire(timeout=10)
        consumer.update_core_pool_size(3)
        for _ in range(2):
            assert begun.acquire(timeout=10)
        assert not begun.acquire(timeout=0.05)
        assert consumer.running_info().properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
        release.set()
    for size in (0, 1025):
        with pytest.raises(ConfigError, match="1 to 1024"):
            consumer.update_core_pool_size(size)


def test_the_pause_after_a_pull_that_brought_messages(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox = Inbox()
    send(producer, range(3), queue=1)
    with make(broker, inbox, pull_batch_size=1, pull_interval_ms=60_000) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(1) == [0]
        task = consumer._core.tasks[QUEUES[1]]
        wait_until(lambda: task._timer is not None)
        assert inbox.numbers() == [0]
        consumer._core.thread.post(task.wake)
        assert inbox.wait(2) == [0, 1]


def test_how_often_flow_control_held_pulls_back_is_told(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    release = threading.Event()
    inbox = Inbox()

    def listener(messages: Sequence[MessageView]) -> None:
        assert release.wait(20)
        inbox(messages)

    send(producer, range(40), queue=1)
    with make(broker, listener, pull_threshold_for_queue=5, pull_batch_size=10) as consumer:
        consumer.subscribe("orders")
        told = wait_until(lambda: held_back(consumer))
        assert 1 <= told <= consumer.flow_control_times().of_queue
        release.set()
        inbox.wait(40)


def held_back(consumer: PushConsumer) -> int:
    return int(consumer.running_info().user_consumer_info["queueFlowControlTimes"])


def test_the_same_for_coroutines(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    inbox = Inbox()
    seen: list[str | None] = []

    class Hook:
        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            pass

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            seen.append(context.status)

        def filter_message(self, context: FilterMessageContext) -> None:
            context.message_list[:] = [m for m in context.message_list if m.body != b"1"]

    async def scenario() -> None:
        consumer = AsyncPushConsumer(
            "readers",
            inbox,
            name_server=broker.name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.register_consume_message_hook(Hook())
        consumer.register_filter_message_hook(Hook())
        consumer.subscribe("orders")
        async with consumer:
            await asyncio.to_thread(inbox.wait, 1)
            consumer.update_core_pool_size(2)
            assert await consumer.fetch_subscribe_message_queues("orders") == QUEUES
            assert await consumer.min_offset(QUEUES[1]) == 0
            assert await consumer.max_offset(QUEUES[1]) == 2
            assert await consumer.search_offset(QUEUES[1], clock.now_ms()) == 0
            await consumer.send_message_back(inbox.messages[0])
            assert delayed(broker) == 1
            await consumer.reset_offset_by_timestamp(clock.now_ms())
            await asyncio.to_thread(inbox.wait, 2)
            info = await consumer.running_info(jstack=True)
            assert "MainThread" in str(info.jstack)
            assert consumer.consume_status("orders").consume_ok_tps == 0.2

    send(producer, range(2), queue=1)
    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert seen == ["CONSUME_SUCCESS"] * 2
