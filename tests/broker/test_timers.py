"""Messages with a time of their own: taken in, delivered, recalled, refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from orbitmq import BrokerError, Message, NoPermissionError, Producer
from orbitmq.broker.broker import Broker
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.redraft import redraft
from orbitmq.names import TIMER_TOPIC
from orbitmq.store.config import StoreConfig
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.properties import decode_properties

TOPIC = "timed"


def bodies(broker: EmbeddedBroker) -> list[bytes]:
    """What was delivered to TOPIC, in the order of the log."""
    return broker.call(lambda node: delivered(node.broker))


def delivered(broker: Broker) -> list[bytes]:
    units = [
        unit
        for queue_id in broker.store.topics().get(TOPIC, [])
        for unit in broker.store.read_units(TOPIC, queue_id, 0, 10_000)
    ]
    records = [
        broker.store.record_at(offset) for offset in sorted(u.physical_offset for u in units)
    ]
    return [bytes(redraft(record).body) for record in records if record is not None]


def settle(broker: EmbeddedBroker) -> None:
    """Do all that is due by now."""
    broker.run_due()
    while broker.call(lambda node: node.broker.wait_ms()) == 0:
        broker.run_due()


def advance(broker: EmbeddedBroker, clock: ManualClock, ms: int) -> None:
    settle(broker)
    clock.advance(ms)
    settle(broker)


def test_a_message_comes_at_the_end_of_the_second_its_time_is_in(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    producer.send(Message(TOPIC, b"2000", delay_ms=2000))
    producer.send(Message(TOPIC, b"2001", delay_ms=2001))
    producer.send(Message(TOPIC, b"3s", delay_seconds=3))
    advance(broker, clock, 1999)
    assert bodies(broker) == []
    advance(broker, clock, 1)
    assert bodies(broker) == [b"2000"]
    advance(broker, clock, 999)
    assert bodies(broker) == [b"2000"]
    advance(broker, clock, 1)
    assert bodies(broker) == [b"2000", b"2001", b"3s"]


def test_deliver_at_takes_a_datetime_and_milliseconds(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    due = datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(days=3)
    producer.send(Message(TOPIC, b"late", deliver_at=due))
    producer.send(Message(TOPIC, b"soon", deliver_at=clock.now_ms() + 60_000))
    producer.send(Message(TOPIC, b"now", deliver_at=clock.now_ms() - 60_000))
    assert bodies(broker) == [b"now"]
    advance(broker, clock, 60_000)
    assert bodies(broker) == [b"now", b"soon"]
    advance(broker, clock, 3 * 86_400_000 - 60_001)
    assert bodies(broker) == [b"now", b"soon"]
    advance(broker, clock, 1)
    assert bodies(broker) == [b"now", b"soon", b"late"]


def test_properties_are_those_of_apache(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    start = clock.now_ms()
    sent = producer.send(Message(TOPIC, b"x", delay_ms=2500, properties={"own": "1"}))
    advance(broker, clock, 3000)

    def properties(broker: Broker) -> dict[str, str]:
        queue = sent.message_queue.queue_id
        (unit,) = broker.store.read_units(TOPIC, queue, 0, 9)
        record = broker.store.record_at(unit.physical_offset)
        assert record is not None
        return decode_properties(redraft(record).properties)

    found = broker.call(lambda node: properties(node.broker))
    timed = {name: value for name, value in found.items() if name.startswith(("TIMER", "REAL"))}
    assert timed == {
        "TIMER_DELAY_MS": "2500",
        "TIMER_OUT_MS": str(start + 2000),
        "TIMER_ENQUEUE_MS": str(start),
        "TIMER_DEQUEUE_MS": str(start + 3000),
        "REAL_TOPIC": TOPIC,
        "REAL_QID": str(sent.message_queue.queue_id),
    }
    assert found["own"] == "1"
    assert found["UNIQ_KEY"] == sent.message_id


def test_a_recalled_message_does_not_come(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    results = [producer.send(Message(TOPIC, b"%d" % i, delay_seconds=5)) for i in range(3)]
    handle = results[1].recall_handle
    assert handle is not None
    assert producer.recall(TOPIC, handle) == results[1].message_id
    advance(broker, clock, 5000)
    assert bodies(broker) == [b"0", b"2"]
    with pytest.raises(BrokerError, match="timestamp invalid"):
        producer.recall(TOPIC, handle)


def test_a_far_message_goes_round_and_can_be_recalled(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    far = 3 * 86_400
    producer.send(Message(TOPIC, b"stays", delay_seconds=far))
    handle = producer.send(Message(TOPIC, b"goes", delay_seconds=far)).recall_handle
    assert handle is not None
    clock.advance(1)
    producer.recall(TOPIC, handle)
    for _ in range(3 * 24):
        advance(broker, clock, 3_600_000)
    assert bodies(broker) == [b"stays"]
    assert broker.call(lambda node: node.broker.store.max_offset(TIMER_TOPIC, 0)) == 6


def test_more_than_a_run_can_do(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    sent = [b"%d" % number for number in range(700)]
    for body in sent:
        producer.send_async(Message(TOPIC, body, delay_seconds=2))
    producer.send(Message(TOPIC, b"last", delay_seconds=3))
    advance(broker, clock, 3000)
    assert sorted(bodies(broker)) == sorted([*sent, b"last"])


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"TIMER_DELAY_MS": "soon"}, "is no number"),
        ({"TIMER_DELAY_SEC": "1.5"}, "is no number"),
        ({"TIMER_DELIVER_MS": "9" * 300}, "is no number"),
        ({"TIMER_DELIVER_MS": "9" * 18}, "max delay"),
        ({"TIMER_DELAY_MS": str(3 * 86_400_000 + 1)}, "max delay"),
    ],
)
def test_impossible_timers_are_refused(
    producer: Producer, properties: dict[str, str], reason: str
) -> None:
    with pytest.raises(BrokerError, match=reason) as caught:
        producer.send(Message(TOPIC, b"x", properties=properties))
    assert caught.value.code == 13


def test_a_negative_delay_is_over(broker: EmbeddedBroker, producer: Producer) -> None:
    sent = producer.send(Message(TOPIC, b"x", properties={"TIMER_DELAY_MS": "-5"}))
    assert sent.recall_handle is None
    assert bodies(broker) == [b"x"]


def test_a_delay_level_counts_before_a_timer(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    message = Message(TOPIC, b"x", delay_level=1, properties={"TIMER_DELAY_SEC": "100"})
    producer.send(message)
    advance(broker, clock, 1000)
    assert bodies(broker) == [b"x"]


def test_without_a_wheel_timers_are_refused() -> None:
    off = StoreConfig(timer_wheel=False)
    with (
        EmbeddedBroker(store_config=off) as broker,
        Producer("makers", name_server=broker.name_server) as producer,
        pytest.raises(BrokerError, match="timerWheelEnable is false"),
    ):
        producer.send(Message(TOPIC, b"x", delay_ms=1000))


def test_recalls_can_be_switched_off(clock: ManualClock) -> None:
    with (
        EmbeddedBroker(clock=clock, recall_enabled=False) as broker,
        Producer("makers", name_server=broker.name_server) as producer,
    ):
        handle = producer.send(Message(TOPIC, b"x", delay_ms=1000)).recall_handle
        assert handle is not None
        with pytest.raises(NoPermissionError):
            producer.recall(TOPIC, handle)


def test_a_congested_second_takes_no_more(clock: ManualClock) -> None:
    with (
        EmbeddedBroker(
            clock=clock, store_config=StoreConfig(timer_congestion_per_slot=1)
        ) as broker,
        Producer("makers", name_server=broker.name_server) as producer,
    ):
        for _ in range(2):
            producer.send(Message(TOPIC, b"x", delay_ms=5000))
            settle(broker)
        with pytest.raises(BrokerError, match="flow control"):
            producer.send(Message(TOPIC, b"x", delay_ms=5000))
        producer.send(Message(TOPIC, b"x", delay_ms=6000))
