"""Tracing: what producers tell the trace topic of the messages they sent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq import (
    CommunicationMode,
    ConfigError,
    EmbeddedBroker,
    EndTransactionContext,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    SendMessageContext,
    SendResult,
    SendStatus,
)
from orbitmq.producer.trace import EndTransactionTraceHook, SendTraceHook
from orbitmq.producer.trace_dispatcher import Traced
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.trace import FIELD_END, RECORD_END

TRACES = "RMQ_SYS_TRACE_TOPIC"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def traced(broker: EmbeddedBroker, count: int) -> tuple[list[list[str]], set[str]]:
    """The fields of the first records of the trace topic, and the keys of their messages."""
    records: dict[str, list[str]] = {}
    keys: set[str] = set()

    def poll(consumer: LitePullConsumer) -> bool:
        message: MessageView
        for message in consumer.poll(timeout=1):
            keys.update((message.keys or "").split())
            for record in message.body.decode().split(RECORD_END)[:-1]:
                records[record] = record.split(FIELD_END)
        return len(records) >= count

    with LitePullConsumer(
        "auditors",
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    ) as consumer:
        consumer.subscribe(TRACES)
        wait_until(lambda: poll(consumer), f"{count} records")
    return list(records.values()), keys


def test_a_send_is_told(broker: EmbeddedBroker) -> None:
    with Producer("shops", name_server=broker.name_server, enable_trace=True) as producer:
        result = producer.send(Message("orders", b"123", tags="paid", keys=["a-1", "a-2"]))
    (record,), keys = traced(broker, 1)
    assert record[0] == "Pub"
    assert record[2:10] == [
        *("DefaultRegion", "shops", "orders", result.message_id, "paid", "a-1 a-2"),
        *(broker.address, "3"),
    ]
    assert record[11:] == ["0", result.offset_message_id, "true"]
    assert keys == {result.message_id, "a-1", "a-2"}


def test_each_message_of_a_batch_is_told(broker: EmbeddedBroker) -> None:
    with Producer("shops", name_server=broker.name_server, enable_trace=True) as producer:
        result = producer.send([Message("orders", b"1"), Message("orders", b"2")])
    records, keys = traced(broker, 2)
    assert {record[5] for record in records} == set(result.message_id.split(","))
    assert {record[12] for record in records} == set(result.offset_message_id.split(","))
    assert keys == set(result.message_id.split(","))


def test_a_broker_may_want_none(broker: EmbeddedBroker) -> None:
    told: list[Traced] = []
    hook = SendTraceHook(told.append, ManualClock())
    queue = MessageQueue("orders", "broker-a", 0)
    for trace_on in (False, True):
        context = SendMessageContext(
            "shops", Message("orders", b"-"), ["ID"], queue, "address", CommunicationMode.SYNC
        )
        hook.send_message_before(context)
        context.send_result = SendResult(
            SendStatus.SEND_OK, "ID", "OFFSET-ID", queue, 0, trace_on=trace_on
        )
        hook.send_message_after(context)
        assert len(told) == trace_on


def test_the_end_of_a_transaction() -> None:
    told: list[Traced] = []
    hook = EndTransactionTraceHook(told.append, ManualClock())
    hook.end_transaction(
        EndTransactionContext(
            producer_group="shops",
            topic="orders",
            tags=None,
            keys="a-1",
            broker_addr="127.0.0.1:10911",
            message_id="ID",
            transaction_id="TX",
            transaction_state="COMMIT_MESSAGE",
            from_transaction_check=True,
        )
    )
    (record,) = told
    fields = record.records.removesuffix(RECORD_END).split(FIELD_END)
    assert fields[0] == "EndTransaction"
    assert fields[2:] == [
        *("DefaultRegion", "shops", "orders", "ID", "null", "a-1", "127.0.0.1:10911"),
        *("2", "TX", "COMMIT_MESSAGE", "true"),
    ]
    assert record.keys == {"ID", "a-1"}


def test_a_batch_of_traces_has_a_limit(broker: EmbeddedBroker) -> None:
    with pytest.raises(ConfigError, match="trace_batch_size=21"):
        Producer("shops", name_server=broker.name_server, trace_batch_size=21)
