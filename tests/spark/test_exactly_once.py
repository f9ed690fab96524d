"""deliveryGuarantee=exactly_once: a batch is there whole and once, or not at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import msgspec
import pytest
from pyspark.sql.datasource import WriterCommitMessage

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.codes import RequestCode
from orbitmq.errors import DataLossError, NetworkError, RowError
from orbitmq.names import HALF_TOPIC, OP_HALF_TOPIC
from orbitmq.producer.local_transactions import LocalTransactionState
from orbitmq.spark import answer_checks
from orbitmq.spark.sink import check_backs, lanes, staging
from orbitmq.spark.sink.check_backs import CheckBacks
from orbitmq.spark.sink.decisions import Decision, Decisions
from orbitmq.spark.sink.ledger import STAGING_TOPIC, Ledger
from orbitmq.spark.sink.options import WriteOptions
from orbitmq.spark.sink.writer import PreparedRows
from orbitmq.testing.wait import wait_until
from orbitmq.wire.headers import TopicRequestHeader
from orbitmq.wire.message_view import MessageView
from tests.spark.spark_tasks import (
    Asked,
    FlakyConnections,
    Killed,
    Query,
    killed_after,
    killed_while_delivering,
    rows,
)
from tests.spark.topics import Topic, stored

pytestmark = pytest.mark.usefixtures("soon")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "BATCH_MESSAGES", 20)
    monkeypatch.setattr(staging, "CHUNK", 2)


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """One whose half messages are of one test."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def topic(own_broker: EmbeddedBroker) -> Topic:
    return Topic(own_broker, 3)


@pytest.fixture
def guarantee() -> str:
    return "exactly_once"


def numbers(count: int, start: int = 0) -> list[str]:
    return [f"{number:04}" for number in range(start, start + count)]


def open_and_ended(topic: Topic) -> tuple[int, int]:
    """How many half messages there are, and how many of them were rolled back."""
    halves, ends = stored(topic.broker, HALF_TOPIC), stored(topic.broker, OP_HALF_TOPIC)
    return sum(map(len, halves.values())), sum(map(len, ends.values()))


def test_rows_are_there_together_when_the_driver_commits(query: Query, topic: Topic) -> None:
    plan = query.plan(0)
    sent = [
        query.task(plan, 0, [rows(numbers(70)), rows(numbers(60, 70))]),
        query.task(plan, 1, [rows(numbers(50, 200), "key")]),
        query.task(plan, 2, []),
    ]
    assert topic.bodies() == []
    query.commit(sent, 0)
    assert topic.bodies() == sorted(numbers(130) + numbers(50, 200))
    keyed = [
        [view.body.decode() for view in views if view.sharding_key]
        for views in topic.by_queue().values()
    ]
    assert sorted(keyed, key=len)[-2:] == [[], numbers(50, 200)]
    views = [view for views in topic.by_queue().values() for view in views]
    assert len({view.message_id for view in views}) == 180
    query.commit([], 1)


def test_what_a_killed_attempt_sent_is_never_delivered(query: Query, topic: Topic) -> None:
    plan = query.plan(0)
    with pytest.raises(Killed):
        query.task(plan, 0, killed_after([rows(numbers(100))]))
    query.commit([query.task(plan, 0, [rows(["a", "b"])])], 0)
    assert topic.bodies() == ["a", "b"]


def test_the_topic_of_staged_rows_is_made_again_where_it_was_deleted(
    query: Query, topic: Topic
) -> None:
    for number in range(3):
        task = query.task(query.plan(number), 0, [rows(numbers(30, number * 30))])
        query.commit([task], number)
        topic.request(RequestCode.DELETE_TOPIC_IN_BROKER, TopicRequestHeader(STAGING_TOPIC))
    assert topic.bodies() == numbers(90)


def test_a_failed_attempt_and_an_aborted_write_are_rolled_back(query: Query, topic: Topic) -> None:
    plan = query.plan(0)
    with pytest.raises(RowError, match="partition 0, row 41: a null or empty body"):
        query.task(plan, 0, [rows(numbers(40)), rows(["a", ""])])
    assert open_and_ended(topic) == (0, 0)
    query.abort([query.task(plan, 1, [rows(numbers(7))]), None], 0)
    assert open_and_ended(topic) == (1, 1)
    assert topic.bodies() == []


@pytest.mark.parametrize("batches", [0, 1, 5])
def test_what_is_decided_stays_so_whatever_the_batch_is_the_next_time(
    query: Query, topic: Topic, batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = query.plan(0)
    sent = [query.task(plan, number, [rows(numbers(50, 100 * number))]) for number in range(2)]
    with monkeypatch.context() as patch:
        killed_while_delivering(patch, batches)
        with pytest.raises(Killed):
            query.commit(sent, 0)
    assert len(topic.bodies()) <= batches * 20
    query.abort(sent, 0)  # as after a commit that failed
    plan = query.plan(0)
    again = [query.task(plan, number, [rows(["other"])]) for number in range(3)]
    query.commit(again, 0)
    query.commit([query.task(query.plan(0), 0, [rows(["other"])])], 0)
    assert topic.bodies() == sorted(numbers(50) + numbers(50, 100))


def test_a_commit_whose_answers_are_lost(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    flaky = FlakyConnections(monkeypatch, 0.4)
    plan = query.plan(0)
    sent = [query.task(plan, 0, [rows(numbers(300)), rows(numbers(60, 500), "key")])]
    query.commit(sent, 0)
    assert topic.bodies() == sorted(numbers(300) + numbers(60, 500))
    assert flaky.broken
    flaky.close()


@pytest.mark.parametrize("seed", range(2))
def test_a_history_of_crashes_leaves_each_row_once(
    query: Query, topic: Topic, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    flaky = FlakyConnections(monkeypatch, 0.05, seed)
    expected: Counter[str] = Counter()
    for batch_id in range(4):
        bodies = [f"{chance.randrange(60)}" for _ in range(120)]
        expected.update(bodies)
        done = False
        while not done:  # every turn is another driver's
            plan = query.plan(batch_id)
            sent: list[WriterCommitMessage | None] = []
            for number in range(2):
                while chance.random() < 0.3:
                    some = killed_after([rows(chance.sample(bodies, chance.randrange(100)))])
                    with pytest.raises(Killed):
                        query.task(plan, number, some)
                sent.append(query.task(plan, number, [rows(bodies[number::2])]))
            with monkeypatch.context() as patch:
                if chance.random() < 0.6:
                    killed_while_delivering(patch, chance.randrange(4))
                try:
                    query.commit(sent, batch_id)
                    done = chance.random() < 0.6
                except Killed:
                    pass
    assert topic.counted() == expected
    flaky.close()


def test_what_is_decided_is_finished_by_who_answers_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The driver is gone for good between its decision and its last commit."""
    monkeypatch.setattr(check_backs, "TAKE_OVER_MS", 0)
    with EmbeddedBroker(
        transaction_timeout_ms=1, transaction_check_interval_ms=20, transaction_check_max=1_000_000
    ) as broker:
        topic = Topic(broker)
        query = Query(
            monkeypatch, nameServer=broker.name_server, topic=topic.name,
            deliveryGuarantee="exactly_once",
        )  # fmt: skip
        sent = [query.task(query.plan(0), 0, [rows(numbers(50))])]
        with monkeypatch.context() as patch:
            killed_while_delivering(patch, 1)
            with pytest.raises(Killed):
                query.commit(sent, 0)
        with answer_checks(name_server=broker.name_server):
            wait_until(lambda: len(topic.bodies()) >= 50, "the rest")
            wait_until(lambda: open_and_ended(topic)[1] > 0, "the end of what was asked about")
        assert topic.bodies() == numbers(50)


def asked(query: Query, topic: Topic, **how: Any) -> list[LocalTransactionState]:
    """What is answered about each half message."""
    options = WriteOptions(name_servers=(topic.broker.name_server,))
    checks = CheckBacks(options, **how)
    views = [view for own in stored(topic.broker, HALF_TOPIC).values() for view in own]
    return [checks(cast(MessageView, Asked(view, topic.name))) for view in views]


def test_answers_about_half_messages(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    rollback, unknown = LocalTransactionState.ROLLBACK, LocalTransactionState.UNKNOWN
    plan = query.plan(0)
    with pytest.raises(Killed):
        query.task(plan, 0, killed_after([rows(numbers(20))]))
    assert asked(query, topic) == []
    lost = query.task(plan, 0, [rows(["lost"])])
    sent = [query.task(plan, 0, [rows(["a"])])]
    assert asked(query, topic) == [unknown, unknown]
    with monkeypatch.context() as patch:
        killed_while_delivering(patch, 0)
        with pytest.raises(Killed):
            query.commit(sent, 0)
    assert asked(query, topic) == [rollback, unknown]
    assert topic.bodies() == []
    assert asked(query, topic, take_over_ms=0) == [rollback, rollback]
    assert topic.bodies() == ["a"]
    query.commit([query.task(query.plan(0), 0, [rows(["a"])])], 0)
    query.commit([lost], 0)
    assert topic.bodies() == ["a"]
    assert asked(query, topic) == [rollback, rollback]


def test_two_do_not_deliver_at_once(query: Query, topic: Topic) -> None:
    query._options["brokerWaitMs"] = "0"
    sent = [query.task(query.plan(0), 0, [rows(["a"])])]
    options = query.new_writer()._plan.options
    other = Decisions(options, "stream:q-1:0")
    ledger = Ledger(topic.broker.address, "broker-a", "tests")
    with other._lease(ledger).held(), pytest.raises(NetworkError, match="another process delivers"):
        query.commit(sent, 0)
    assert topic.bodies() == []
    query.commit(sent, 0)
    assert topic.bodies() == ["a"]


def test_a_driver_that_was_slow_delivers_nothing_again(
    query: Query, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its decision and its delivery, another process did that, or half of it."""
    finish, batches = Decisions.finish, 0

    def after_another(own: Decisions, decision: Decision, *, fresh: bool) -> None:
        options = query.new_writer()._plan.options
        with monkeypatch.context() as patch:
            killed_while_delivering(patch, batches)
            with suppress(Killed):
                finish(Decisions(options, decision.write), decision, fresh=False)
        finish(own, decision, fresh=fresh)

    for batches in (0, 2, 100):
        sent = [query.task(query.plan(batches), 0, [rows(numbers(100, batches * 100))])]
        with monkeypatch.context() as patch:
            patch.setattr(Decisions, "finish", after_another)
            query.commit(sent, batches)
    expected = [one for start in (0, 200, 10_000) for one in numbers(100, start)]
    assert topic.bodies() == sorted(expected)


def test_rows_that_are_gone_are_told(query: Query, topic: Topic) -> None:
    ledger = Ledger(topic.broker.address, "broker-a", "tests")
    sent = cast(PreparedRows, query.task(query.plan(0), 0, [rows(["a"])]))
    (share,) = sent.shares.values()
    other = msgspec.structs.replace(share.attempts[0], lists=[ledger.write("other", b"note")])
    share.attempts[:] = [other]
    with pytest.raises(DataLossError, match="does not have what stream:q-1:0 staged"):
        query.commit([sent], 0)
    assert topic.bodies() == []
