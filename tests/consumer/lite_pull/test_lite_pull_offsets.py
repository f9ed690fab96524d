"""Offsets of lite pull consumers: what is committed when, seeking, and where they begin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from orbitmq import LitePullConsumer, Producer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.consumer.offsets import NO_OFFSET, OffsetStore
from orbitmq.errors import ClientStateError, ConfigError
from orbitmq.message import MessageQueue
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.headers import ResetOffsetRequestHeader
from tests.consumer.lite_pull.lite_pulling import QUEUES, committed, drain, make, numbers, send


def test_closing_commits_what_a_later_poll_settled_and_nothing_more(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 10)
        drain(consumer, 10)
        wait_until(lambda: consumer._core.assignment.cached == 10)
    with make(broker) as again:
        again.subscribe("orders")
        assert numbers(drain(again, 20)) == list(range(10, 30))


def test_a_commit_after_the_work_settles_the_last_poll_too(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        drain(consumer, 10)
        consumer.commit()
    assert committed(broker)[QUEUES[1]] == 10
    with make(broker) as consumer:
        consumer.subscribe("orders")
        message = next(consumer)
        consumer.commit({message.message_queue: message.queue_offset + 1})
    assert committed(broker)[QUEUES[1]] == 11


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
    """Every second, also when the wall clock is set back."""
    consumer = make(broker, auto_commit_interval_ms=1000)
    clock = consumer._core.clock = ManualClock()
    send(producer, 20, queue=1)
    with consumer:
        consumer.subscribe("orders")
        drain(consumer, 20)
        assert consumer.committed(QUEUES[1]) == 0
        clock.set_wall_clock(clock.now_ms() - 3_600_000)
        clock.advance(999)
        consumer.poll(0)
        assert consumer.committed(QUEUES[1]) == 0
        clock.advance(1)
        consumer.poll(0)
        assert consumer.committed(QUEUES[1]) == 20


def test_iterating_settles_message_by_message(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 30, queue=1)
    with make(broker) as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            if message.body == b"13":
                break
    with make(broker) as consumer:
        consumer.subscribe("orders")
        assert next(consumer).body == b"13"
        assert numbers(consumer.poll(5))[0] == 14


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


@pytest.mark.parametrize(
    ("where", "offset"),
    [("FIRST_OFFSET", 0), ("LAST_OFFSET", 2), ("MAX_OFFSET", 2), ("TIMESTAMP", 1)],
)
def test_a_new_group_starts_where_it_is_told(
    broker: EmbeddedBroker, producer: Producer, clock: ManualClock, where: str, offset: int
) -> None:
    send(producer, 4)
    clock.advance(60_000)
    middle = clock.now_ms()
    clock.advance(60_000)
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


class Moody(OffsetStore):
    """A store of the user's with offset 1 of each queue; it raises the first time, and at saves."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[MessageQueue] = set()

    async def fetch(self, queue: MessageQueue) -> int:
        if queue not in self.asked:
            self.asked.add(queue)
            raise ZeroDivisionError("not in the mood")
        return 1

    async def save(self, offsets: Mapping[MessageQueue, int], *, confirmed: bool) -> None:
        raise ZeroDivisionError("never in the mood")


def test_a_users_offset_store_that_raises_stops_no_queue_for_good(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, 8)
    with make(broker, offset_store=Moody(), pull_delay_when_error_ms=10) as consumer:
        consumer.subscribe("orders")
        assert {message.queue_offset for message in drain(consumer, 4)} == {1}
        consumer.poll(0)
    assert "not in the mood" in caplog.text
    assert "offsets were not saved" in caplog.text


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
            consumer.commit()
    send(producer, 4)
    with member("one") as one:
        one.subscribe("orders")
        assert {item.queue_offset for item in drain(one, 4)} == {2}
    names = sorted(path.parent.parent.name.partition("@")[2] for path in tmp_path.rglob("*.json"))
    assert names == ["one", "two"]


def test_offsets_are_committed_as_given_for_queues_held(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    send(producer, 30, queue=1)
    other = MessageQueue("orders", "broker-a", 9)
    with make(broker, auto_commit=False) as consumer:
        consumer.assign(QUEUES[1:2])
        drain(consumer, 20)
        consumer.commit(QUEUES[1:2])
        assert committed(broker)[QUEUES[1]] == -1  # saved within 5 s
        consumer.commit({QUEUES[1]: 7, other: 3}, persist=True)
        wait_until(lambda: committed(broker)[QUEUES[1]] == 7)
        assert f"does not hold {other}" in caplog.text
        with pytest.raises(ConfigError, match="offset"):
            consumer.commit({QUEUES[1]: -1})
        consumer.commit(persist=True)
        wait_until(lambda: committed(broker)[QUEUES[1]] == 20)


def test_seeking_is_what_is_committed_then(broker: EmbeddedBroker, producer: Producer) -> None:
    send(producer, 20, queue=1)
    with make(broker, auto_commit=False) as consumer:
        consumer.assign(QUEUES[1:2])
        drain(consumer, 20)
        consumer.seek(QUEUES[1], 4)
        consumer.commit_sync()
        assert committed(broker)[QUEUES[1]] == 4


def test_an_operators_reset_takes_the_place_of_what_was_polled_and_cached(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    send(producer, 30, queue=1)
    with make(broker, auto_commit=False, pull_batch_size=10) as consumer:
        consumer.assign(QUEUES[1:2])
        drain(consumer, 20)
        consumer.commit_sync()
        header = ResetOffsetRequestHeader(
            topic="orders", group="readers", timestamp=-1, queue_id=1, offset=5
        )
        core = consumer._core
        core.thread.run(
            core.instance.request(broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        )
        wait_until(lambda: core.assignment.positions() == {QUEUES[1]: 5})
        assert [message.queue_offset for message in drain(consumer, 25)] == list(range(5, 30))
        consumer.commit_sync()
        assert committed(broker)[QUEUES[1]] == 30
