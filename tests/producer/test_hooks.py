"""Hooks of producers: who is told of what around a send, and who may forbid it."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq import (
    AsyncProducer,
    BrokerError,
    CheckForbiddenContext,
    CommunicationMode,
    ConfigError,
    EmbeddedBroker,
    Message,
    MessageType,
    Producer,
    SendMessageContext,
)
from orbitmq.codes import MESSAGE_ILLEGAL, SYSTEM_BUSY
from orbitmq.testing.wait import wait_until
from tests.client.stub_cluster import StubCluster, answer


class Book:
    """Notes what it is told; the context is the same object before and after."""

    def __init__(self) -> None:
        self.before: list[SendMessageContext] = []
        self.after: list[SendMessageContext] = []

    def send_message_before(self, context: SendMessageContext) -> None:
        assert context.send_result is None
        context.props["noted"] = "yes"
        self.before.append(context)

    def send_message_after(self, context: SendMessageContext) -> None:
        assert context.props == {"noted": "yes"}
        self.after.append(context)


class Failing:
    def send_message_before(self, context: SendMessageContext) -> None:
        raise SystemExit("a hook")

    def send_message_after(self, context: SendMessageContext) -> None:
        raise ValueError("a hook")


class Forbid:
    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.asked: list[CheckForbiddenContext] = []

    def check_forbidden(self, context: CheckForbiddenContext) -> None:
        self.asked.append(context)
        if isinstance(context.message, Message) and context.message.tags == self.tag:
            raise PermissionError(f"{self.tag} stays here")


@pytest.fixture
def book(producer: Producer) -> Book:
    book = Book()
    producer.register_send_message_hook(book)
    return book


def test_a_hook_sees_what_was_sent_and_where_it_went(
    producer: Producer, book: Book, broker: EmbeddedBroker
) -> None:
    message = Message("orders", b"-")
    result = producer.send(message)
    (context,) = book.after
    assert book.before == [context]
    assert context.message is message
    assert context.send_result == result
    assert context.exception is None
    assert context.message_queue == result.message_queue
    assert context.producer_group == "makers"
    assert context.broker_addr == broker.address
    assert context.communication_mode is CommunicationMode.SYNC
    assert context.message_type is MessageType.NORMAL


def test_each_way_of_sending_has_its_mode(producer: Producer, book: Book) -> None:
    producer.send_async(Message("orders", b"-")).result(10)
    producer.send_oneway(Message("orders", b"-"))
    wait_until(lambda: len(book.after) == 2)
    modes = [context.communication_mode for context in book.after]
    assert modes == [CommunicationMode.ASYNC, CommunicationMode.ONEWAY]
    assert book.after[1].send_result is None
    assert book.after[1].exception is None


def test_a_coroutine_sends_asynchronously(broker: EmbeddedBroker) -> None:
    book = Book()

    async def main() -> None:
        async with AsyncProducer("makers", name_server=broker.name_server) as producer:
            producer.register_send_message_hook(book)
            await producer.send(Message("orders", b"-", delay_level=1))

    asyncio.run(main())
    assert [context.communication_mode for context in book.after] == [CommunicationMode.ASYNC]
    assert [context.message_type for context in book.after] == [MessageType.DELAY]


def test_a_batch_is_shown_as_it_was_given(producer: Producer, book: Book) -> None:
    batch = [Message("orders", b"1"), Message("orders", b"2")]
    result = producer.send(batch)
    (context,) = book.after
    assert context.message is batch
    assert ",".join(context.message_ids) == result.message_id


def test_each_attempt_is_told_with_its_own_outcome() -> None:
    with StubCluster(2, orders=1) as cluster:
        for stub in cluster.brokers:
            stub.reactions.append(answer(SYSTEM_BUSY, "too much"))
        with Producer("makers", name_server=cluster.address) as producer:
            book = Book()
            producer.register_send_message_hook(book)
            result = producer.send(Message("orders", b"-"))
    assert len(book.before) == 3
    assert [type(context.exception).__name__ for context in book.after] == [
        "SystemBusyError",
        "SystemBusyError",
        "NoneType",
    ]
    assert book.after[2].send_result == result


def test_a_refusal_is_told() -> None:
    with StubCluster(1, orders=1) as cluster:
        cluster.brokers[0].reactions.append(answer(MESSAGE_ILLEGAL, "no"))
        with Producer("makers", name_server=cluster.address) as producer:
            book = Book()
            producer.register_send_message_hook(book)
            with pytest.raises(BrokerError, match="no"):
                producer.send(Message("orders", b"-"))
    assert isinstance(book.after[0].exception, BrokerError)


def test_what_a_hook_raises_is_logged_and_harms_nobody(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    book = Book()
    producer.register_send_message_hook(Failing())
    producer.register_send_message_hook(book)
    with caplog.at_level(logging.ERROR, "orbitmq.producer"):
        producer.send(Message("orders", b"-"))
    assert len(book.after) == 1
    assert "send_message_before" in caplog.text
    assert "send_message_after" in caplog.text


def test_a_send_may_be_forbidden(producer: Producer, book: Book) -> None:
    forbid = Forbid("secret")
    producer.register_check_forbidden_hook(forbid)
    with pytest.raises(PermissionError, match="secret stays here"):
        producer.send(Message("orders", b"-", tags="secret"))
    future = producer.send_async(Message("orders", b"-", tags="secret"))
    with pytest.raises(PermissionError):
        future.result(10)
    producer.send(Message("orders", b"-", tags="open"))
    assert [context.group for context in forbid.asked] == ["makers"] * 3
    assert len(book.before) == 1, "what is forbidden does not leave"


def test_a_hook_that_would_never_run_is_refused(producer: Producer) -> None:
    class Asynchronous:
        async def check_forbidden(self, context: CheckForbiddenContext) -> None: ...

    with pytest.raises(ConfigError, match="check_forbidden"):
        producer.register_check_forbidden_hook(Asynchronous())  # type: ignore[arg-type]
