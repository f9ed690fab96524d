"""What the broker counts for tools beside its statistics: writes, timers, open transactions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from orbitmq import LocalTransactionState, Message, Producer, TransactionProducer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.broker.runtime_info import runtime_info
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from tests.broker.test_timers import advance, settle


def test_how_long_writes_took(broker: EmbeddedBroker, producer: Producer) -> None:
    for _ in range(4):
        producer.send(Message("flights", b"x"))
    topic = "flights"

    def look() -> float:
        """The mean ms of the messages of a queue, once a write took long."""

        def at(node: object) -> float:
            running = broker._running().broker  # on the broker's thread
            statistics, now_ms = running.statistics, running.now_ms()
            statistics.store.wrote(4, 2.5)
            (queue_id, *_) = running.store.topics()[topic]
            found = statistics.view("TOPIC_PUT_LATENCY", f"{queue_id}@{topic}", now_ms)
            assert found is not None
            return found[0].average

        return broker.call(at)

    assert look() == pytest.approx(2500, rel=0.1)


def test_how_many_timers_a_second(
    broker: EmbeddedBroker, clock: ManualClock, producer: Producer
) -> None:
    def rates() -> tuple[float, float]:
        table = broker.call(lambda node: runtime_info(node.broker))
        return float(table["timerEnqueueTps"]), float(table["timerDequeueTps"])

    settle(broker)
    assert rates() == (0.0, 0.0)
    for _ in range(20):
        producer.send(Message("flights", b"x", delay_seconds=3))
    settle(broker)
    assert rates() == (2.0, 0.0)  # of ten seconds at least
    advance(broker, clock, 4_000)
    assert rates() == (2.0, 2.0)
    advance(broker, clock, 70_000)
    assert rates() == (0.0, 0.0)


def metrics(store: Path) -> dict[str, int]:
    """The open transactions by topic, as the file has them."""
    saved = json.loads((store / "config" / "transactionMetrics").read_text())
    assert set(saved) == {"transactionCount", "dataVersion"}
    return {topic: metric["count"] for topic, metric in saved["transactionCount"].items()}


def test_open_transactions_are_counted_in_a_file(tmp_path: Path) -> None:
    ends = [*LocalTransactionState, LocalTransactionState.UNKNOWN]

    def prepare(broker: EmbeddedBroker, topic: str) -> None:
        with TransactionProducer(
            "shop", lambda _message, end: end, name_server=broker.name_server
        ) as producer:
            for end in ends:
                producer.send_message_in_transaction(Message(topic, b"x"), end)

    def counted(broker: EmbeddedBroker, topic: str) -> int:
        return broker.call(lambda node: node.broker.transactions.metrics.count(topic))

    with EmbeddedBroker(tmp_path) as broker:
        prepare(broker, "flights")
        wait_until(lambda: counted(broker, "flights") == 2)
    assert metrics(tmp_path) == {"flights": 2}
    with EmbeddedBroker(tmp_path) as broker:
        prepare(broker, "trains")
        wait_until(lambda: counted(broker, "trains") == 2)
        assert counted(broker, "flights") == 2
    assert metrics(tmp_path) == {"flights": 2, "trains": 2}
    (tmp_path / "config" / "transactionMetrics").write_text("{")
    (tmp_path / "config" / "transactionMetrics.bak").unlink(missing_ok=True)
    with EmbeddedBroker(tmp_path) as broker:
        assert counted(broker, "flights") == 0
