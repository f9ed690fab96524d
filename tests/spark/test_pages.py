"""What the pages beside docs/spark.md have readers copy, in the session all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.errors import ConfigError
from orbitmq.spark import ProgressListener, archive, check_expectations
from orbitmq.spark.metrics import MetricsServer
from orbitmq.testing.wait import wait_until
from tests.docs.snippets import run, snippet

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.spark]


@pytest.fixture
def name_server(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """A broker with two topics, and a directory of the test's own to work in."""
    monkeypatch.chdir(tmp_path)
    with EmbeddedBroker() as broker:
        with Producer("pages", name_server=broker.name_server) as producer:
            for topic in ("flights", "orders"):
                producer.send(Message(topic, b"one book", tags="UA"))
        yield broker.name_server


def test_an_archive_is_a_table(name_server: str, capfd: pytest.CaptureFixture[str]) -> None:
    archive("flights", Path.cwd() / "flights-archive", name_server=name_server)
    code = snippet("docs/spark-archive.md", "spark.read.parquet")
    run(code.replace('"flights-archive"', f'"{Path.cwd() / "flights-archive"}"'), name_server)
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
    code = snippet("docs/spark-listeners.md", "process(")
    checkpoint = f'checkpoint="{Path.cwd() / "mailers"}"'
    scope = run(code.replace('checkpoint="mailers-checkpoint"', checkpoint), name_server)
    assert scope["mailing"].query.exception() is None  # type: ignore[attr-defined]
    assert scope["mailing"].consume_status("orders").consume_ok_tps > 0  # type: ignore[attr-defined]


def test_the_progress_of_a_stream(
    name_server: str, capfd: pytest.CaptureFixture[str], spark: SparkSession
) -> None:
    code = snippet("docs/spark-progress.md", "show_progress(query)")
    for directory in ("flights-parquet", "flights-checkpoint"):
        code = code.replace(f'"{directory}"', f'"{Path.cwd() / directory}"')
    scope = run(code, name_server)
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
