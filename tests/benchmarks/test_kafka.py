"""What `python -m benchmarks kafka` plans and shows; Kafka itself takes no part."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks import kafka_figures, kafka_streams, spark_sides
from benchmarks.__main__ import chosen
from benchmarks.kafka_broker import POMS, KafkaRelease, find_kafka
from benchmarks.kafka_figures import WARM_UP, Reading, measure
from benchmarks.plan import Outcome
from benchmarks.processes import ProcessTree, children
from benchmarks.results import compare, headings, markdown
from benchmarks.spark_sides import Bench
from benchmarks.subjects import ALONE, KAFKA, SUBJECTS, Options
from tests.apache.jars import ApacheMissingError
from tests.patience import eventually


def recorded(done: list[str], name: str) -> Callable[[], object]:
    return lambda: done.append(name)


class FakeBench:
    """Takes the time of nothing."""

    def outcome(self, rows: int, work: Callable[[], object]) -> Outcome:
        work()
        return Outcome(rows, 1.0)


def test_sides_take_turns_and_what_warms_up_does_not_count() -> None:
    done: list[str] = []
    works = [recorded(done, "a"), recorded(done, "b")]
    rows = measure(cast("Bench", FakeBench()), 10, works, rounds=2)
    assert [len(row) for row in rows] == [2, 2]
    assert "".join(done) == ("abba" * (WARM_UP + 2))[: 2 * (WARM_UP + 2)]


def test_readings_have_a_topic_for_each_size_and_number_of_queues() -> None:
    assert Reading(100, "all columns", 1).topic == Reading(100, "default columns", 1).topic
    assert Reading(100, "all columns").topic != Reading(100, "all columns", 1).topic
    assert len({str(reading) for reading in kafka_figures.READINGS}) == len(kafka_figures.READINGS)


def test_parts_are_subjects_that_need_no_apache_broker() -> None:
    assert chosen(["kafka"]) == [*KAFKA]
    assert set(KAFKA) <= ALONE
    assert set(KAFKA) <= SUBJECTS.keys()


def test_the_rival_is_named() -> None:
    result = compare("write 100 B", "messages/s", [[2.0, 1.0]], 1.0)
    assert headings("Kafka").count("Kafka") == 2
    assert markdown([result], "Kafka").startswith("|  |  | OrbitMQ | Kafka | ratio |")


def test_without_kafka_the_reason_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ApacheMissingError, match="java is not on the PATH"):
        find_kafka()
    options = Options([], 1.0, 1, 0, tmp_path)
    for part in KAFKA:
        assert [*SUBJECTS[part](options)] == []
    assert "Without kafka-read: java is not on the PATH" in capsys.readouterr().err


def test_the_driver_gets_all_jars(tmp_path: Path) -> None:
    for name in ("b.jar", "a.jar", "notes.txt"):
        (tmp_path / name).touch()
    release = KafkaRelease("java", POMS, tmp_path)
    assert release.source_classpath == f"{tmp_path / 'a.jar'}:{tmp_path / 'b.jar'}"
    assert {path.name for path in POMS.glob("*.xml")} == {"broker.xml", "source.xml"}


def test_processor_time_is_that_of_all_children_also_of_those_that_ended() -> None:
    spend = (
        "import time\nwhile time.process_time() < 0.1: pass\nprint('spent', flush=True)\ninput()"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {spend!r}]); input()"
    with subprocess.Popen(
        [sys.executable, "-c", outer], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.pid in children(os.getpid())
        tree = ProcessTree(process.pid)
        assert process.stdout.readline() == b"spent\n"
        assert tree.cpu_seconds() >= 0.05
        process.stdin.write(b"\n")
        process.stdin.flush()
        eventually(lambda: not children(process.pid), "the end of the inner process")
        assert tree.cpu_seconds() >= 0.05
        process.communicate(b"\n")
    assert tree.cpu_seconds() >= 0.05


class FakeQuery:
    """A query that reports one batch more each time."""

    def __init__(self, error: Exception | None = None) -> None:
        self.batches = 0
        self.error = error

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802 - Spark's name
        self.batches += 1
        return {"batchId": self.batches} if self.batches > 1 else None

    def exception(self) -> Exception | None:
        return self.error


def test_a_batch_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    query = FakeQuery()
    kafka_streams.wait_for_batch(cast("Any", query), 3)
    assert query.batches == 3
    with pytest.raises(RuntimeError, match="the query failed"):
        kafka_streams.wait_for_batch(cast("Any", FakeQuery(RuntimeError("the query failed"))), 3)


def test_options_are_texts() -> None:
    assert spark_sides.texts({"maxOffsetsPerTrigger": 4}) == {"maxOffsetsPerTrigger": "4"}
