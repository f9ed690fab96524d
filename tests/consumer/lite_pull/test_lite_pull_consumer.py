"""The lite pull consumer, against our broker."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from orbitmq import ConsumeMessageContext, FilterMessageContext, LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.errors import ClientStateError, ConfigError, IllegalNameError, TopicNotFoundError
from orbitmq.message import Message
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.lite_pull.lite_pulling import QUEUES, committed, drain, make, numbers, send


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
        assert consumer.poll(0) == []
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
        wait_until(lambda: consumer.flow_control_times().of_queue > 0)
        assert 15 < consumer._core.assignment.cached <= 20
        assert numbers(drain(consumer, 100)) == list(range(100))


def test_the_cache_of_all_queues_is_limited_too(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 100)
    with make(broker, pull_threshold_for_all=20, pull_batch_size=5) as consumer:
        consumer.subscribe("orders")
        wait_until(lambda: consumer.flow_control_times().of_all > 0)
        assert consumer._core.assignment.cached <= 40
        assert numbers(drain(consumer, 100)) == list(range(100))


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
    running = [consumer.is_running]
    with consumer:
        running.append(consumer.is_running)
        with pytest.raises(ClientStateError, match="RUNNING"):
            consumer.start()
        with pytest.raises(ConfigError, match="timeout"):
            consumer.poll(-1)
    consumer.shutdown()
    running.append(consumer.is_running)
    assert running == [False, True, False]
    with pytest.raises(ClientStateError):
        consumer.poll()
    with pytest.raises(ClientStateError, match="SHUTDOWN"):
        consumer.start()


def test_only_a_consumer_that_runs_is_iterated(broker: EmbeddedBroker) -> None:
    consumer = make(broker)
    for call in (iter, next):
        with pytest.raises(ClientStateError, match=r"start\(\)"):
            call(consumer)
    with consumer:
        loop = iter(consumer)
    assert list(loop) == []  # one that is under way ends quietly
    for call in (iter, next):
        with pytest.raises(ClientStateError, match="SHUTDOWN"):
            call(consumer)


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
        consumer.commit()
        consumer.shutdown()
        assert committed(broker) == dict.fromkeys(QUEUES, 4)


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


class Seen:
    """A hook that keeps what it is told, and one that takes out what is odd."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str | None, bool, list[int]]] = []

    def consume_message_before(self, context: ConsumeMessageContext) -> None:
        self._note("before", context)

    def consume_message_after(self, context: ConsumeMessageContext) -> None:
        self._note("after", context)

    def _note(self, when: str, context: ConsumeMessageContext) -> None:
        assert (context.consumer_group, context.message_queue) == ("readers", QUEUES[1])
        offsets = [message.queue_offset for message in context.message_list]
        self.told.append((when, context.status, context.success, offsets))

    def filter_message(self, context: FilterMessageContext) -> None:
        context.message_list[:] = [
            message for message in context.message_list if message.queue_offset % 2 == 0
        ]


def test_hooks_see_what_is_polled_and_may_filter_it(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 8, queue=1)
    hook = Seen()
    with make(broker) as consumer:
        consumer.register_consume_message_hook(hook)
        consumer.register_filter_message_hook(hook)
        consumer.assign(QUEUES[1:2])
        assert numbers(consumer.poll(5)) == [0, 2, 4, 6]
        offsets = [0, 2, 4, 6]
        done = ("after", "CONSUME_SUCCESS", True)
        assert hook.told == [("before", None, False, offsets), (*done, offsets)]
        consumer.seek(QUEUES[1], 5)
        assert next(consumer).queue_offset == 6
        assert hook.told[2:] == [("before", None, False, [6]), (*done, [6])]
        wait_until(lambda: consumer._core.assignment.positions() == {QUEUES[1]: 8})
