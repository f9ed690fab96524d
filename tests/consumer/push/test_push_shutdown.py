"""Push consumers that end, or whose listeners take their time, against our broker."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Sequence

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.consumer.push.queue_locks import QueueLocks
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.headers import UpdateConsumerOffsetRequestHeader
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import Inbox, committed, make, send
from tests.net.seen import Seen


def test_shutting_down_waits_for_listeners_and_leaves_the_rest_to_others(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    begun, release = threading.Semaphore(0), threading.Event()
    inbox = Inbox()

    def slow(messages: Sequence[MessageView]) -> None:
        begun.release()
        assert release.wait(10)
        inbox(messages)

    send(producer, range(40))
    consumer = make(broker, slow, consume_threads=6)
    consumer.subscribe("orders")
    consumer.start()
    for _ in range(6):
        assert begun.acquire(timeout=10)
    shutdown = threading.Thread(target=consumer.shutdown)
    shutdown.start()
    wait_until(lambda: all(task.process_queue.leaving for task in consumer._core.tasks.values()))
    assert shutdown.is_alive()
    release.set()
    shutdown.join(10)
    assert not shutdown.is_alive()
    assert len(inbox.messages) == 6
    assert sum(committed(broker)) == 6
    rest = Inbox()
    with make(broker, rest) as other:
        other.subscribe("orders")
        rest.wait(34)
    assert sorted(inbox.numbers() + rest.numbers()) == list(range(40))


def test_queues_whose_offset_moved_are_given_back_first(
    requests: list[Seen], broker: EmbeddedBroker, producer: Producer
) -> None:
    """The next owner waits only so long, and would repeat what was consumed of them."""
    inbox = Inbox()
    send(producer, [0], queue=0)  # makes the topic
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        inbox.wait(1)
        send(producer, [2], queue=2)
        inbox.wait(2)
        consumer._core.thread.run(consumer._core.persist_offsets())
        send(producer, [3], queue=3)
        inbox.wait(3)
        wait_until(lambda: len(consumer._core.tasks) == 5, "all queues")
        del requests[:]
    saved = [
        seen.command.header(UpdateConsumerOffsetRequestHeader).queue_id
        for seen in requests
        if seen.command.code == RequestCode.UPDATE_CONSUMER_OFFSET
    ]
    assert len(saved) == 5
    assert saved[0] == 3


def test_a_listener_that_takes_too_long_is_not_waited_for(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    begun, release = threading.Event(), threading.Event()

    def stuck(messages: Sequence[MessageView]) -> None:
        begun.set()
        release.wait(20)

    send(producer, [1])
    consumer = make(broker, stuck)
    consumer.subscribe("orders")
    consumer.start()
    assert begun.wait(10)
    consumer.shutdown(timeout=0.05)
    assert "come again" in caplog.text
    assert consumer.wait(0)
    inbox = Inbox()
    with make(broker, inbox) as other:
        other.subscribe("orders")
        inbox.wait(1)
    release.set()
    assert committed(broker)[1] == 1


def test_locks_granted_while_the_consumer_is_shut_down_are_given_back(
    broker: EmbeddedBroker, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rebalance that asked for them ends after the shutdown began, and before it is over."""
    granted, go_on = threading.Event(), threading.Event()
    lock = QueueLocks.lock

    async def slow_lock(
        self: QueueLocks, queues: Iterable[MessageQueue]
    ) -> dict[MessageQueue, bool]:
        answer = await lock(self, queues)
        if any(queue.topic == "orders" for queue in answer):
            granted.set()
            await asyncio.to_thread(go_on.wait, 10)
        return answer

    monkeypatch.setattr(QueueLocks, "lock", slow_lock)
    send(producer, range(4))
    consumer = make(broker, Inbox(), orderly=True)
    consumer.subscribe("orders")
    consumer.start()
    assert granted.wait(10)
    assert locked(broker)
    shutdown = threading.Thread(target=consumer.shutdown)
    shutdown.start()
    wait_until(lambda: not consumer._core.lifecycle.running)
    assert shutdown.is_alive()
    go_on.set()
    shutdown.join(10)
    assert not shutdown.is_alive()
    assert consumer._core.tasks == {}
    assert not locked(broker)


def test_an_orderly_consumer_leaves_its_offsets_and_gives_back_its_locks(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox = Inbox()
    send(producer, range(8))
    with make(broker, inbox, orderly=True) as consumer:
        consumer.subscribe("orders")
        inbox.wait(8)
        assert locked(broker)
    assert not locked(broker)
    assert committed(broker) == [2] * 4


def locked(broker: EmbeddedBroker) -> bool:
    """Whether a queue is locked for the group."""
    return broker.call(lambda node: node.broker.locks.any_held("readers", node.broker.now_ms()))


def test_a_slow_listener_costs_no_heartbeat_and_no_other_queue(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    release = threading.Event()
    inbox = Inbox()

    def listener(messages: Sequence[MessageView]) -> None:
        if messages[0].queue_id == 0:
            assert release.wait(20)
        inbox(messages)

    send(producer, range(40))
    with make(broker, listener, heartbeat_interval_ms=50) as consumer:
        consumer.subscribe("orders")
        inbox.wait(30)
        members = broker.call(lambda node: node.broker.consumers.groups["readers"].members)
        before = next(iter(members.values())).seen_ms
        clock.advance(60_000)
        wait_until(lambda: next(iter(members.values())).seen_ms > before)
        release.set()
        inbox.wait(40)
    assert committed(broker) == [10] * 4
