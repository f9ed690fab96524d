"""The push consumers, concurrent and orderly, against our broker with a clock that is moved."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orbitmq import LitePullConsumer, Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.client.async_push_consumer import AsyncPushConsumer
from orbitmq.client.listeners import (
    ConsumeConcurrentlyContext,
    ConsumeOrderlyContext,
    ConsumeStatus,
)
from orbitmq.errors import ClientStateError, ConfigError, IllegalNameError
from orbitmq.message import Message, MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(4)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(clock: ManualClock) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(clock=clock) as running:
        yield running


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer("makers", name_server=broker.name_server) as running:
        yield running


class Inbox:
    """A listener that keeps what it gets, and fails where it is told to."""

    def __init__(self) -> None:
        self.messages: list[MessageView] = []
        self.batches: list[int] = []
        self.fail: set[bytes] = set()
        self.times: Counter[bytes] = Counter()
        self.threads: set[str] = set()
        self.lock = threading.Lock()

    def __call__(self, messages: Sequence[MessageView]) -> ConsumeStatus:
        with self.lock:
            self.threads.add(threading.current_thread().name)
            self.batches.append(len(messages))
            for message in messages:
                self.times[message.body] += 1
                if message.body in self.fail:
                    return ConsumeStatus.RECONSUME_LATER
            self.messages += messages
            return ConsumeStatus.SUCCESS

    def numbers(self) -> list[int]:
        with self.lock:
            return sorted(int(message.body) for message in self.messages)

    def wait(self, count: int) -> list[int]:
        wait_until(lambda: len(self.messages) >= count, f"{count} messages, {self.numbers()}")
        return self.numbers()


def make(broker: EmbeddedBroker, listener: Any = None, **settings: Any) -> PushConsumer:
    settings.setdefault("consume_from_where", "CONSUME_FROM_FIRST_OFFSET")
    group = settings.pop("group", "readers")
    return PushConsumer(group, listener, name_server=broker.name_server, **settings)


def send(
    producer: Producer, numbers: Sequence[int], *, tags: str = "t", queue: int | None = None
) -> None:
    for number in numbers:
        target = QUEUES[number % 4 if queue is None else queue]
        producer.send(Message("orders", b"%d" % number, tags=tags), queue=target)


def committed(broker: EmbeddedBroker, topic: str = "orders", group: str = "readers") -> list[int]:
    """The offsets the broker has of the group, by queue."""
    offsets = broker.call(
        lambda node: [node.broker.offsets.query(group, topic, number) for number in range(4)]
    )
    return [-1 if offset is None else offset for offset in offsets]


def move(broker: EmbeddedBroker, clock: ManualClock, seconds: int) -> None:
    clock.advance(seconds * 1000)
    broker.run_due()


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


def test_what_fails_comes_again_later_as_it_was(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    inbox = Inbox()
    inbox.fail = {b"1"}
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        send(producer, range(4))
        assert inbox.wait(3) == [0, 2, 3]
        wait_until(lambda: delayed(broker) == 1)
        inbox.fail.clear()
        move(broker, clock, 11)
        assert inbox.wait(4) == [0, 1, 2, 3]
        (message,) = [item for item in inbox.messages if item.body == b"1"]
        assert (message.topic, message.reconsume_times, message.tags) == ("orders", 1, "t")
        assert message.stored_topic == "%RETRY%readers"
    assert committed(broker) == [1, 1, 1, 1]
    assert committed(broker, "%RETRY%readers")[0] == 1


def delayed(broker: EmbeddedBroker) -> int:
    """Messages that wait in the delay queues."""
    store_queues = range(18)
    return broker.call(
        lambda node: sum(
            node.broker.store.max_offset("SCHEDULE_TOPIC_XXXX", number) for number in store_queues
        )
    )


def test_what_fails_too_often_goes_to_the_dead_letters(
    broker: EmbeddedBroker,
    producer: Producer,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    times: list[int] = []

    def refuse(messages: Sequence[MessageView], context: ConsumeConcurrentlyContext) -> None:
        context.delay_level_when_next_consume = 1
        times.extend(message.reconsume_times for message in messages)
        raise ValueError("never")

    send(producer, [7])
    with make(broker, refuse, max_reconsume_times=2) as consumer:
        consumer.subscribe("orders")
        for attempt in range(1, 4):
            wait_until(partial(reached, times, attempt))
            wait_until(partial(reached_delays, broker, min(attempt, 2)))
            move(broker, clock, 2)
        dead = wait_until(lambda: dead_letters(broker))
    assert times == [0, 1, 2]
    assert dead == [b"7"]
    assert "ValueError: never" in caplog.text


def reached(times: list[int], count: int) -> bool:
    return len(times) == count


def reached_delays(broker: EmbeddedBroker, count: int) -> bool:
    return delayed(broker) == count


def dead_letters(broker: EmbeddedBroker) -> list[bytes]:
    with LitePullConsumer(
        "undertakers",
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        auto_commit=False,
    ) as consumer:
        consumer.assign([MessageQueue("%DLQ%readers", "broker-a", 0)])
        return [message.body for message in consumer.poll(0.3)]


def test_a_delay_level_below_zero_gives_up_at_once(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    def refuse(messages: Sequence[MessageView], context: ConsumeConcurrentlyContext) -> bool:
        context.delay_level_when_next_consume = -1
        return False

    send(producer, [7])
    with make(broker, refuse) as consumer:
        consumer.subscribe("orders")
        assert wait_until(lambda: dead_letters(broker)) == [b"7"]


def test_the_ack_index_parts_a_batch(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    seen: list[list[int]] = []

    def half(messages: Sequence[MessageView], context: ConsumeConcurrentlyContext) -> None:
        seen.append([int(message.body) for message in messages])
        if len(messages) == 4:
            context.ack_index = 1

    send(producer, range(4), queue=1)
    with make(broker, half, consume_batch_size=4) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: delayed(broker) == 2)
        move(broker, clock, 11)
        wait_until(lambda: sum(map(len, seen)) == 6)
    assert seen[0] == [0, 1, 2, 3]
    assert sorted(number for batch in seen[1:] for number in batch) == [2, 3]
    assert committed(broker)[1] == 4


def test_under_broadcasting_everybody_gets_everything_and_failures_are_dropped(
    broker: EmbeddedBroker,
    producer: Producer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    inboxes = [Inbox(), Inbox()]
    inboxes[0].fail = {b"2"}
    consumers = [
        make(
            broker,
            inbox,
            instance_name=f"member-{number}",
            message_model="BROADCASTING",
            local_offset_dir=str(tmp_path),
        )
        for number, inbox in enumerate(inboxes)
    ]
    send(producer, range(8))
    with consumers[0], consumers[1]:
        for consumer in consumers:
            consumer.subscribe("orders")
        assert inboxes[0].wait(7) == [0, 1, 3, 4, 5, 6, 7]
        assert inboxes[1].wait(8) == list(range(8))
    assert "dropped" in caplog.text
    assert len(list(tmp_path.rglob("offsets.json"))) == 2


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


def test_a_slow_listener_costs_no_heartbeat_and_no_other_queue(
    broker: EmbeddedBroker, producer: Producer
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
        clock_moved = broker._clock
        assert isinstance(clock_moved, ManualClock)
        clock_moved.advance(60_000)
        wait_until(lambda: next(iter(members.values())).seen_ms > before)
        release.set()
        inbox.wait(40)
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


def test_suspending(broker: EmbeddedBroker, producer: Producer) -> None:
    inbox = Inbox()
    with make(broker, inbox) as consumer:
        consumer.subscribe("orders")
        send(producer, range(4))
        inbox.wait(4)
        consumer.suspend()
        send(producer, range(4, 8))
        inbox.wait(8)  # the pulls the broker held already
        send(producer, range(8, 12))
        core = consumer._core
        wait_until(lambda: all(task._timer for task in core.tasks.values() if task.queue in QUEUES))
        assert len(inbox.messages) == 8
        consumer.resume()
        began = time.monotonic()
        inbox.wait(12)
        assert time.monotonic() - began < 0.9


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


# In order


def by_queue(messages: Sequence[MessageView]) -> dict[int, list[int]]:
    queues: dict[int, list[int]] = defaultdict(list)
    for message in messages:
        queues[message.queue_id].append(message.queue_offset)
    return dict(queues)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_each_queue_is_consumed_in_order_by_one_at_a_time(
    broker: EmbeddedBroker, producer: Producer, asynchronous: bool
) -> None:
    inbox = Inbox()
    inbox.fail = {b"5", b"22"}
    busy: set[int] = set()

    def listener(messages: Sequence[MessageView]) -> ConsumeStatus:
        assert messages[0].queue_id not in busy
        busy.add(messages[0].queue_id)
        status = inbox(messages)
        if status is not ConsumeStatus.SUCCESS and inbox.times[messages[0].body] == 3:
            inbox.fail.discard(messages[0].body)
        busy.discard(messages[0].queue_id)
        return status

    async def later(messages: Sequence[MessageView]) -> ConsumeStatus:
        await asyncio.sleep(0)
        return listener(messages)

    send(producer, range(80))
    with make(
        broker,
        later if asynchronous else listener,
        orderly=True,
        suspend_current_queue_time_ms=20,
    ) as consumer:
        consumer.subscribe("orders")
        inbox.wait(80)
    assert by_queue(inbox.messages) == {number: list(range(20)) for number in range(4)}
    assert inbox.times[b"5"] == inbox.times[b"22"] == 4
    assert committed(broker) == [20] * 4


def test_orderly_queues_move_without_a_message_twice_or_out_of_order(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    inbox = Inbox()
    send(producer, range(40))
    first = make(broker, inbox, orderly=True)
    second = make(broker, inbox, orderly=True)
    for consumer in (first, second):
        consumer.subscribe("orders")
    with first:
        inbox.wait(40)
        with second:
            wait_until(lambda: sum(q.topic == "orders" for q in second._core.tasks) == 2)
            held = [q for c in (first, second) for q in c._core.tasks if q.topic == "orders"]
            assert len(held) == len(set(held)) == 4
            send(producer, range(40, 80))
            inbox.wait(80)
        send(producer, range(80, 120))
        inbox.wait(120)
    assert by_queue(inbox.messages) == {number: list(range(30)) for number in range(4)}


def test_a_queue_in_the_middle_of_a_batch_is_handed_over_when_it_ends(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    begun, release = threading.Event(), threading.Event()
    inbox = Inbox()

    def slow(messages: Sequence[MessageView]) -> None:
        if messages[0].queue_id == 3:
            begun.set()
            assert release.wait(20)
        inbox(messages)

    other = Inbox()
    first, second = make(broker, slow, orderly=True), make(broker, other, orderly=True)
    for consumer in (first, second):
        consumer.subscribe("orders")
    send(producer, range(40))
    with first:
        assert begun.wait(10)
        inbox.wait(30)
        with second:
            wait_until(
                lambda: (task := first._core.tasks.get(QUEUES[3])) and task.process_queue.leaving
            )
            assert QUEUES[3] not in second._core.tasks
            release.set()
            other.wait(9)
    assert by_queue(inbox.messages)[3] == [0]
    assert by_queue(other.messages)[3] == list(range(1, 10))


def test_committing_and_rolling_back_by_hand(broker: EmbeddedBroker, producer: Producer) -> None:
    seen: list[int] = []
    rolled_back = False

    def listener(messages: Sequence[MessageView], context: ConsumeOrderlyContext) -> ConsumeStatus:
        nonlocal rolled_back
        context.auto_commit = False
        context.suspend_current_queue_time_ms = 10
        number = int(messages[0].body)
        seen.append(number)
        if number == 2:
            return ConsumeStatus.COMMIT
        if number == 5 and not rolled_back:
            rolled_back = True
            return ConsumeStatus.ROLLBACK
        return ConsumeStatus.SUCCESS

    send(producer, range(7), queue=1)
    with make(broker, listener, orderly=True) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: len(seen) == 10)
        wait_until(lambda: not consumer._core.tasks[QUEUES[1]].process_queue.running)
    assert seen == [0, 1, 2, 3, 4, 5, 3, 4, 5, 6]
    assert committed(broker)[1] == 3


def test_an_orderly_message_that_fails_too_often_gives_way(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    inbox = Inbox()
    inbox.fail = {b"1"}
    send(producer, range(3), queue=1)
    with make(
        broker, inbox, orderly=True, max_reconsume_times=2, suspend_current_queue_time_ms=10
    ) as consumer:
        consumer.subscribe("orders")
        assert inbox.wait(2) == [0, 2]
        wait_until(lambda: inbox.times[b"1"] >= 3)
        move(broker, clock, 60)
        assert wait_until(lambda: dead_letters(broker)) == [b"1"]
    assert inbox.times[b"1"] == 3
    assert committed(broker)[1] == 3


def test_a_lost_lock_stops_the_queue_until_it_is_won_back(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    inbox = Inbox()
    with make(broker, inbox, orderly=True) as consumer:
        consumer.subscribe("orders")
        send(producer, range(4))
        inbox.wait(4)
        core = consumer._core

        def steal(node: Any) -> None:
            node.broker.locks.unlock("readers", [QUEUES[1]], core.instance.client_id)
            node.broker.locks.lock("readers", [QUEUES[1]], "thief", node.broker.clock.now_ms())

        broker.call(steal)
        core.thread.run(core.lock_all())
        assert not core.tasks[QUEUES[1]].process_queue.locked
        assert "locked for another consumer" in caplog.text
        send(producer, [9, 8])
        assert inbox.wait(5) == [0, 1, 2, 3, 8]
        broker.call(lambda node: node.broker.locks.unlock("readers", [QUEUES[1]], "thief"))
        core.thread.run(core.lock_all())
        inbox.wait(6)
    assert by_queue(inbox.messages)[1] == [0, 1]


def test_orderly_without_sharing_needs_no_locks(
    broker: EmbeddedBroker, producer: Producer, tmp_path: Path
) -> None:
    inbox = Inbox()
    send(producer, range(20))
    with make(
        broker,
        inbox,
        orderly=True,
        message_model="BROADCASTING",
        local_offset_dir=str(tmp_path),
    ) as consumer:
        consumer.subscribe("orders")
        inbox.wait(20)
    assert by_queue(inbox.messages) == {number: list(range(5)) for number in range(4)}


def test_the_log_says_who_gave_and_took(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, range(4))
    with caplog.at_level(logging.INFO, "orbitmq.client.rebalance"), make(broker, Inbox()) as first:
        first.subscribe("orders")
        wait_until(lambda: len(first._core.tasks) == 5)
        with make(broker, Inbox()) as second:
            second.subscribe("orders")
            wait_until(lambda: sum(q.topic == "orders" for q in first._core.tasks) == 2)
            joined = second._core.instance.client_id
        wait_until(lambda: sum(q.topic == "orders" for q in first._core.tasks) == 4)
    assert f"(joined: {joined})" in caplog.text
    assert f"from {joined} (left: {joined})" in caplog.text
