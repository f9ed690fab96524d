"""One Spark session for all tests that need one, and a broker beside it."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.broker.embedded import EmbeddedBroker
from orbitmq.spark import local_session
from orbitmq.spark.sink import begins
from tests.spark.spark_tasks import Query
from tests.spark.topics import Topic


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small session in which a failed task is tried again, as on a cluster."""
    home: Path = tmp_path_factory.mktemp("spark")
    _bring_worker_into_memory()
    with warnings.catch_warnings():
        # PySpark warns of pandas 3, which nothing here uses.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        session = local_session(
            "orbitmq-tests",
            master="local[2,3]",
            memory="600m",
            config={
                "spark.driver.extraJavaOptions": (
                    f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dderby.system.home={home}"
                ),
                "spark.local.dir": str(home / "local"),
                "spark.sql.warehouse.dir": str(home / "warehouse"),
                "spark.ui.showConsoleProgress": "false",
            },
        )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


def _bring_worker_into_memory() -> None:
    """Read once what Python workers import: Spark gives each ten seconds, however cold the disk."""
    own = "orbitmq.spark.source.reader, orbitmq.spark.sink.writer"
    modules = f"pyspark.worker, pyspark.daemon, pyarrow, {own}"
    subprocess.run([sys.executable, "-W", "ignore", "-c", f"import {modules}"], check=True)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sink waits for nothing that a test does not make happen."""
    monkeypatch.setattr(begins, "SETTLE_SECONDS", 0)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.002)))


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch, topic: Topic, guarantee: str) -> Query:
    """A query whose rows go to ``topic`` with ``guarantee``, both of them the test file's."""
    return Query(
        monkeypatch,
        nameServer=topic.broker.name_server,
        topic=topic.name,
        deliveryGuarantee=guarantee,
    )


@pytest.fixture(scope="session")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        yield running
