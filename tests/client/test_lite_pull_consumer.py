"""The lite pull consumers, blocking and asynchronous, against our broker."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from orbitmq import LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client.async_lite_pull_consumer import AsyncLitePullConsumer
from orbitmq.client.offsets import NO_OFFSET, OffsetStore
from orbitmq.errors import ClientStateError, ConfigError, IllegalNameError, TopicNotFoundError
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer("makers", name_server=broker.name_server) as running:
        yield running


def make(broker: EmbeddedBroker, group: str = "readers", **settings: Any) -> LitePullConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    return LitePullConsumer(group, name_server=broker.name_server, **settings)


def send(
    producer: Producer, count: int, *, tags: str | None = None, queue: int | None = None
) -> None:
    for number in range(count):
        target = QUEUES[number % 4 if queue is None else queue]
        producer.send(Message("orders", b"%d" % number, tags=tags), queue=target)


def drain(consumer: LitePullConsumer, count: int) -> list[MessageView]:
    """Poll until ``count`` messages came."""
    messages: list[MessageView] = []
    deadline = time.monotonic() + 10
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.poll(1)
    assert len(messages) == count
    return messages


def numbers(messages: list[MessageView]) -> list[int]:
    return sorted(int(message.body) for message in messages)


def committed(broker: EmbeddedBroker, group: str = "readers") -> dict[MessageQueue, int | None]:
    """The offsets the broker has of ``orders``."""
    with make(broker, "looker") as looker:
        looker._core.group = group
        looker._core.offsets._group = group  # type: ignore[attr-defined]
        return {queue: looker.committed(queue) for queue in QUEUES}


def test_every_message_comes_once_and_in_the_order_of_its_queue(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 100)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        messages = drain(consumer, 100)
        assert consumer.poll(0) == []
        assert consumer.assignment() == set(QUEUES)
    assert numbers(messages) == list(range(100))
    for queue in QUEUES:
        offsets = [item.queue_offset for item in messages if item.message_queue == queue]
        assert offsets == list(range(25))


def test_messages_sent_later_are_polled_at_once(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4)
        for number in range(20):
            producer.send(Message("orders", b"%d" % number))
            (message,) = consumer.poll(5)
            assert message.body == b"%d" % number


def test_tags_choose_messages_and_the_position_passes_over_the_others(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 8, tags="paid")
    send(producer, 8, tags="sent")
    with make(broker) as consumer:
        consumer.subscribe("orders", "paid || lost")
        assert numbers(drain(consumer, 8)) == list(range(8))
        wait_until(lambda: set(consumer._core.assignment.positions().values()) == {4})
    assert committed(broker) == dict.fromkeys(QUEUES, 4)


def test_two_consumers_share_and_one_that_leaves_hands_over_exactly(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 40)
    first, second = make(broker), make(broker)
    with first:
        first.subscribe("orders")
        seen = drain(first, 40)
        first.poll(0)  # done with the messages of the last poll
        with second:
            second.subscribe("orders")
            wait_until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
            assert first.assignment() | second.assignment() == set(QUEUES)
            send(producer, 40)
            deadline = time.monotonic() + 10
            while len(seen) < 80 and time.monotonic() < deadline:
                seen += first.poll(0.1) + second.poll(0.1)
        wait_until(lambda: first.assignment() == set(QUEUES))
        send(producer, 8)
        seen += drain(first, 8)
    counts = Counter((item.queue_id, item.queue_offset) for item in seen)
    assert set(counts.values()) == {1}
    assert len(counts) == 88


def test_closing_commits_what_was_polled_and_nothing_more(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        assert len(drain(consumer, 10)) == 10
        wait_until(lambda: consumer._core.assignment.cached == 20)
    with make(broker) as again:
        again.subscribe("orders")
        assert numbers(drain(again, 20)) == list(range(10, 30))


def test_messages_the_user_failed_on_come_again(broker: EmbeddedBroker, producer: Producer) -> None:
    def poll() -> None:
        with make(broker) as consumer:
            consumer.subscribe("orders")
            drain(consumer, 10)
            drain(consumer, 10)
            raise ZeroDivisionError

    def iterate() -> None:
        with make(broker) as consumer:
            consumer.subscribe("orders")
            for message in consumer:
                if message.body == b"13":
                    raise ZeroDivisionError

    send(producer, 30, queue=1)
    for user in (poll, iterate):
        with pytest.raises(ZeroDivisionError):
            user()
    with make(broker) as consumer:
        consumer.subscribe("orders")
        assert next(consumer).body == b"13"


def test_without_auto_commit_only_commit_commits(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)
    with make(broker, auto_commit=False) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 10)
        consumer.commit_sync()
        assert committed(broker)[QUEUES[1]] == 10
        drain(consumer, 10)
    assert committed(broker)[QUEUES[1]] == 10
    with make(broker, auto_commit=False) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: consumer.assignment() == set(QUEUES))
        consumer.commit_sync({QUEUES[1]: 25})
        consumer.commit_sync([QUEUES[2]])
        assert consumer.committed(QUEUES[1]) == 25
    assert committed(broker)[QUEUES[1]] == 25


def test_auto_commit_happens_in_polls_for_what_earlier_polls_gave(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 20, queue=1)
    with make(broker, auto_commit_interval_ms=1000) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 20)
        core = consumer._core
        assert consumer.committed(QUEUES[1]) == 0
        core._next_commit_ms = 0
        consumer.poll(0)
        assert consumer.committed(QUEUES[1]) == 20
        assert core._next_commit_ms > 0


def test_iterating_commits_message_by_message(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 30, queue=1)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            if message.body == b"13":
                break
    with make(broker) as consumer:
        consumer.subscribe("orders")
        assert next(consumer).body == b"14"
        assert numbers(consumer.poll(5))[0] == 15


def test_iterating_ends_when_the_consumer_is_shut_down(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 3)
    consumer = make(broker)
    consumer.subscribe("orders")
    consumer.start()
    seen: list[MessageView] = []
    thread = threading.Thread(target=lambda: seen.extend(consumer))
    thread.start()
    wait_until(lambda: len(seen) == 3)
    consumer.shutdown()
    thread.join(10)
    assert not thread.is_alive()


def test_seeking(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 20, queue=1)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 20)
        consumer.seek(QUEUES[1], 15)
        assert numbers(drain(consumer, 5)) == list(range(15, 20))
        consumer.seek_to_begin(QUEUES[1])
        assert numbers(consumer.poll(5)) == list(range(10))
        consumer.seek_to_end(QUEUES[1])
        assert consumer.poll(0.2) == []
        send(producer, 1, queue=1)
        assert consumer.poll(5)[0].queue_offset == 20
        with pytest.raises(ConfigError, match="0 to 21"):
            consumer.seek(QUEUES[1], 22)
        with pytest.raises(ClientStateError, match="not in assigned list, may be rebalancing"):
            consumer.seek(MessageQueue("orders", "broker-a", 9), 0)


def test_seeking_before_anything_was_pulled(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 20, queue=1)
    with make(broker, consume_from_where="CONSUME_FROM_LAST_OFFSET") as consumer:
        consumer.assign([QUEUES[1]])
        consumer.seek(QUEUES[1], 18)
        assert numbers(drain(consumer, 2)) == [18, 19]


def test_pausing(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4)
        consumer.pause([QUEUES[1]])
        send(producer, 4)
        # The pull that the broker holds already still brings one message.
        assert {item.queue_id for item in drain(consumer, 4)} == {0, 1, 2, 3}
        send(producer, 4)
        assert {item.queue_id for item in drain(consumer, 3)} == {0, 2, 3}
        assert consumer.poll(0.2) == []
        consumer.resume([QUEUES[1]])
        began = time.monotonic()
        assert [item.queue_id for item in drain(consumer, 1)] == [1]
        assert time.monotonic() - began < 0.9  # not after the second a paused queue waits


def test_assigned_queues_are_taken_whatever_others_do(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 40)
    with make(broker) as one, make(broker) as two:
        one.assign(QUEUES[:2])
        two.assign(QUEUES[1:3])
        assert one.assignment() == set(QUEUES[:2])
        assert {item.queue_id for item in drain(one, 20)} == {0, 1}
        assert {item.queue_id for item in drain(two, 20)} == {1, 2}
        two.assign(QUEUES[3:])
        assert {item.queue_id for item in drain(two, 10)} == {3}
        with pytest.raises(ClientStateError, match="mutually exclusive"):
            two.subscribe("orders")
        with pytest.raises(ConfigError, match="one queue at least"):
            two.assign([])


def test_a_queue_assigned_away_and_back_goes_on_where_it_was(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 40)
    with make(broker) as consumer:
        consumer.assign(QUEUES[:1])
        drain(consumer, 10)
        consumer.poll(0)
        consumer.assign(QUEUES[1:2])
        consumer.assign(QUEUES[:1])
        producer.send(Message("orders", b"40"), queue=QUEUES[0])
        assert numbers(drain(consumer, 1)) == [40]


def test_assigning_may_choose_by_tag(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4, tags="paid")
    send(producer, 4, tags="sent")
    consumer = make(broker)
    consumer.assign(QUEUES, "sent")
    with consumer:
        assert {item.tags for item in drain(consumer, 4)} == {"sent"}


def test_unsubscribing_gives_the_queues_up(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 4)
        consumer.poll(0)
        consumer.unsubscribe("orders")
        wait_until(lambda: not consumer.assignment())
        send(producer, 4)
        assert consumer.poll(0.2) == []
        consumer.subscribe("orders")
        assert numbers(drain(consumer, 4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("where", "offset"),
    [("FIRST_OFFSET", 0), ("LAST_OFFSET", 2), ("MAX_OFFSET", 2), ("TIMESTAMP", 1)],
)
def test_a_new_group_starts_where_it_is_told(
    broker: EmbeddedBroker, producer: Producer, where: str, offset: int
) -> None:
    send(producer, 4)
    middle = time.time_ns() // 10**6 + 1
    wait_until(lambda: time.time_ns() // 10**6 > middle)
    send(producer, 4)
    consumer = LitePullConsumer(
        "timed",
        name_server=broker.name_server,
        offset_store=NoOffsets(),
        consume_from_where=f"CONSUME_FROM_{where}",
        consume_timestamp_ms=middle,
    )
    with consumer:
        consumer.subscribe("orders")
        wait_until(lambda: len(consumer._core.offsets.clone()) == 4)
        assert consumer._core.offsets.clone() == dict.fromkeys(QUEUES, offset)
        assert {consumer.offset_for_timestamp(queue, middle) for queue in QUEUES} == {1}
        # Known from the first moment, so that who takes over a queue skips nothing.
        assert {consumer.committed(queue) for queue in QUEUES} == {offset}


class NoOffsets(OffsetStore):
    """A store that never has an offset; a broker has offset 0 of a young queue."""

    async def fetch(self, queue: MessageQueue) -> int:
        return NO_OFFSET

    async def save(self, offsets: Mapping[MessageQueue, int], *, confirmed: bool) -> None:
        """Keep nothing."""


def test_a_topic_that_comes_into_being_later(broker: EmbeddedBroker, producer: Producer) -> None:
    with make(broker) as consumer:
        consumer.subscribe("orders")
        with pytest.raises(TopicNotFoundError):
            consumer.fetch_message_queues("orders")
        send(producer, 4)
        drain(consumer, 4)
        assert consumer.fetch_message_queues("orders") == QUEUES


def test_a_slow_reader_is_not_flooded(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 100, queue=1)
    with make(broker, pull_threshold_for_queue=15, pull_batch_size=5) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: consumer._core.flow.held_back > 0)
        assert 15 < consumer._core.assignment.cached <= 20
        assert numbers(drain(consumer, 100)) == list(range(100))


def test_the_cache_of_all_queues_is_limited_too(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 100)
    with make(broker, pull_threshold_for_all=20, pull_batch_size=5) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: consumer._core.held_back_by_all > 0)
        assert consumer._core.assignment.cached <= 40
        assert numbers(drain(consumer, 100)) == list(range(100))


def test_broadcasting_gives_everybody_everything_and_remembers_in_a_file(
    broker: EmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    send(producer, 8)

    def member(name: str) -> LitePullConsumer:
        return make(
            broker,
            instance_name=name,
            message_model="BROADCASTING",
            local_offset_dir=str(tmp_path),
        )

    with member("one") as one, member("two") as two:
        for consumer in (one, two):
            consumer.subscribe("orders")
            assert len(drain(consumer, 8)) == 8
    send(producer, 4)
    with member("one") as one:
        one.subscribe("orders")
        assert {item.queue_offset for item in drain(one, 4)} == {2}
    names = sorted(path.parent.parent.name.partition("@")[2] for path in tmp_path.rglob("*.json"))
    assert names == ["one", "two"]


def test_one_group_has_one_consumer_in_a_client(broker: EmbeddedBroker) -> None:
    with make(broker, instance_name="shared"):
        with pytest.raises(ClientStateError, match="readers"):
            make(broker, instance_name="shared").start()
        with make(broker, "writers", instance_name="shared") as other:
            other.subscribe("orders")


def test_calls_at_the_wrong_time(broker: EmbeddedBroker) -> None:
    consumer = make(broker)
    for call in (consumer.poll, consumer.commit, lambda: consumer.committed(QUEUES[0])):
        with pytest.raises(ClientStateError, match="start"):
            call()
    with consumer:
        with pytest.raises(ClientStateError, match="RUNNING"):
            consumer.start()
        with pytest.raises(ConfigError, match="timeout"):
            consumer.poll(-1)
    consumer.shutdown()
    with pytest.raises(ClientStateError):
        consumer.poll()
    with pytest.raises(ClientStateError, match="SHUTDOWN"):
        consumer.start()


def test_settings_and_names_are_checked(broker: EmbeddedBroker) -> None:
    with pytest.raises(IllegalNameError):
        make(broker, "no spaces please")
    with pytest.raises(IllegalNameError, match="RocketMQ's own"):
        make(broker, "DEFAULT_CONSUMER")
    with pytest.raises(ConfigError, match="pull_batch_size"):
        make(broker, pull_batch_size=0)
    with pytest.raises(ConfigError, match="consumer_timeout_when_suspend_ms"):
        make(broker, consumer_timeout_when_suspend_ms=1000)
    consumer = make(broker)
    with pytest.raises(IllegalNameError):
        consumer.subscribe("no spaces please")
    with pytest.raises(ConfigError, match="expression"):
        consumer.subscribe("orders", "||")


def test_ctrl_c_interrupts_a_poll(broker: EmbeddedBroker) -> None:
    with make(broker) as consumer:
        consumer.subscribe("orders")
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(30)
        assert time.monotonic() - began < 10
        timer.join()
        assert consumer.poll(0) == []


def test_a_broker_that_stops_and_comes_back_is_consumed_on(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path) as broker:
        port, name_server_port = (
            int(address.rpartition(":")[2]) for address in (broker.address, broker.name_server)
        )
        consumer = make(broker, pull_delay_when_error_ms=50, rebalance_min_interval_ms=50)
        consumer.subscribe("orders")
        consumer.start()
        with Producer("makers", name_server=broker.name_server) as producer:
            send(producer, 8)
        assert numbers(drain(consumer, 8)) == list(range(8))
        assert consumer.poll(0) == []
        consumer.commit_sync()
    assert consumer.poll(0.2) == []
    with EmbeddedBroker(tmp_path, port=port, name_server_port=name_server_port) as broker:
        with Producer("makers", name_server=broker.name_server) as producer:
            send(producer, 8)
        assert {message.queue_offset for message in drain(consumer, 8)} == {2, 3}
        consumer.shutdown()
        assert committed(broker) == dict.fromkeys(QUEUES, 4)


def test_a_listener_hears_of_changed_queues(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 4)
    heard: list[tuple[str, int, int]] = []

    def changed(topic: str, every: list[MessageQueue], mine: list[MessageQueue]) -> None:
        heard.append((topic, len(every), len(mine)))

    consumer = LitePullConsumer("readers", queue_listener=changed, name_server=broker.name_server)
    with consumer:
        consumer.subscribe("orders")
        wait_until(lambda: heard)
    assert heard == [("orders", 4, 4)]


def test_a_wrong_name_server_is_tried_again_and_said_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        caplog.at_level(logging.WARNING, "orbitmq"),
        LitePullConsumer("readers", name_server="127.0.0.1:1") as consumer,
    ):
        consumer.subscribe("orders")
        assert consumer.poll(0.3) == []
        wait_until(lambda: "127.0.0.1:1" in caplog.text)


def run_async(scenario: Any, *args: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(*args), 20))


def make_async(broker: EmbeddedBroker, **settings: Any) -> AsyncLitePullConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    return AsyncLitePullConsumer("readers", name_server=broker.name_server, **settings)


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
        await asyncio.sleep(0.05)
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
