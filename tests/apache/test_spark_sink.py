"""The Spark sink's guarantees on Apache's brokers, its tasks and commits driven as Spark does."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, cast

import pytest

from orbitmq.blocking.admin import Admin
from orbitmq.clock import SYSTEM_CLOCK
from orbitmq.net.blocking import OPEN
from orbitmq.producer.local_transactions import LocalTransactionState
from orbitmq.spark import answer_checks
from orbitmq.spark.sink import lanes, sending
from orbitmq.spark.sink.sending import Outgoing, Sender
from orbitmq.spark.sink.topic_types import required_type
from tests.apache.cluster import ApacheCluster
from tests.apache.conftest import release_or_skip
from tests.apache.jars import NEWEST, OLDEST
from tests.patience import PATIENCE_SECONDS, eventually
from tests.spark.crashes.histories import LONG
from tests.spark.spark_tasks import Killed, Query, killed_after, killed_while_delivering, rows
from tests.spark.topics import stored

if TYPE_CHECKING:
    from orbitmq.broker.embedded import EmbeddedBroker

pytestmark = [pytest.mark.apache, pytest.mark.xdist_group("jvm")]


@pytest.fixture(params=["old_apache_cluster", "apache_cluster"])
def cluster(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ApacheCluster:
    monkeypatch.setattr(sending, "SEND_TIMEOUT_SECONDS", PATIENCE_SECONDS)
    monkeypatch.setattr(lanes, "BATCH_MESSAGES", 20)
    found: ApacheCluster = request.getfixturevalue(request.param)
    return found


def query_of(
    cluster: ApacheCluster, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> tuple[Query, str]:
    topic = cluster.new_topic("sink")
    query = Query(
        monkeypatch, nameServer=cluster.name_server, topic=topic, deliveryGuarantee=guarantee
    )
    return query, topic


def await_bodies(cluster: ApacheCluster, topic: str, expected: Counter[str]) -> None:
    """Apache shows messages a little after it acknowledged them."""
    found: Counter[str] = Counter()

    def all_there() -> bool:
        found.clear()
        views = stored(cast("EmbeddedBroker", cluster), topic)
        found.update(view.body.decode() for own in views.values() for view in own)
        return found.total() >= expected.total()

    eventually(all_there, f"{expected.total()} rows", lambda: found)
    assert found == expected


def test_a_batch_that_is_sent_at_least_once(
    cluster: ApacheCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, topic = query_of(cluster, monkeypatch, "at_least_once")
    bodies = [f"{number % 700}" for number in range(3000)]
    plan = query.plan(0)
    query.commit([query.task(plan, 0, [rows(bodies)]), query.task(plan, 1, [rows(["z"])])], 0)
    await_bodies(cluster, topic, Counter([*bodies, "z"]))


def test_an_idempotent_batch_that_is_run_again(
    cluster: ApacheCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, topic = query_of(cluster, monkeypatch, "idempotent")
    bodies = [f"{number % 700}" for number in range(1000)]
    plan = query.plan(0)
    with pytest.raises(Killed):
        query.task(plan, 0, killed_after([rows(bodies), rows(bodies)]))
    query.task(plan, 0, [rows(bodies[::-1]), rows(bodies)])
    query.task(query.plan(0), 0, [rows(bodies * 2)])
    await_bodies(cluster, topic, Counter(bodies * 2))


def test_an_exactly_once_batch_whose_driver_is_killed_while_it_delivers(
    cluster: ApacheCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, topic = query_of(cluster, monkeypatch, "exactly_once")
    plan = query.plan(0)
    with pytest.raises(Killed):
        query.task(plan, 0, killed_after([rows(["lost"] * 300)]))
    first = [f"a{number}" for number in range(50)]
    second = [f"b{number}" for number in range(10)]
    sent = [query.task(plan, 0, [rows(first)]), query.task(plan, 1, [rows(second, "key")])]
    with monkeypatch.context() as patch:
        killed_while_delivering(patch, 1)
        with pytest.raises(Killed):
            query.commit(sent, 0)
    query.commit([query.task(query.plan(0), 0, [rows(["other"])])], 0)
    await_bodies(cluster, topic, Counter(first + second))


@pytest.mark.skipif(not LONG, reason="takes a minute: runs where ORBITMQ_LONG is set")
@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_what_is_decided_outlives_the_driver_and_the_broker(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both are killed while rows are delivered; who answers the broker's checks finishes it.

    Notes lie further back then than the last file of the log, from which Apache's broker makes the
    key index again that it threw away.
    """
    monkeypatch.setattr(lanes, "BATCH_MESSAGES", 20)
    settings = {
        "transactionTimeOut": 6_000,
        "transactionCheckInterval": 4_000,
        "flushConsumeQueueThoroughInterval": 1_000,  # what is saved is safe 3 s later
    }
    with ApacheCluster(release_or_skip(version), settings) as cluster:
        query, topic = query_of(cluster, monkeypatch, "exactly_once")
        numbers = [f"{number}" for number in range(50)]
        sent = [query.task(query.plan(0), 0, [rows(numbers)])]
        with monkeypatch.context() as patch:
            killed_while_delivering(patch, 1)
            with pytest.raises(Killed):
                query.commit(sent, 0)
        fill_files_of_the_log(cluster)
        cluster.broker.kill()
        cluster.broker.start()
        answers: list[LocalTransactionState] = []
        with answer_checks(
            name_server=cluster.name_server,
            take_over_ms=0,
            on_answer=lambda _, answer: answers.append(answer),
        ):
            await_bodies(cluster, topic, Counter(numbers))
            rolled_back = LocalTransactionState.ROLLBACK
            eventually(lambda: rolled_back in answers, "the end of the half message")
        again = query.task(query.plan(0), 0, [rows(["other"])])
        query.commit([again], 0)
        await_bodies(cluster, topic, Counter(numbers))


def fill_files_of_the_log(cluster: ApacheCluster) -> None:
    """Until what was written before is not in the file that recovery begins with."""
    topic = cluster.new_topic("filler", 1)
    for count in (300, 30):  # a file holds 64 MB
        with closing(Sender((cluster.name_server,), "fillers")) as sender:
            for _ in range(count):
                sender.add(topic, Outgoing(bytes(300_000), b""))
            sender.finish()
        saved = SYSTEM_CLOCK.monotonic() + 6
        eventually(partial(is_over, saved), "a checkpoint of the store")


def is_over(moment: float) -> bool:
    return SYSTEM_CLOCK.monotonic() > moment


def test_a_topic_whose_type_the_broker_does_not_look_at(
    apache_cluster: ApacheCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, topic = query_of(apache_cluster, monkeypatch, "exactly_once")
    with Admin(name_server=apache_cluster.name_server) as admin:
        admin.create_topic(topic, attributes={"message.type": "TRANSACTION"})
    batch = 1  # another test had batch 0 of the same query decided on this cluster
    query.commit([query.task(query.plan(batch), 0, [rows(["a", "b"], "key")])], batch)
    await_bodies(apache_cluster, topic, Counter(["a", "b"]))


def test_a_broker_that_knows_no_types(old_apache_cluster: ApacheCluster) -> None:
    address = old_apache_cluster.brokers[0].address
    assert required_type(address, old_apache_cluster.new_topic(), OPEN) is None
