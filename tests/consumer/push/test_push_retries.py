"""What push consumers do with messages that fail, against our broker with a clock that is moved."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from orbitmq import Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.consumer.push.listeners import ConsumeConcurrentlyContext
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.consumer.push.pushing import Inbox, committed, dead_letters, delayed, make, move, send


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
