"""Requests and their replies, from clients on one broker."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading

import pytest

from orbitmq import (
    AsyncProducer,
    BrokerError,
    EmbeddedBroker,
    InvalidMessageError,
    Message,
    MessageQueue,
    MessageView,
    Producer,
    PushConsumer,
    ReplyTimeoutError,
    RequestTimeoutError,
    TopicNotFoundError,
    create_reply_message,
    select_queue_by_hash,
)
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import decode_record
from tests.client.stub_cluster import StubCluster
from tests.consumer.records import record
from tests.producer.repliers import replying

PATIENT = 60
"""Seconds that an answer may take on a busy machine."""
BRIEF = 0.5
"""Seconds after which a question is given up; asking takes less, once the broker is known."""


def shout(message: MessageView) -> bytes | None:
    return message.body.upper() if message.tags == "ask" else None


def ask(body: bytes, **fields: str) -> Message:
    return Message("questions", body, tags="ask", **fields)  # type: ignore[arg-type]


def test_a_request_returns_its_reply(broker: EmbeddedBroker, producer: Producer) -> None:
    with replying(broker.name_server, "questions", shout) as consumed:
        reply = producer.request(ask(b"who?", keys="k-1"), timeout=PATIENT)
    assert reply.body == b"WHO?"
    assert reply.topic == "DefaultCluster_REPLY_TOPIC"
    assert reply.property("MSG_TYPE") == "reply"
    assert reply.property("TTL") == str(PATIENT * 1000)
    assert reply.property("ARRIVE_TIME")
    assert reply.property("PUSH_REPLY_TIME")
    (request,) = {message.keys: message for message in consumed if message.keys}.values()
    assert request.property("CORRELATION_ID") == reply.property("CORRELATION_ID")
    assert request.property("REPLY_TO_CLIENT") == reply.property("REPLY_TO_CLIENT")


def test_a_large_reply_is_compressed_on_its_way(broker: EmbeddedBroker, producer: Producer) -> None:
    with replying(broker.name_server, "questions", lambda _: b"yes " * 5000):
        assert producer.request(ask(b"?"), timeout=PATIENT).body == b"yes " * 5000


def test_each_request_gets_its_own_reply(broker: EmbeddedBroker, producer: Producer) -> None:
    with replying(broker.name_server, "questions", shout):
        futures = {
            word: producer.request_async(ask(word), timeout=PATIENT) for word in (b"a", b"b", b"c")
        }
        assert {word: future.result(PATIENT).body for word, future in futures.items()} == {
            b"a": b"A",
            b"b": b"B",
            b"c": b"C",
        }


def test_a_callback_gets_the_reply(broker: EmbeddedBroker, producer: Producer) -> None:
    told = threading.Event()
    outcomes: list[tuple[MessageView | None, BaseException | None]] = []

    def done(reply: MessageView | None, error: BaseException | None) -> None:
        outcomes.append((reply, error))
        told.set()

    with replying(broker.name_server, "questions", shout):
        assert producer.request_async(ask(b"x"), done, timeout=PATIENT) is None
        assert told.wait(PATIENT)
    ((reply, error),) = outcomes
    assert error is None
    assert reply is not None
    assert reply.body == b"X"


def test_a_coroutine_gets_the_reply(broker: EmbeddedBroker) -> None:
    async def main() -> list[bytes]:
        async with AsyncProducer("askers", name_server=broker.name_server) as producer:
            replies = await asyncio.gather(
                *(producer.request(ask(word), timeout=PATIENT) for word in (b"a", b"b"))
            )
        return [reply.body for reply in replies]

    with replying(broker.name_server, "questions", shout):
        assert asyncio.run(main()) == [b"A", b"B"]


def test_queue_and_selector_choose_where_it_goes(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    with replying(broker.name_server, "questions", shout) as consumed:
        queue = MessageQueue("questions", "broker-a", 2)
        producer.request(ask(b"q", keys="given"), queue=queue, timeout=PATIENT)
        producer.request(
            ask(b"s", keys="chosen"), selector=select_queue_by_hash, arg=1, timeout=PATIENT
        )
    places = {message.keys: message.queue_id for message in consumed}
    assert places["given"] == 2
    assert places["chosen"] == 1


def test_a_namespace_is_taken_off(broker: EmbeddedBroker) -> None:
    """Replier and requester share it; the reply topic is one of the namespace's, as in Java."""
    with Producer("askers", name_server=broker.name_server, namespace="ns") as asker:

        def reply_here(messages: list[MessageView]) -> None:
            for message in messages:
                asker.send(create_reply_message(message, b"here"))

        consumer = PushConsumer(
            "servants",
            reply_here,
            name_server=broker.name_server,
            namespace="ns",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.subscribe("questions")
        with consumer:
            reply = asker.request(ask(b"?"), timeout=PATIENT)
    assert reply.body == b"here"
    assert reply.topic == "DefaultCluster_REPLY_TOPIC"


def test_without_a_reply_it_times_out(producer: Producer) -> None:
    producer.send(Message("questions", b"-"))
    sent = "was sent, but no reply came within 500 ms"
    with pytest.raises(ReplyTimeoutError, match=sent) as told:
        producer.request(ask(b"?"), timeout=BRIEF)
    assert isinstance(told.value, RequestTimeoutError)
    assert told.value.response_code == 10006
    assert str(pickle.loads(pickle.dumps(told.value))) == str(told.value)
    with pytest.raises(ReplyTimeoutError):
        producer.request_async(ask(b"?"), timeout=BRIEF).result(PATIENT)


def test_a_request_that_cannot_be_sent_says_why() -> None:
    with (
        StubCluster(1) as cluster,
        Producer("askers", name_server=cluster.address, create_topic_key="none") as producer,
    ):
        with pytest.raises(TopicNotFoundError):
            producer.request(ask(b"?"), timeout=PATIENT)
        wait_until(lambda: not producer._core.in_flight.messages)


def test_a_late_reply_is_logged(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    held = threading.Event()

    def late(message: MessageView) -> bytes | None:
        if message.tags != "ask":
            return None
        held.wait(PATIENT)
        return b"too late"

    with (
        caplog.at_level(logging.WARNING, "orbitmq.producer"),
        replying(broker.name_server, "questions", late),
    ):
        producer.send(Message("questions", b"-"))
        with pytest.raises(ReplyTimeoutError):
            producer.request(ask(b"?"), timeout=BRIEF)
        held.set()
        wait_until(lambda: "after its time-out" in caplog.text)


def test_requests_are_in_flight_until_their_replies(broker: EmbeddedBroker) -> None:
    with Producer("askers", name_server=broker.name_server, max_in_flight=1) as producer:
        producer.send(Message("questions", b"-"))
        first = producer.request_async(ask(b"1"), timeout=2)
        with pytest.raises(RequestTimeoutError, match="1 messages were on their way"):
            producer.request_async(ask(b"2"), timeout=0.05)
        with pytest.raises(ReplyTimeoutError):
            first.result(PATIENT)
        wait_until(lambda: not producer._core.in_flight.messages)


def test_a_shutdown_waits_for_replies(broker: EmbeddedBroker) -> None:
    with replying(broker.name_server, "questions", shout):
        with Producer("askers", name_server=broker.name_server) as asker:
            future = asker.request_async(ask(b"x"), timeout=PATIENT)
        assert future.done()
        assert future.result(0).body == b"X"


def test_the_replier_hears_that_the_requester_is_gone(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    request = decode_record(
        record(
            0,
            properties={
                "CLUSTER": "DefaultCluster",
                "CORRELATION_ID": "c",
                "REPLY_TO_CLIENT": "nobody@1",
                "TTL": "3000",
            },
        )
    )
    with pytest.raises(BrokerError, match="channel of <nobody@1> not found"):
        producer.send(create_reply_message(request, b"-"))


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_what_asks_for_no_reply_gets_none(missing: str) -> None:
    properties = {"CLUSTER": "c", "CORRELATION_ID": "1", "REPLY_TO_CLIENT": "x"}
    del properties[missing]
    view = decode_record(record(0, properties=properties))
    with pytest.raises(InvalidMessageError, match="cannot be replied to"):
        create_reply_message(view, b"-")


def test_only_one_message_can_be_a_request(producer: Producer) -> None:
    with pytest.raises(InvalidMessageError, match="one message, not a batch"):
        producer.request([ask(b"1")])  # type: ignore[arg-type]


def test_only_a_reply_may_name_a_request(producer: Producer) -> None:
    with pytest.raises(InvalidMessageError, match="CORRELATION_ID"):
        producer.send(Message("orders", b"-", properties={"CORRELATION_ID": "1"}))
