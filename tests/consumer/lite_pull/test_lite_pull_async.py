"""The lite pull consumer for coroutines, against our broker."""

from __future__ import annotations

import asyncio
from typing import Any

from orbitmq import ConsumeMessageContext, FilterMessageContext, Message, MessageQueue, Producer
from orbitmq.aio.lite_pull_consumer import AsyncLitePullConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.lite_pull.lite_pulling import QUEUES, committed, numbers, send


def make_async(broker: EmbeddedBroker, **settings: Any) -> AsyncLitePullConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    return AsyncLitePullConsumer("readers", name_server=broker.name_server, **settings)


def run_async(scenario: Any, *args: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(*args), 20))


def test_asynchronous_polling(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 40)

    async def scenario() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe("orders")
            messages: list[MessageView] = []
            while len(messages) < 40:
                messages += await consumer.poll(5)
            assert numbers(messages) == list(range(40))
            assert await consumer.poll(0) == []
            assert await consumer.poll(0.05) == []
            assert consumer.assignment() == set(QUEUES)
            await consumer.seek(QUEUES[2], 9)
            assert [item.queue_offset for item in await consumer.poll(5)] == [9]
            await consumer.seek_to_begin(QUEUES[2])
            await consumer.seek_to_end(QUEUES[2])
            assert await consumer.poll(0.05) == []
            await consumer.commit_sync()
            assert await consumer.committed(QUEUES[2]) == 10
            assert await consumer.fetch_message_queues("orders") == QUEUES
            assert await consumer.offset_for_timestamp(QUEUES[2], 0) == 0

    run_async(scenario)
    assert committed(broker) == dict.fromkeys(QUEUES, 10)


def test_asynchronous_iteration_and_messages_that_come_meanwhile(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    async def scenario() -> None:
        async with make_async(broker) as consumer:
            consumer.subscribe("orders")
            sending = asyncio.get_running_loop().run_in_executor(None, send, producer, 12)
            seen = []
            async for message in consumer:
                seen.append(message)
                if len(seen) == 12:
                    break
            consumer.commit()
            await sending
            assert numbers(seen) == list(range(12))
            consumer.pause(QUEUES)
            consumer.resume(QUEUES)

    run_async(scenario)
    assert committed(broker) == dict.fromkeys(QUEUES, 3)


def test_asynchronous_iteration_ends_with_the_consumer(broker: EmbeddedBroker) -> None:
    async def scenario() -> None:
        consumer = make_async(broker)
        await consumer.start()
        consumer.assign(QUEUES)

        async def iterate() -> list[MessageView]:
            return [message async for message in consumer]

        iterating = asyncio.create_task(iterate())
        polling = asyncio.create_task(consumer.poll(10))
        await asyncio.sleep(0)  # now both wait
        await consumer.shutdown()
        assert await iterating == []
        assert await polling == []

    run_async(scenario)


def test_several_tasks_poll_one_consumer(broker: EmbeddedBroker, producer: Producer) -> None:
    async def scenario() -> None:
        async with make_async(broker, pull_batch_size=1) as consumer:
            consumer.subscribe("orders")
            seen: list[MessageView] = []

            async def poll() -> None:
                while len(seen) < 40:
                    seen.extend(await consumer.poll(0.2))

            pollers = [asyncio.create_task(poll()) for _ in range(5)]
            await asyncio.to_thread(send, producer, 40)
            await asyncio.gather(*pollers)
            assert numbers(seen) == list(range(40))

    run_async(scenario)


def test_asynchronous_choice_of_queues(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 8, tags="paid")
    send(producer, 8, tags="sent")

    async def scenario() -> None:
        heard: list[str] = []
        hook = Hook()
        consumer = make_async(broker, auto_commit=False, topic_metadata_check_interval_ms=20)
        consumer.set_sub_expression_for_assign("orders", "sent")
        consumer.build_subscriptions_for_heartbeat({"orders": "sent"})
        consumer.register_topic_message_queue_change_listener(
            "bills", lambda topic, _: heard.append(topic)
        )
        consumer.register_consume_message_hook(hook)
        consumer.register_filter_message_hook(hook)
        consumer.assign(QUEUES[:1])
        running = [consumer.is_running]
        async with consumer:
            running.append(consumer.is_running)
            assert {item.tags for item in await consumer.poll(5)} == {"sent"}
            consumer.pause(QUEUES)
            assert consumer.paused() == {QUEUES[0]}
            assert consumer.flow_control_times() == (0, 0, 0)
            consumer.commit(persist=True)
            await asyncio.to_thread(wait_until, lambda: committed(broker)[QUEUES[0]] == 4)
            await asyncio.to_thread(producer.send, Message("bills", b"1"))
            await asyncio.to_thread(wait_until, lambda: heard)
        assert running == [False, True]
        assert hook.calls == ["filter", "before", "after"]

    run_async(scenario)


class Hook:
    """A hook of both kinds that notes when it is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def filter_message(self, context: FilterMessageContext) -> None:
        self.calls.append("filter")

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        self.calls.append("before")

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self.calls.append("after")


def test_asynchronous_listeners_of_a_topic(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)

    async def scenario() -> None:
        heard: list[list[MessageQueue]] = []
        async with make_async(broker) as consumer:
            consumer.subscribe("orders", "*", lambda _, __, mine: heard.append(mine))
            await asyncio.to_thread(wait_until, lambda: heard)
            consumer.unsubscribe("orders")
            await asyncio.to_thread(wait_until, lambda: not consumer.assignment())
        assert heard == [QUEUES]

    run_async(scenario)
