"""``orbitmq answer-checks``: what a driver that is gone left undone is done beside it."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.cli import main
from orbitmq.spark.sink import lanes
from tests.docs.snippets import ADDRESS, snippet
from tests.patience import PATIENCE_SECONDS, eventually
from tests.spark.spark_tasks import Killed, Query, killed_after, killed_while_delivering, rows
from tests.spark.topics import Topic

COMMAND = shlex.split(snippet("docs/spark-guarantees.md", "answer-checks", "sh"))
BODIES = [f"{number:02}" for number in range(50)]


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """One that asks soon, and makes no topics by need."""
    with EmbeddedBroker(
        transaction_timeout_ms=1,
        transaction_check_interval_ms=200,
        transaction_check_max=1_000_000,
        auto_create_topics=False,
    ) as running:
        yield running


@contextmanager
def answering(
    name_server: str, *options: str, fresh: bool = False
) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "orbitmq.cli", *COMMAND[1:], *options]
    where = command.index(ADDRESS)
    command[where] = name_server
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            assert said.startswith("answering for group orbitmq_spark"), said
            assert ("no topic orbitmq_spark_writes" in said) == fresh
            yield process
        finally:
            process.kill()


def left_by_a_driver(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """One attempt of a task is killed; another one counts, and is delivered in part."""
    plan = query.plan(0)
    with pytest.raises(Killed):
        query.task(plan, 0, killed_after([rows(["lost"] * 30)]))
    with monkeypatch.context() as patch:
        patch.setattr(lanes, "BATCH_MESSAGES", 20)
        sent = [query.task(plan, 0, [rows(BODIES)])]
        killed_while_delivering(patch, 1)
        with pytest.raises(Killed):
            query.commit(sent, 0)


@pytest.mark.parametrize("namespace", [None, "shop"])
def test_a_write_whose_driver_is_gone_is_finished(
    broker: EmbeddedBroker, namespace: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(broker)
    given: dict[str, Any] = {}
    if namespace is not None:
        given["namespace"] = namespace
        topic.name = f"{namespace}%{topic.name}"
        topic.resize(2)
    query = Query(
        monkeypatch, nameServer=broker.name_server, topic=topic.name.rpartition("%")[2],
        deliveryGuarantee="exactly_once", **given,
    )  # fmt: skip
    left_by_a_driver(query, monkeypatch)
    assert len(topic.bodies()) <= 20
    options = [f"--{name}={value}" for name, value in given.items()]
    with answering(broker.name_server, "--take-over=0", *options) as process:
        eventually(lambda: topic.bodies() == BODIES, "what counts", topic.bodies)
        assert process.stdout is not None
        assert process.stdout.readline().startswith("stream:q-1:0: decided; half messages")
        process.send_signal(signal.SIGTERM)
        *_, last = process.stdout.read().splitlines()
        assert last.startswith("answered ")
        assert last.endswith(" times, about 1 writes")
        assert process.wait(PATIENCE_SECONDS) == 0
    assert topic.bodies() == BODIES


def test_a_write_that_is_under_way_is_left_alone(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(broker)
    query = Query(
        monkeypatch, nameServer=broker.name_server, topic=topic.name,
        deliveryGuarantee="exactly_once",
    )  # fmt: skip
    sent = [query.task(query.plan(0), 0, [rows(["a"])])]
    with answering(broker.name_server) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("stream:q-1:0: not decided, or being delivered")
        assert topic.bodies() == []
        query.commit(sent, 0)
        assert process.stdout.readline().startswith("stream:q-1:0: decided")
    assert topic.bodies() == ["a"]


def test_what_cannot_be_is_told(
    broker: EmbeddedBroker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    for options, said in [
        ([], "name_server"),
        (["--name-server", "127.0.0.1:1"], "no name server answered"),
        (["--name-server", broker.name_server, "--take-over", "-1"], "--take-over=-1.0"),
        (["--name-server", broker.name_server, "--group", "a b"], "'a b'"),
    ]:
        assert main(["answer-checks", *options]) == 2
        assert said in capsys.readouterr().err


def test_a_cluster_without_such_writes_is_told_of(broker: EmbeddedBroker) -> None:
    with answering(broker.name_server, fresh=True) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) == 0
