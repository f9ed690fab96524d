"""Subscriptions by SQL92: what consumers get by them, and that a broker is asked beforehand."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from orbitmq import LitePullConsumer, MessageSelector, Producer, PushConsumer
from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import BrokerError, ConfigError, SubscriptionError
from orbitmq.message import Message
from orbitmq.testing.wait import wait_until
from tests.client.stub_cluster import StubCluster, answer, hang_up
from tests.consumer.lite_pull.lite_pulling import drain, numbers
from tests.consumer.push.pushing import Inbox

FROM_FIRST = "CONSUME_FROM_FIRST_OFFSET"
CHEAP = MessageSelector.by_sql("price < 10 AND carrier IN ('UA', 'AA')")
BROKEN = MessageSelector.by_sql("price < ", check=False)

Make = Callable[[str, MessageSelector | str | None], LitePullConsumer | PushConsumer]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(hold_sweep_interval_ms=100) as broker:
        yield broker


@pytest.fixture
def producer(broker: EmbeddedBroker) -> Iterator[Producer]:
    with Producer("senders", name_server=broker.name_server) as producer:
        yield producer


def offer(producer: Producer, *prices: int, carrier: str = "UA") -> None:
    for price in prices:
        properties = {"price": str(price), "carrier": carrier}
        producer.send(Message("offers", str(price).encode(), properties=properties))


def push(name_server: str, selector: MessageSelector | str | None) -> PushConsumer:
    consumer = PushConsumer("pushed", Inbox(), name_server=name_server)
    consumer.subscribe("offers", selector)
    return consumer


def lite_pull(name_server: str, selector: MessageSelector | str | None) -> LitePullConsumer:
    consumer = LitePullConsumer("polled", name_server=name_server)
    consumer.subscribe("offers", selector)
    return consumer


def polled(consumer: LitePullConsumer, count: int) -> list[int]:
    return numbers(drain(consumer, count))


EITHER = pytest.mark.parametrize("make", [push, lite_pull])


def test_a_push_consumer_gets_what_its_expression_wants(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    offer(producer, 5, 50, 7)
    offer(producer, 1, carrier="DL")
    inbox = Inbox()
    consumer = PushConsumer(
        "readers", inbox, name_server=broker.name_server, consume_from_where=FROM_FIRST
    )
    with consumer:
        consumer.subscribe("offers", CHEAP)
        assert inbox.wait(2) == [5, 7]
        offer(producer, 60, 6)
        assert inbox.wait(3) == [5, 6, 7]
        consumer.subscribe("offers", MessageSelector.by_sql("price > 100"))
        offer(producer, 8, 1000)
        wait_until(lambda: 1000 in inbox.numbers(), "the new expression to count")
        assert set(inbox.numbers()) <= {5, 6, 7, 8, 1000}  # a pull by the old one may be under way


def test_a_lite_pull_consumer_gets_what_its_expression_wants(
    broker: EmbeddedBroker, producer: Producer
) -> None:
    offer(producer, 5, 50, 7)
    consumer = LitePullConsumer(
        "readers", name_server=broker.name_server, consume_from_where=FROM_FIRST
    )
    with consumer:
        consumer.subscribe("offers", CHEAP)
        assert polled(consumer, 2) == [5, 7]


def test_queues_may_be_assigned_by_expression(broker: EmbeddedBroker, producer: Producer) -> None:
    offer(producer, 5, 50, 7)
    with LitePullConsumer("readers", name_server=broker.name_server) as consumer:
        queues = consumer.fetch_message_queues("offers")
        consumer.assign(queues, CHEAP)
        for queue in queues:
            consumer.seek(queue, 0)
        assert polled(consumer, 2) == [5, 7]


@EITHER
def test_a_broken_expression_ends_the_start(
    broker: EmbeddedBroker, producer: Producer, make: Make
) -> None:
    offer(producer, 5)
    consumer = make(broker.name_server, BROKEN)
    with pytest.raises(SubscriptionError) as refused:
        consumer.start()
    text = str(refused.value)
    assert text.startswith("SUBSCRIPTION_PARSE_FAILED (23) from 127.0.0.1")
    assert "the subscription to offers by 'price < ' is refused" in text
    assert "at its end: here must be a property" in text
    assert text.endswith("correct the expression, or write it as this broker knows it")


@EITHER
def test_a_broker_that_does_not_filter_by_property_ends_the_start(make: Make) -> None:
    with (
        EmbeddedBroker(enable_property_filter=False) as broker,
        Producer("senders", name_server=broker.name_server) as producer,
    ):
        offer(producer, 5)
        with pytest.raises(BrokerError, match="set enablePropertyFilter=true in the broker"):
            make(broker.name_server, CHEAP).start()
        with make(broker.name_server, "*"):
            pass


@EITHER
def test_a_topic_that_is_not_there_yet_does_not(broker: EmbeddedBroker, make: Make) -> None:
    with make(broker.name_server, BROKEN):
        pass


@EITHER
def test_a_mistake_shows_where_it_was_made(make: Make) -> None:
    with pytest.raises(ConfigError, match="at its end"):
        make("127.0.0.1:1", MessageSelector.by_sql("price < "))


def test_a_running_consumer_logs_what_is_refused(
    broker: EmbeddedBroker, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    offer(producer, 5)
    caplog.set_level(logging.WARNING, "orbitmq.consumer")
    with PushConsumer("readers", Inbox(), name_server=broker.name_server) as consumer:
        consumer.subscribe("offers", BROKEN)
        wait_until(
            lambda: "consumer readers gets no messages by a subscription" in caplog.text,
            "the warning",
        )
    assert "at its end: here must be a property" in caplog.text


@EITHER
def test_only_what_is_no_filter_by_tag_is_asked_about(make: Make) -> None:
    with StubCluster(brokers=1, offers=4) as cluster:
        with make(cluster.address, "TagA"):
            pass
        assert cluster.brokers[0].of(RequestCode.CHECK_CLIENT_CONFIG) == []
        with make(cluster.address, CHEAP):
            pass
        assert len(cluster.brokers[0].of(RequestCode.CHECK_CLIENT_CONFIG)) == 1


def test_a_broker_that_does_not_answer_does_not_end_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "orbitmq.consumer")
    with StubCluster(brokers=1, offers=4) as cluster:
        cluster.brokers[0].default = hang_up
        with push(cluster.address, CHEAP):
            cluster.brokers[0].default = cluster.brokers[0].answer
        assert "the subscription to offers is not checked" in caplog.text


def test_a_brokers_own_words_are_passed_on() -> None:
    with StubCluster(brokers=1, offers=4) as cluster:
        cluster.brokers[0].default = answer(23, "Invalid MessageSelector. ")
        with pytest.raises(SubscriptionError, match="refused: Invalid MessageSelector; correct"):
            push(cluster.address, CHEAP).start()
