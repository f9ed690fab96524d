"""What the pages beside docs/spark.md have readers copy, in the session all tests share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.errors import ConfigError
from orbitmq.spark import ProgressListener, archive, check_expectations
from orbitmq.spark.progress.metrics import MetricsServer
from orbitmq.testing.wait import wait_until
from orbitmq.wire.message_view import MessageView
from tests.docs.snippets import run, snippet
from tests.spark.topics import stored

READ, WRITE = "docs/spark-read.md", "docs/spark-write.md"
GUARANTEES, KAFKA = "docs/spark-guarantees.md", "docs/spark-from-kafka.md"

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]


@pytest.fixture
def broker(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[EmbeddedBroker]:
    """One with two topics, and a directory of the test's own to work in."""
    monkeypatch.chdir(tmp_path)
    with EmbeddedBroker() as broker:
        with Producer("pages", name_server=broker.name_server) as producer:
            for topic in ("flights", "orders"):
                producer.send(Message(topic, b"one book", tags="UA", keys="N1"))
        yield broker


@pytest.fixture
def name_server(broker: EmbeddedBroker) -> str:
    return broker.name_server


def here(code: str) -> str:
    """The code with its directories in this one, which Spark's own process does not know."""
    return re.sub(r'"([a-z-]+-(?:archive|checkpoint|parquet))"', rf'"{Path.cwd()}/\1"', code)


def messages(broker: EmbeddedBroker, topic: str) -> list[MessageView]:
    """What a topic holds: the broker acknowledged it, so it is there."""
    return [view for views in stored(broker, topic).values() for view in views]


def test_a_topic_in_sql(
    name_server: str, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    run(snippet(READ, "TEMPORARY VIEW"), name_server)
    assert "|  UA|       1|" in capfd.readouterr().out
    spark.catalog.dropTempView("flights")


def test_a_stream_from_topic_to_topic(broker: EmbeddedBroker) -> None:
    run(here(snippet(WRITE, "writeStream")), broker.name_server)
    (message,) = messages(broker, "flights-upper")
    assert (message.body, message.tags) == (b"ONE BOOK", "UA")


def test_a_stream_as_with_kafka(broker: EmbeddedBroker) -> None:
    run(here(snippet(KAFKA, "writeStream")), broker.name_server)
    (message,) = messages(broker, "flights-copy")
    assert message.properties["__SHARDINGKEY"] == "N1"


def test_a_batch_write_that_is_started_again(broker: EmbeddedBroker) -> None:
    for _ in range(2):
        run(snippet(GUARANTEES, "writeId"), broker.name_server)
    assert [message.body for message in messages(broker, "invoices")] == [b"one book"]


def test_who_answers_brokers(name_server: str) -> None:
    run(snippet(GUARANTEES, "answer_checks"), name_server)


def test_an_archive_is_a_table(name_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    archive("flights", Path.cwd() / "flights-archive", name_server=name_server)
    run(here(snippet("docs/spark-archive.md", "spark.read.parquet")), name_server)
    assert "|  UA|    1|" in capfd.readouterr().out


def test_bodies_are_decoded(name_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    with Producer("pages", name_server=name_server) as producer:
        for body in (b'{"id": 7, "price": 12.5}', b'{"id": "x"}'):
            producer.send(Message("prices", body))
    run(snippet("docs/spark-decode.md", 'format="json"'), name_server)
    assert "|  7| 12.5|" in capfd.readouterr().out
    with LitePullConsumer(
        "pages", name_server=name_server, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    ) as consumer:
        consumer.subscribe("prices-dead")

        def arrived() -> bool:
            return b'{"id": "x"}' in [message.body for message in consumer.poll(timeout=1)]

        wait_until(arrived, timeout=30)


def test_a_listener(name_server: str) -> None:
    scope = run(here(snippet("docs/spark-listeners.md", "process(")), name_server)
    assert scope["mailing"].query.exception() is None  # type: ignore[attr-defined]
    assert scope["mailing"].consume_status("orders").consume_ok_tps > 0  # type: ignore[attr-defined]


def test_the_progress_of_a_stream(
    name_server: str, capfd: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    scope = run(here(snippet("docs/spark-progress.md", "show_progress(query)")), name_server)
    listener, query, metrics = scope["listener"], scope["query"], scope["metrics"]
    try:
        assert isinstance(listener, ProgressListener)
        assert isinstance(metrics, MetricsServer)
        shown = capfd.readouterr().err
        assert "100% 1 of 1 messages" in shown
        assert "lag 0 messages, 0.0 s" in shown
        source = query.lastProgress.sources[0]  # type: ignore[attr-defined]
        assert "lag" in str(source.latestOffset)
        wait_until(lambda: not listener.latest(), "the listener has heard of the end")
    finally:
        metrics.close()  # type: ignore[attr-defined]
        spark.streams.removeListener(listener)  # type: ignore[arg-type]


def test_expectations(name_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    scope = run(snippet("docs/spark-pipelines.md", "check_expectations("), name_server)
    shown = capfd.readouterr().out
    assert "|2   |-1.0  |[is positive]|" in shown
    assert "|NULL|3.0   |[has an id]  |" in shown
    good = scope["checked"].where("size(broken) = 0")  # type: ignore[attr-defined]
    assert [row.id for row in good.collect()] == ["1"]
    with pytest.raises(ConfigError, match="expectations.*one condition at least"):
        check_expectations(good, {})


def test_a_program_for_any_place(name_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    run(snippet("docs/spark-clusters.md", "groupBy"), name_server)
    assert "|  UA|    1|" in capfd.readouterr().out
    run(snippet("docs/spark-clusters.md", "local_session("), name_server)
