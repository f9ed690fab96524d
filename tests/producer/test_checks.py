"""What cannot be sent says which field is wrong, what it is, and what it may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.errors import InvalidMessageError
from orbitmq.wire.properties import SYSTEM_PROPERTIES
from tests.client.stub_cluster import StubCluster


@pytest.fixture(scope="module")
def producer() -> Iterator[Producer]:
    with StubCluster(t=1) as cluster, Producer("writers", name_server=cluster.address) as producer:
        yield producer


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "topic": ({"topic": 5}, r"topic=5 is of type int: it must be text"),
    "no topic": ({"topic": None}, r"topic=None is None: it must be text"),
    "bytes topic": ({"topic": b"t"}, r"topic=b't' is of type bytes: it must be text"),
    "body": ({"body": "x"}, r"body='x' of a message to 't' is of type str: .*bytes: encode it"),
    "no body": ({"body": None}, r"body=None of a message to 't' is None: it must be bytes"),
    "list body": ({"body": [1]}, r"body=\[1\] .*list.*bytes"),
    "tags": ({"tags": ["a", "b"]}, r"tags=\['a', 'b'\].*list: it must be text"),
    "falsy tags": ({"tags": 0}, r"tags=0 .*int: it must be text"),
    "sharding_key": ({"sharding_key": 17}, r"sharding_key=17 .*int: it must be text"),
    "delay_level": ({"delay_level": "3"}, r"delay_level='3' .*str: it must be an integer"),
    "true": ({"delay_level": True}, r"delay_level=True .*bool: it must be an integer"),
    "flag": ({"flag": 1.5}, r"flag=1.5 .*float: it must be an integer of 32 bits"),
    "large flag": ({"flag": 2**31}, r"flag=2147483648 .*int: it must be an integer of 32 bits"),
    "properties": ({"properties": [("a", "b")]}, r"properties=.*list: it must be a mapping"),
    "no mapping": ({"properties": ""}, r"properties='' .*str: it must be a mapping"),
    "value": ({"properties": {"a": 1}}, r"property 'a' .*value 1 is of type int.*text"),
    "none": ({"properties": {"a": None}}, r"property 'a' .*value None is None.*text"),
    "name": ({"properties": {1: "a"}}, r"property 1 .*name 1 is of type int.*text"),
    "TAGS": ({"properties": {"TAGS": "a"}}, r"'TAGS'.*RocketMQ's own: give Message\(tags="),
    "KEYS": ({"properties": {"KEYS": "a"}}, r"'KEYS'.*give Message\(keys="),
    "DELAY": ({"properties": {"DELAY": "1"}}, r"'DELAY'.*give Message\(delay_level="),
    "UNIQ_KEY": ({"properties": {"UNIQ_KEY": "1"}}, r"'UNIQ_KEY'.*SendResult.message_id.*keys="),
    "PGROUP": ({"properties": {"PGROUP": "g"}}, r"'PGROUP'.*choose another name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_field_of_a_wrong_type_is_named(producer: Producer, name: str) -> None:
    fields, text = WRONG[name]
    message = Message(**{"topic": "t", "body": b"x", **fields})
    for send in (producer.send, producer.send_async, producer.send_oneway):
        with pytest.raises(InvalidMessageError, match=text):
            send(message)
    with pytest.raises(InvalidMessageError, match=text):
        producer.send([message])


@pytest.mark.parametrize("keys", [5, [1, 2], b"k", [None]])
def test_keys_of_a_wrong_type_are_refused_where_they_are_given(keys: Any) -> None:
    with pytest.raises(InvalidMessageError, match=r"keys=.* of type \w+: keys are text"):
        Message("t", b"x", keys=keys)


def test_keys_of_a_wrong_type_given_later_are_named(producer: Producer) -> None:
    message = Message("t", b"x")
    message.keys = ["a", "b"]  # type: ignore[assignment]
    with pytest.raises(InvalidMessageError, match=r"keys=\['a', 'b'\].*list.*Message\(keys="):
        producer.send(message)


NO_MESSAGES: dict[str, tuple[Any, str]] = {
    "dict": ({"topic": "t"}, "{'topic': 't'} is of type dict: a Message is sent, or a list"),
    "text": ("x", "'x' is of type str: a Message is sent"),
    "bytes": (b"x", "b'x' is of type bytes: a Message is sent"),
    "none": (None, "None is None: a Message is sent"),
    "empty": ([], "at least one message"),
    "generator": ((Message("t", b"x") for _ in "ab"), "generator: a Message is sent, or a list"),
    "list of dicts": ([Message("t", b"x"), {}], "number 1 is of type dict: {}"),
}


@pytest.mark.parametrize("name", NO_MESSAGES)
def test_what_is_no_message_says_so(producer: Producer, name: str) -> None:
    what, text = NO_MESSAGES[name]
    with pytest.raises(InvalidMessageError, match=text):
        producer.send(what)


def test_a_received_message_is_not_sent_as_it_is() -> None:
    with (
        EmbeddedBroker() as broker,
        Producer("writers", name_server=broker.name_server) as producer,
        LitePullConsumer(
            "readers",
            name_server=broker.name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        ) as consumer,
    ):
        producer.send(Message("t", b"x"))
        consumer.subscribe("t")
        (received,) = consumer.poll(timeout=10)
        for what in (received, [received]):
            with pytest.raises(InvalidMessageError, match=r"received.*message.to_message\(topic="):
                producer.send(what)  # type: ignore[arg-type]


def test_names_of_javas_setters_may_be_given_as_properties(producer: Producer) -> None:
    settable = {
        "WAIT",
        "BUYER_ID",
        "_SYS_MSG_PRIORITY_",
        "TIMER_DELAY_SEC",
        "TIMER_DELAY_MS",
        "TIMER_DELIVER_MS",
    }
    assert settable <= SYSTEM_PROPERTIES
    for name in SYSTEM_PROPERTIES:
        message = Message("t", b"x", properties={name: "1"})
        if name in settable:
            producer.send(message)
        else:
            with pytest.raises(InvalidMessageError, match=name):
                producer.send(message)
