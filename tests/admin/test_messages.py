"""Messages through Admin: found by id, key, place and time; traces; dead letters given again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from orbitmq import (
    Admin,
    ConsumeStatus,
    EmbeddedBroker,
    InvalidMessageError,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
    QueryNotFoundError,
    SubscriptionGroupConfig,
    TopicNotFoundError,
    TraceType,
)
from orbitmq.testing.clock import ManualClock
from orbitmq.testing.wait import wait_until

QUEUE = MessageQueue("flights", "broker-a", 1)


def found(look: Callable[[], Any]) -> Any:
    """What a look-up finds, once the index has come so far."""
    answers: list[Any] = []

    def looked() -> bool:
        answers.append(look())
        return bool(answers[-1])

    wait_until(looked)
    return answers[-1]


def test_a_message_is_found_in_every_way(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 2)
    sent = [
        producer.send(Message("flights", b"%d" % n, tags="UA", keys=f"k{n} all"), queue=QUEUE)
        for n in range(3)
    ]
    message_id = sent[1].message_id
    (message,) = found(lambda: admin.query_by_unique_key("flights", message_id))
    assert (message.body, message.queue_offset, message.topic) == (b"1", 1, "flights")
    assert message.offset_message_id == sent[1].offset_message_id
    assert admin.view_message("flights", sent[1].offset_message_id).body == b"1"
    assert admin.message_at(QUEUE, 1).message_id == message_id
    (by_key,) = found(lambda: admin.query_messages("flights", "k1"))
    assert by_key.message_id == message_id
    assert len(found(lambda: admin.query_messages("flights", "all"))) == 3
    assert admin.query_messages("flights", "nobody") == []
    assert [one.body for one in admin.messages_from(QUEUE, 1)] == [b"1", b"2"]
    assert [one.body for one in admin.messages_by_time("flights", 0, max_num=2)] == [b"0", b"1"]
    assert admin.messages_by_time("flights", 0, expression="AA") == []
    entries = admin.query_consume_queue(QUEUE, 1, 2)
    assert [entry.physic_offset for entry in entries.queue_data] == [
        message.physical_offset,
        admin.message_at(QUEUE, 2).physical_offset,
    ]


def test_what_is_not_there(admin: Admin, producer: Producer) -> None:
    admin.create_topic("flights", 2)
    result = producer.send(Message("flights", b"hello"), queue=QUEUE)
    with pytest.raises(QueryNotFoundError, match="no message of topic flights has the id"):
        admin.view_message("flights", "0" * 32)
    with pytest.raises(QueryNotFoundError, match="there is no message 7"):
        admin.message_at(QUEUE, 7)
    with pytest.raises(TopicNotFoundError):
        admin.query_messages("unknown", "k")
    with pytest.raises(QueryNotFoundError):
        # An id that names the broker, and a place where no message begins.
        admin.view_message("flights", result.offset_message_id[:-1] + "1")


def test_what_clients_traced(admin: Admin, broker: EmbeddedBroker) -> None:
    with Producer("makers", name_server=broker.name_server, enable_trace=True) as producer:
        message_id = producer.send(Message("flights", b"hello", keys="k")).message_id
    (trace,) = found(lambda: admin.message_trace(message_id))
    assert (trace.trace_type, trace.group, trace.topic) == (TraceType.PUB, "makers", "flights")
    assert (trace.success, trace.keys, trace.client_host) == (True, "k", "127.0.0.1")


def test_dead_letters_are_given_to_their_group_again(
    admin: Admin, producer: Producer, broker: EmbeddedBroker, clock: ManualClock
) -> None:
    admin.update_group(SubscriptionGroupConfig("mailers", retry_max_times=0))
    with pytest.raises(TopicNotFoundError):
        admin.list_dead_letters("mailers")
    sent = producer.send(Message("flights", b"hello"))
    fails = True
    taken: list[tuple[str, bytes]] = []

    def consume(messages: Sequence[MessageView]) -> ConsumeStatus:
        if fails:
            return ConsumeStatus.RECONSUME_LATER
        taken.extend((message.topic, message.body) for message in messages)
        return ConsumeStatus.SUCCESS

    def given_up() -> list[MessageView]:
        try:
            return admin.list_dead_letters("mailers")
        except TopicNotFoundError:
            return []

    with PushConsumer(
        "mailers",
        consume,
        name_server=broker.name_server,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        max_reconsume_times=0,
    ) as consumer:
        consumer.subscribe("flights")
        letters: list[MessageView] = found(given_up)
        assert letters[0].property("RETRY_TOPIC") == "flights"
        assert letters[0].property("ORIGIN_MESSAGE_ID") == sent.offset_message_id
        fails = False
        assert len(admin.resend_dead_letters("mailers", letters[:1])) == 1
        wait_until(lambda: ("flights", b"hello") in taken)
    assert admin.list_dead_letters("mailers"), "they stay where they are"
    with pytest.raises(InvalidMessageError, match="it is no dead letter of group others"):
        admin.resend_dead_letters("others", letters)
    assert admin.resend_dead_letters("mailers", []) == []
