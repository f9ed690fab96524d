"""The pull consumer against our broker: what each kind of pull brings."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from orbitmq import FilterMessageContext, MessageSelector, Producer, PullConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.hooks import ConsumeMessageContext
from orbitmq.consumer.pull_request import PullResult
from orbitmq.errors import ClientStateError, ConfigError, ConnectError, TopicNotFoundError
from orbitmq.message import Message, MessageQueue, PullStatus
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from tests.consumer.push.pushing import QUEUES, dead_letters, move, send

Q0, Q1 = QUEUES[:2]


def make(broker: EmbeddedBroker, group: str = "readers", **settings: Any) -> PullConsumer:
    return PullConsumer(group, name_server=broker.name_server, **settings)


@pytest.fixture
def consumer(broker: EmbeddedBroker) -> Iterator[PullConsumer]:
    with make(broker) as running:
        yield running


def holding_pulls(broker: EmbeddedBroker) -> int:
    return broker.call(lambda node: len(node.broker.pulling.held))


def bodies(result: PullResult) -> list[int]:
    return [int(message.body) for message in result.messages]


def test_a_pull_brings_what_there_is_and_says_where_to_go_on(
    producer: Producer, consumer: PullConsumer
) -> None:
    send(producer, range(5), queue=0)
    result = consumer.pull(Q0, "*", 1, 3)
    assert result[:4] == (PullStatus.FOUND, 4, 0, 5)
    assert bodies(result) == [1, 2, 3]
    first = result.messages[0]
    assert (first.topic, first.message_queue, first.queue_offset) == ("orders", Q0, 1)
    assert (first.property("MIN_OFFSET"), first.property("MAX_OFFSET")) == ("0", "5")


def test_where_there_is_nothing_the_status_says_why(
    producer: Producer, consumer: PullConsumer
) -> None:
    send(producer, range(5), queue=0)
    assert consumer.pull(Q0, "*", 5, 32) == (PullStatus.NO_NEW_MESSAGE, 5, 0, 5, [])
    assert consumer.pull(Q0, "other", 0, 32) == (PullStatus.NO_MATCHED_MESSAGE, 5, 0, 5, [])
    assert consumer.pull(Q0, "*", 9, 32) == (PullStatus.OFFSET_ILLEGAL, 5, 0, 5, [])
    empty = consumer.pull(Q1, "*", 3, 32)
    assert (empty.status, empty.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 0)


def test_tags_and_sql_choose_messages(producer: Producer, consumer: PullConsumer) -> None:
    for number, tag in enumerate(["AaAa", "BBBB", "paid"]):  # the first two hash to the same
        message = Message("orders", b"%d" % number, tags=tag, properties={"price": str(number)})
        producer.send(message, queue=Q0)
    assert bodies(consumer.pull(Q0, "AaAa || paid", 0, 32)) == [0, 2]
    assert bodies(consumer.pull(Q0, MessageSelector.by_tag("paid"), 0, 32)) == [2]
    assert bodies(consumer.pull(Q0, MessageSelector.by_sql("price >= 1"), 0, 32)) == [1, 2]
    assert bodies(consumer.pull(Q0, None, 0, 32)) == [0, 1, 2]
    left_out = consumer.pull(Q0, "AaAa", 1, 1)
    assert left_out == (PullStatus.FOUND, 2, 0, 3, [])  # the broker found it by its hash code


def test_a_blocking_pull_waits_for_a_message(
    broker: EmbeddedBroker, producer: Producer, consumer: PullConsumer
) -> None:
    send(producer, [0], queue=0)
    results: list[PullResult] = []
    thread = threading.Thread(
        target=lambda: results.append(consumer.pull_block_if_not_found(Q0, "*", 1, 32))
    )
    thread.start()
    wait_until(lambda: holding_pulls(broker) == 1)
    send(producer, [1], queue=0)
    thread.join(10)
    assert bodies(results[0]) == [1]
    assert bodies(consumer.pull_block_if_not_found(Q0, "*", 0, 32)) == [0, 1]


def test_a_blocking_pull_waits_no_longer_than_it_is_set_to(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock
) -> None:
    send(producer, [0], queue=0)
    with make(broker, broker_suspend_max_time_ms=5_000) as consumer:
        future = consumer.pull_async(Q0, "*", 1, 32, block_if_not_found=True)
        wait_until(lambda: holding_pulls(broker) == 1)
        assert not future.done()
        move(broker, clock, 6)
        assert future.result(10).status is PullStatus.NO_NEW_MESSAGE


def test_an_asynchronous_pull_tells_a_callback_on_its_thread(
    producer: Producer, consumer: PullConsumer
) -> None:
    send(producer, range(3), queue=0)
    told: list[tuple[Any, ...]] = []

    def callback(result: PullResult | None, error: BaseException | None) -> None:
        told.append((result, error, threading.current_thread().name))

    consumer.pull_async(Q0, "*", 1, 32, callback)
    consumer.pull_async(MessageQueue("orders", "nowhere", 0), "*", 0, 32, callback)
    wait_until(lambda: len(told) == 2)
    results = [result for result, _, _ in told if result is not None]
    (error,) = [error for _, error, _ in told if error is not None]
    assert [bodies(result) for result in results] == [[1, 2]]
    assert isinstance(error, ConnectError)
    assert {name for *_, name in told} == {"orbitmq-callbacks"}


def test_a_future_has_the_result_and_calls_back_on_the_callback_thread(
    producer: Producer, consumer: PullConsumer
) -> None:
    send(producer, range(3), queue=0)
    future = consumer.pull_async(Q0, "*", 0, 2)
    called: concurrent.futures.Future[str] = concurrent.futures.Future()
    future.add_done_callback(lambda _: called.set_result(threading.current_thread().name))
    assert bodies(future.result(10)) == [0, 1]
    assert called.result(10) == "orbitmq-callbacks"
    assert not future.cancel()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"offset": -1}, "offset"),
        ({"max_nums": 0}, "max_nums"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"max_nums": 2**31}, "max_nums"),
        ({"expression": "||"}, "expression"),
    ],
    ids=str,
)
def test_arguments_out_of_range_are_refused_at_once(
    consumer: PullConsumer, change: dict[str, Any], name: str
) -> None:
    arguments: dict[str, Any] = {"expression": "*", "offset": 0, "max_nums": 32, **change}
    for pull in (consumer.pull, consumer.pull_async):
        with pytest.raises(ConfigError) as caught:
            pull(Q0, **arguments)
        assert caught.value.name == name


def test_settings_are_java_s_and_are_checked(broker: EmbeddedBroker) -> None:
    config = make(broker)._core.config
    assert config.broker_suspend_max_time_ms == 20_000
    assert config.consumer_timeout_when_suspend_ms == 30_000
    assert config.consumer_pull_timeout_ms == 10_000
    assert config.max_reconsume_times == 16
    assert config.enable_rebalance
    with pytest.raises(ConfigError, match="consumer_timeout_when_suspend_ms=1000"):
        make(broker, consumer_timeout_when_suspend_ms=1_000)
    with pytest.raises(ConfigError, match="pull_batch_size"):
        make(broker, pull_batch_size=32)


CALLS: list[Callable[[PullConsumer], object]] = [
    lambda consumer: consumer.pull(Q0, "*", 0, 32),
    lambda consumer: consumer.pull_async(Q0, "*", 0, 32),
    lambda consumer: consumer.pull_block_if_not_found(Q0, "*", 0, 32),
    lambda consumer: consumer.fetch_subscribe_message_queues("orders"),
    lambda consumer: consumer.fetch_message_queues_in_balance("orders"),
    lambda consumer: consumer.fetch_consume_offset(Q0),
    lambda consumer: consumer.update_consume_offset(Q0, 1),
    lambda consumer: consumer.persist(Q0),
    lambda consumer: consumer.max_offset(Q0),
]


@pytest.mark.parametrize("call", CALLS)
def test_only_a_running_consumer_may_be_used(
    broker: EmbeddedBroker, call: Callable[[PullConsumer], object]
) -> None:
    consumer = make(broker)
    with pytest.raises(ClientStateError, match="CREATE_JUST"):
        call(consumer)
    consumer.shutdown()
    consumer.start()
    with pytest.raises(ClientStateError, match="RUNNING"):
        consumer.start()
    consumer.shutdown()
    consumer.shutdown()
    with pytest.raises(ClientStateError, match="SHUTDOWN_ALREADY"):
        call(consumer)


def test_shutdown_ends_pulls_that_wait(
    broker: EmbeddedBroker, producer: Producer, consumer: PullConsumer
) -> None:
    send(producer, [0], queue=0)
    future = consumer.pull_async(Q0, "*", 1, 32, block_if_not_found=True)
    wait_until(lambda: holding_pulls(broker) == 1)
    consumer.shutdown()
    with pytest.raises(ClientStateError, match="shut down during a pull"):
        future.result(10)


def test_a_topic_without_queues_is_an_error(consumer: PullConsumer, producer: Producer) -> None:
    with pytest.raises(TopicNotFoundError):
        consumer.fetch_subscribe_message_queues("orders")
    send(producer, [0], queue=0)
    assert consumer.fetch_subscribe_message_queues("orders") == QUEUES


def test_the_ends_of_a_queue_and_a_time_in_it(
    producer: Producer, consumer: PullConsumer, clock: ManualClock
) -> None:
    begin = clock.now_ms()
    send(producer, range(2), queue=0)
    clock.advance(10_000)
    send(producer, range(2), queue=0)
    assert (consumer.min_offset(Q0), consumer.max_offset(Q0)) == (0, 4)
    assert consumer.search_offset(Q0, begin + 5_000) == 2
    assert consumer.earliest_message_store_time(Q0) == begin


def test_hooks_filter_what_comes_and_see_what_is_left(
    producer: Producer, consumer: PullConsumer
) -> None:
    class Even:
        def filter_message(self, context: FilterMessageContext) -> None:
            context.message_list[:] = [m for m in context.message_list if int(m.body) % 2 == 0]

    class Seen:
        def __init__(self) -> None:
            self.before: list[int] = []
            self.after: list[tuple[str, str | None, bool]] = []

        def consume_message_before(self, context: ConsumeMessageContext) -> None:
            self.before += [int(message.body) for message in context.message_list]

        def consume_message_after(self, context: ConsumeMessageContext) -> None:
            self.after.append((context.consumer_group, context.status, context.success))

    seen = Seen()
    consumer.register_filter_message_hook(Even())
    consumer.register_consume_message_hook(seen)
    send(producer, range(5), queue=0)
    assert bodies(consumer.pull(Q0, "*", 0, 32)) == [0, 2, 4]
    assert bodies(consumer.pull_async(Q0, "*", 0, 2).result(10)) == [0]
    assert seen.before == [0, 2, 4]
    assert seen.after == [("readers", "CONSUME_SUCCESS", True)]


def test_messages_sent_back_come_again_in_the_retry_topic(
    broker: EmbeddedBroker, producer: Producer, consumer: PullConsumer, clock: ManualClock
) -> None:
    send(producer, range(2), queue=0)
    first, second = consumer.pull(Q0, "*", 0, 32).messages
    consumer.send_message_back(first, 1)
    consumer.send_message_back(second, -1)
    move(broker, clock, 2)
    (queue,) = consumer.fetch_subscribe_message_queues("%RETRY%readers")
    (again,) = consumer.pull(queue, "*", 0, 32).messages
    assert (again.body, again.reconsume_times) == (b"0", 1)
    assert again.property("RETRY_TOPIC") == "orders"
    assert dead_letters(broker) == [b"1"]


def test_messages_may_be_sent_back_to_another_broker_and_group(
    broker: EmbeddedBroker, producer: Producer, consumer: PullConsumer, clock: ManualClock
) -> None:
    send(producer, [0], queue=0)
    (message,) = consumer.pull(Q0, "*", 0, 32).messages
    message.broker_name = ""
    consumer.send_message_back(message, 1, "broker-a", "others")
    move(broker, clock, 2)
    (queue,) = consumer.fetch_subscribe_message_queues("%RETRY%others")
    assert bodies(consumer.pull(queue, "*", 0, 32)) == [0]


def test_names_are_wrapped_in_the_namespace(broker: EmbeddedBroker) -> None:
    with (
        Producer("makers", name_server=broker.name_server, namespace="ns") as producer,
        make(broker, namespace="ns", topics="orders") as consumer,
    ):
        producer.send(Message("orders", b"7"), queue=None)
        queues = consumer.fetch_subscribe_message_queues("orders")
        assert {queue.topic for queue in queues} == {"orders"}
        (found,) = [m for queue in queues for m in consumer.pull(queue, "*", 0, 1).messages]
        assert (found.topic, found.body) == ("orders", b"7")
        assert found.stored_topic == "ns%orders"
        wait_until(lambda: consumer.fetch_message_queues_in_balance("orders") == queues)
        consumer.update_consume_offset(queues[0], 1)
        consumer.persist(queues[0])
        assert consumer.fetch_consume_offset(queues[0], from_store=True) == 1
    offset = broker.call(lambda node: node.broker.offsets.query("ns%readers", "ns%orders", 0))
    assert offset == 1
