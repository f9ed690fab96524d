"""Where a push consumer begins each queue: RebalancePushImpl.computePullFromWhereWithException."""

from __future__ import annotations

import time

import pytest

from orbitmq import Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client.config import make_config
from orbitmq.consumer.config import ConsumerConfig
from orbitmq.errors import ConfigError, ConnectError
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from tests.consumer.push.pushing import QUEUES, Inbox, delayed, make, send
from tests.consumer.test_offsets import MemoryStore

RETRY_QUEUE = MessageQueue("%RETRY%readers", "broker-a", 0)
HOUR = 3_600_000
WHERE = ["CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"]


@pytest.mark.parametrize(
    ("where", "begins"),
    [
        ("CONSUME_FROM_LAST_OFFSET", 6),
        ("CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", 6),
        ("CONSUME_FROM_MIN_OFFSET", 6),
        ("CONSUME_FROM_MAX_OFFSET", 6),
        ("CONSUME_FROM_FIRST_OFFSET", 0),
        ("CONSUME_FROM_TIMESTAMP", 4),
    ],
)
def test_a_new_group(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock, where: str, begins: int
) -> None:
    """The deprecated three begin as in Java, at the end."""
    send(producer, range(4), queue=1)
    clock.advance(HOUR)
    send(producer, range(4, 6), queue=1)
    inbox = Inbox()
    settings = {"consume_from_where": where, "consume_timestamp_ms": clock.now_ms()}
    with make(broker, inbox, offset_store=MemoryStore(), **settings) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: pulled(consumer, QUEUES[1]) >= 6)
        send(producer, [6], queue=1)
        assert inbox.wait(7 - begins) == list(range(begins, 7))


@pytest.mark.parametrize("where", WHERE)
def test_an_old_group_goes_on_where_it_was(
    broker: EmbeddedBroker, producer: Producer, where: str
) -> None:
    store = MemoryStore()
    store.saved[QUEUES[1]] = 4
    send(producer, range(8), queue=1)
    inbox = Inbox()
    settings = {"consume_from_where": where, "consume_timestamp_ms": 0}
    with make(broker, inbox, offset_store=store, **settings) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(4) == [4, 5, 6, 7]


@pytest.mark.parametrize("offset", [None, 0])
@pytest.mark.parametrize("where", WHERE)
def test_the_retry_topic(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock, where: str, offset: int | None
) -> None:
    """What waits there is consumed; only a new group that begins at a time leaves it out."""
    failing = Inbox()
    failing.fail = {b"0"}
    send(producer, [0], queue=1)
    with make(broker, failing) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: delayed(broker) == 1)
    clock.advance(11_000)
    broker.run_due()
    store = MemoryStore()
    store.saved[QUEUES[1]] = 1
    if offset is not None:
        store.saved[RETRY_QUEUE] = offset
    inbox = Inbox()
    settings = {"consume_from_where": where, "consume_timestamp_ms": 0}
    with make(broker, inbox, offset_store=store, **settings) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: pulled(consumer, RETRY_QUEUE) == 1)
        left_out = where == "CONSUME_FROM_TIMESTAMP" and offset is None
        send(producer, [1], queue=1)
        assert inbox.wait(1 if left_out else 2) == ([1] if left_out else [0, 1])


def test_a_queue_waits_where_the_broker_does_not_tell_its_offset(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    """To begin it as if the group were new would skip messages, or repeat them."""

    class Failing(MemoryStore):
        async def fetch(self, queue: MessageQueue) -> int:
            if queue == QUEUES[1] and failures:
                raise failures.pop()
            return await super().fetch(queue)

    failures = [ConnectError("no broker"), ConnectError("no broker")]
    store = Failing()
    store.saved[QUEUES[1]] = 3
    send(producer, range(4), queue=1)
    inbox = Inbox()
    settings = {"pull_delay_when_error_ms": 20}
    with make(broker, inbox, offset_store=store, **settings) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(1) == [3]
    assert failures == []


def pulled(consumer: PushConsumer, queue: MessageQueue) -> int:
    """Where the next pull of ``queue`` begins, -1 where that is not known."""
    task = consumer._core.tasks.get(queue)
    return -1 if task is None else task.next_offset


def test_the_time_may_be_given_as_java_writes_it(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    send(producer, range(2), queue=1)
    clock.advance(10 * HOUR)
    noon = time.strftime("%Y%m%d%H%M%S", time.localtime(clock.now_ms() // 1000))
    send(producer, range(2, 4), queue=1)
    clock.advance(10 * HOUR)
    send(producer, range(4, 5), queue=1)
    inbox = Inbox()
    settings = {"consume_from_where": "CONSUME_FROM_TIMESTAMP", "consume_timestamp": noon}
    with make(broker, inbox, offset_store=MemoryStore(), **settings) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(3) == [2, 3, 4]


@pytest.mark.parametrize("text", ["yesterday", "20241340000000", "2024-01-01 00:00:00"])
def test_a_time_that_is_none_is_refused(broker: EmbeddedBroker, text: str) -> None:
    with pytest.raises(ConfigError, match="consume_timestamp"):
        make(broker, Inbox(), consume_timestamp=text)


def test_the_time_is_given_once() -> None:
    settings = {"name_server": "x:1", "consume_timestamp": "20240101000000"}
    config = make_config(ConsumerConfig, {**settings, "consume_timestamp_ms": 5})
    with pytest.raises(ConfigError, match="not beside"):
        config.begin_ms(0)
    assert make_config(ConsumerConfig, {"name_server": "x:1"}).begin_ms(HOUR) == HOUR // 2
