"""The right to deliver: one process has it, and for a minute more when it is killed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import NetworkError
from orbitmq.net.blocking import OPEN
from orbitmq.spark.sink import lease
from orbitmq.spark.sink.lease import RENEW_SECONDS, Lease
from orbitmq.spark.sink.ledger import LEDGER_QUEUES, LEDGER_TOPIC, Ledger
from orbitmq.testing.clock import ManualClock
from orbitmq.wire.headers import CreateTopicRequestHeader
from tests.spark.topics import Topic

SCOPE = "batch:invoices%20of%20May"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(clock: ManualClock) -> Iterator[Ledger]:
    with EmbeddedBroker(clock=clock) as broker:
        header = CreateTopicRequestHeader(
            topic=LEDGER_TOPIC, default_topic="TBW102", read_queue_nums=LEDGER_QUEUES,
            write_queue_nums=LEDGER_QUEUES, perm=6, topic_filter_type="SINGLE_TAG",
        )  # fmt: skip
        Topic(broker).request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        yield Ledger(broker.address, "broker-a", "tests")


def lease_of(ledger: Ledger, owner: str, scope: str = SCOPE) -> Lease:
    return Lease(ledger, scope, owner, OPEN)


def test_one_has_it_until_the_end_of_its_block(ledger: Ledger) -> None:
    with lease_of(ledger, "a").held():
        told = "does not let batch:invoices of May be delivered: another process delivers"
        with pytest.raises(NetworkError, match=told), lease_of(ledger, "b").held():
            pass
        with lease_of(ledger, "b", "batch:other").held():
            pass
    with lease_of(ledger, "b").held():
        pass


def test_one_that_gave_it_back_asks_for_it_again(ledger: Ledger) -> None:
    own = lease_of(ledger, "a")
    with own.held():
        pass
    with (
        lease_of(ledger, "b").held(),
        pytest.raises(NetworkError, match="another process"),
        own.held(),
    ):
        pass
    with own.held(), pytest.raises(NetworkError), lease_of(ledger, "b").held():
        pass


def test_one_that_was_killed_has_it_for_a_minute(ledger: Ledger, clock: ManualClock) -> None:
    with ExitStack() as killed:
        killed.enter_context(lease_of(ledger, "a").held())
        clock.advance(59_000)
        with pytest.raises(NetworkError, match="less than a minute"), lease_of(ledger, "b").held():
            pass
        clock.advance(2_000)
        with lease_of(ledger, "b").held():
            pass


def test_it_is_renewed_while_it_is_needed(
    ledger: Ledger, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "time", clock)
    with lease_of(ledger, "a").held() as renew:
        for _ in range(10):
            clock.advance(int(RENEW_SECONDS * 1000))
            renew()
        with pytest.raises(NetworkError), lease_of(ledger, "b").held():
            pass
        clock.advance(61_000)
        with lease_of(ledger, "b").held(), pytest.raises(NetworkError, match="another process"):
            renew()


def test_what_cannot_be_given_back_is_told(
    ledger: Ledger, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lease_of(ledger, "a")
    with caplog.at_level(logging.WARNING, "orbitmq.spark"), own.held():
        monkeypatch.setattr(own, "_address", "127.0.0.1:1")
    assert "the right to deliver batch:invoices of May is kept for a minute" in caplog.text
