"""Tracing: what consumers tell the trace topic of the messages they consumed."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest

from orbitmq import (
    ConfigError,
    ConsumeStatus,
    EmbeddedBroker,
    LitePullConsumer,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
)
from orbitmq.consumer.hooks import CONSUME_CONTEXT_TYPE, ConsumeMessageContext
from orbitmq.consumer.trace import TraceHook
from orbitmq.producer.trace_dispatcher import Traced
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import decode_record
from orbitmq.wire.trace import FIELD_END, RECORD_END
from tests.consumer.records import record

FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"
QUEUE = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def records(messages: Sequence[MessageView]) -> list[list[str]]:
    """The fields of the records in these messages of a trace topic."""
    text = "".join(message.body.decode() for message in messages)
    return [record.split(FIELD_END) for record in text.split(RECORD_END)[:-1]]


def stored(offset: int, properties: dict[str, str]) -> MessageView:
    return decode_record(record(offset, properties=properties), 0, "broker-a")


def traced(broker: EmbeddedBroker, topic: str = "RMQ_SYS_TRACE_TOPIC") -> list[MessageView]:
    """The messages of a trace topic."""
    with LitePullConsumer(
        "auditors", name_server=broker.name_server, consume_from_where=FROM_FIRST
    ) as consumer:
        consumer.subscribe(topic)
        return wait_until(lambda: consumer.poll(timeout=1), f"a message in {topic}")


def test_a_push_consumer_tells_what_it_got_and_how_it_ended(broker: EmbeddedBroker) -> None:
    with Producer("shops", name_server=broker.name_server) as producer:
        sent = producer.send(Message("orders", b"-", keys=["a-1", "a-2"]))
    consumed: list[MessageView] = []
    consumer = PushConsumer(
        "mailers",
        consumed.extend,
        name_server=broker.name_server,
        consume_from_where=FROM_FIRST,
        enable_trace=True,
    )
    consumer.subscribe("orders")
    with consumer:
        wait_until(lambda: bool(consumed))
    messages = traced(broker)
    before, after = records(messages)
    assert before[0] == "SubBefore"
    assert before[2:4] == ["DefaultRegion", "mailers"]
    assert before[5:] == [sent.message_id, "0", "a-1 a-2"]
    assert after[0] == "SubAfter"
    assert after[1:3] == [before[4], sent.message_id]
    assert after[4:7] == ["true", "a-1 a-2", "0"]
    assert after[8] == "mailers"
    assert {key for message in messages for key in (message.keys or "").split()} == {
        sent.message_id,
        "a-1",
        "a-2",
    }


def test_a_poll_is_traced_to_the_topic_given(broker: EmbeddedBroker) -> None:
    with Producer("shops", name_server=broker.name_server) as producer:
        sent = producer.send(Message("orders", b"-"))
    with LitePullConsumer(
        "readers",
        name_server=broker.name_server,
        consume_from_where=FROM_FIRST,
        enable_trace=True,
        trace_topic="traces",
    ) as consumer:
        consumer.subscribe("orders")
        assert len(consumer.poll(10)) == 1
    before, after = records(traced(broker, "traces"))
    assert (before[0], before[5], before[7]) == ("SubBefore", sent.message_id, "null")
    assert (after[0], after[2], after[4]) == ("SubAfter", sent.message_id, "true")


def test_a_failure_is_told_with_its_kind_and_time() -> None:
    clock = ManualClock()
    told: list[Traced] = []
    hook = TraceHook(told.append, clock)
    messages = [
        stored(0, {"MSG_REGION": "r", "UNIQ_KEY": "A"}),
        stored(1, {"MSG_REGION": "r", "TRACE_ON": "false"}),
    ]
    context = ConsumeMessageContext("mailers", QUEUE, messages)
    hook.consume_message_before(context)
    clock.advance(500)
    context.props[CONSUME_CONTEXT_TYPE] = "EXCEPTION"
    context.status = ConsumeStatus.RECONSUME_LATER.name
    hook.consume_message_after(context)
    before, after = (one.records.rstrip(RECORD_END).split(FIELD_END) for one in told)
    assert before[5] == "A"
    assert after[3:7] == ["250", "false", "null", "2"]


def test_messages_that_are_not_to_be_traced_are_not() -> None:
    told: list[Traced] = []
    hook = TraceHook(told.append, ManualClock())
    context = ConsumeMessageContext("mailers", QUEUE, [stored(0, {"TRACE_ON": "false"})])
    hook.consume_message_before(context)
    hook.consume_message_after(context)
    assert told == []


def test_a_broker_that_tells_no_region_is_traced_as_by_the_client_of_its_time() -> None:
    told: list[Traced] = []
    hook = TraceHook(told.append, ManualClock())
    hook.consume_message_before(ConsumeMessageContext("mailers", QUEUE, [stored(0, {})]))
    assert told[0].records.split(FIELD_END)[2] == "null"


def test_records_that_come_too_fast_are_dropped_and_counted(
    broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = PushConsumer("mailers", print, name_server=broker.name_server, enable_trace=True)
    dispatcher = consumer._core._trace
    assert dispatcher is not None
    with caplog.at_level(logging.WARNING, "orbitmq.client.trace"):
        for _ in range(2050):
            dispatcher.append(Traced("orders", "-", frozenset()))
    assert caplog.messages == [
        "1 trace records were dropped: they come faster than RMQ_SYS_TRACE_TOPIC takes them"
    ]


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigError, match="trace_batch_size=21"):
        PushConsumer("mailers", print, name_server="127.0.0.1:1", trace_batch_size=21)
