"""What users send: messages compare by value, and what was received can be sent on."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, MessageView, Producer
from orbitmq.wire.ids import host_bytes
from orbitmq.wire.message_view import decode_records
from orbitmq.wire.properties import NOT_THE_USERS, encode_properties
from orbitmq.wire.record import Draft, encode_record


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "U"},
        {"body": b"y"},
        {"tags": "u"},
        {"keys": "j"},
        {"sharding_key": "r"},
        {"properties": {"a": "2"}},
        {"delay_level": 2},
        {"flag": 8},
    ],
)
def test_messages_are_equal_when_all_of_them_is(change: dict[str, Any]) -> None:
    fields: dict[str, Any] = {
        "topic": "T",
        "body": b"x",
        "tags": "t",
        "keys": ["k", "l"],
        "sharding_key": "s",
        "properties": {"a": "1"},
        "delay_level": 1,
        "flag": 7,
    }
    assert Message(**fields) == Message(**fields)
    assert Message(**fields) != Message(**{**fields, **change})
    assert Message(**fields) != "T"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Message(**fields))


def poll_one(consumer: LitePullConsumer) -> MessageView:
    for message in consumer:
        return message
    raise AssertionError("the consumer ended")


def test_a_received_message_can_be_sent_on(broker: EmbeddedBroker, producer: Producer) -> None:
    sent = Message(
        "first",
        b"x" * 5000,  # compressed on its way
        tags="t",
        keys="k l",
        sharding_key="s",
        properties={"colour": "blue"},
        flag=7,
    )
    producer.send(sent)
    with LitePullConsumer(
        "g", name_server=broker.name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    ) as consumer:
        consumer.subscribe("first")
        received = poll_one(consumer)
        assert received.to_message() == sent
        producer.send(received.to_message("second"))
        consumer.subscribe("second")
        again = poll_one(consumer)
    assert again.topic == "second"
    assert again.message_id != received.message_id
    forwarded = again.to_message("first")
    assert forwarded == sent


def test_what_belongs_to_one_message_alone_is_left_behind() -> None:
    properties = dict.fromkeys(NOT_THE_USERS, "1") | {"colour": "blue", "TAGS": "t"}
    host = host_bytes("127.0.0.1", 1)
    draft = Draft("T", 0, b"x", encode_properties(properties), 0, 0, 0, 0, host, host)
    (received,) = decode_records(encode_record(draft, 0, 0, 0))
    expected = Message(
        "T", b"x", tags="t", keys="1", sharding_key="1", properties={"colour": "blue"}
    )
    assert received.to_message() == expected
