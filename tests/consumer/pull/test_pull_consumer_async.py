"""The asynchronous pull consumer: the same, in coroutines on the user's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from orbitmq import AsyncPullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.message import Message, PullStatus
from orbitmq.testing.clock import ManualClock
from tests.consumer.push.pushing import QUEUES, committed, move, send
from tests.waiting import until

Q0 = QUEUES[0]


def play(broker: EmbeddedBroker, scenario: Callable[[AsyncPullConsumer], Awaitable[None]]) -> None:
    async def run() -> None:
        async with AsyncPullConsumer(
            "readers", topics="orders", name_server=broker.name_server
        ) as consumer:
            await scenario(consumer)

    asyncio.run(run())


def test_pulls_offsets_and_queues(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, range(8))

    async def scenario(consumer: AsyncPullConsumer) -> None:
        assert await consumer.fetch_subscribe_message_queues("orders") == QUEUES
        result = await consumer.pull(Q0, "*", 0, 32)
        assert [message.body for message in result.messages] == [b"0", b"4"]
        await until(lambda: consumer.fetch_message_queues_in_balance("orders") == QUEUES)
        consumer.update_consume_offset(Q0, result.next_begin_offset)
        assert await consumer.fetch_consume_offset(Q0) == 2
        await consumer.persist(Q0)
        assert await consumer.fetch_consume_offset(Q0, from_store=True) == 2
        assert (await consumer.min_offset(Q0), await consumer.max_offset(Q0)) == (0, 2)
        assert await consumer.search_offset(Q0, 0) == 0
        assert await consumer.earliest_message_store_time(Q0) > 0
        with pytest.raises(ConfigError):
            await consumer.pull(Q0, "*", -1, 32)

    play(broker, scenario)
    assert committed(broker)[0] == 2


def test_many_pulls_wait_at_once(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, range(8))

    async def scenario(consumer: AsyncPullConsumer) -> None:
        waiting = [
            asyncio.create_task(consumer.pull_block_if_not_found(queue, "*", 2, 32))
            for queue in QUEUES
        ]
        await until(lambda: broker.call(lambda node: len(node.broker.pulling.held)) == 4)
        for queue in QUEUES:
            await asyncio.to_thread(producer.send, Message("orders", b"9"), queue=queue)
        results = await asyncio.gather(*waiting)
        assert [result.status for result in results] == [PullStatus.FOUND] * 4

    play(broker, scenario)


def test_a_cancelled_pull_is_given_up(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, [0])

    async def scenario(consumer: AsyncPullConsumer) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await consumer.pull_block_if_not_found(Q0, "*", 1, 32)
        await until(lambda: not consumer._core._pulls)
        assert (await consumer.pull(Q0, "*", 0, 32)).status is PullStatus.FOUND

    play(broker, scenario)


def test_shutdown_ends_pulls_that_wait(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, [0])

    async def scenario(consumer: AsyncPullConsumer) -> None:
        waiting = asyncio.create_task(consumer.pull_block_if_not_found(Q0, "*", 1, 32))
        await until(lambda: broker.call(lambda node: len(node.broker.pulling.held)) == 1)
        await consumer.shutdown()
        with pytest.raises(ClientStateError, match="shut down"):
            await waiting

    play(broker, scenario)


def test_messages_are_sent_back(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    send(producer, [0])

    async def scenario(consumer: AsyncPullConsumer) -> None:
        (message,) = (await consumer.pull(Q0, "*", 0, 1)).messages
        await consumer.send_message_back(message, 1)
        move(broker, clock, 2)
        (queue,) = await consumer.fetch_subscribe_message_queues("%RETRY%readers")
        (again,) = (await consumer.pull(queue, "*", 0, 1)).messages
        assert again.reconsume_times == 1

    play(broker, scenario)
