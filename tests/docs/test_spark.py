"""The snippets and the tables of docs/spark.md and the pages on reading and writing."""

from __future__ import annotations

import argparse
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, Message, Producer
from tests.docs.snippets import ADDRESS, ROOT, snippet, snippets, table_rows
from tests.spark.quick_java import QUICK_JAVA
from tests.spark.topics import stored

DOCS = ROOT / "docs"
READ, WRITE = "docs/spark-read.md", "docs/spark-write.md"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_snippets_one_after_the_other(tmp_path: Path) -> None:
    code = [*snippets("docs/spark.md"), snippet(WRITE, 'mode("append")')]
    show = "print(spark.read.parquet('flights-parquet').count(), 'rows in parquet')"
    with EmbeddedBroker() as broker:
        with Producer("orders", name_server=broker.name_server) as producer:
            for carrier in ("UA", "AA", "B6"):
                producer.send(Message("flights", b"ewr", tags=carrier, keys=f"key-{carrier}"))
        program = "\n".join([*code, show]).replace(ADDRESS, broker.name_server)
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=QUICK_JAVA,
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "key-UA" in done.stdout
        assert "key-AA" in done.stdout
        assert "key-B6" not in done.stdout
        assert "3 rows in parquet" in done.stdout
        written = [view for views in stored(broker, "orders").values() for view in views]
    assert [view.body for view in written] == [b"one book"]


def test_every_snippet_is_run() -> None:
    """Those of Python: three here, one in test_spark_archive, the others in spark/test_pages."""
    found = {page.stem: len(snippets(f"docs/{page.name}")) for page in DOCS.glob("spark*.md")}
    assert found == {
        "spark": 2,
        "spark-archive": 2,
        "spark-clusters": 2,
        "spark-decode": 1,
        "spark-from-kafka": 1,
        "spark-guarantees": 2,
        "spark-listeners": 1,
        "spark-pipelines": 1,
        "spark-progress": 1,
        "spark-read": 1,
        "spark-write": 2,
    }


def names(page: str, heading: str = "") -> list[str]:
    """The names in the first cells."""
    return [name for row in table_rows(page, heading) for name in re.findall(r"`(\w+)`", row[0])]


def defaults(page: str, heading: str) -> dict[str, str]:
    """The options whose default is a value that could be given as well."""
    found: dict[str, str] = {}
    for row in table_rows(page, heading):
        value = re.fullmatch(r"`([^`]+)`", row[2]) if len(row) == 4 else None
        if value:
            found |= dict.fromkeys(re.findall(r"`(\w+)`", row[0]), value[1])
    return found


def test_all_that_can_be_read_is_told() -> None:
    from orbitmq.spark.source.options import READ_NAMES
    from orbitmq.spark.source.schema import ALL_COLUMNS

    assert sorted(names(READ, "## Columns")) == sorted(ALL_COLUMNS.names)
    assert sorted({*names(READ, "## Options")}) == sorted(READ_NAMES)


def test_all_that_can_be_written_is_told() -> None:
    from orbitmq.spark.option_values import ACCESS_OPTIONS
    from orbitmq.spark.sink.options import WRITE_NAMES
    from orbitmq.spark.sink.schema import WRITE_COLUMNS

    assert sorted(names(WRITE, "## Columns to write")) == sorted(WRITE_COLUMNS)
    told = names(WRITE, "## Options of a write")
    assert sorted(told) == sorted({*WRITE_NAMES} - {*ACCESS_OPTIONS})  # told of reading


def test_the_defaults_are_those_told() -> None:
    from orbitmq.spark.sink.options import write_options
    from orbitmq.spark.source.options import read_options

    base = {"nameServer": "127.0.0.1:9876", "topic": "flights"}
    needed = {
        "maxTriggerDelay": {"minOffsetsPerTrigger": "1"},
        "compressOver": {"compression": "zlib"},
    }
    told = defaults(READ, "## Options")
    assert len(told) >= 12
    for name, value in told.items():
        options = base | needed.get(name, {})
        batch_only = name.startswith("ending") or name == "pushFilters"
        without = read_options(options, streaming=not batch_only)
        assert read_options({**options, name: value}, streaming=not batch_only) == without, name
    told = defaults(WRITE, "## Options of a write")
    assert len(told) > 4
    for name, value in told.items():
        options = base | needed.get(name, {})
        assert write_options({**options, name: value}) == write_options(options), name


def test_a_profile_is_written_as_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from orbitmq.spark.source.options import read_options

    (tmp_path / "profiles.toml").write_text(snippet(READ, "[prod]", "toml"))
    monkeypatch.setenv("ORBITMQ_PROFILES", str(tmp_path / "profiles.toml"))
    options = read_options({"profile": "prod", "topic": "flights"}, streaming=True)
    assert options.name_servers == ("ns1:9876", "ns2:9876")
    assert options.access.access_key == "reader"


def test_the_metrics_are_those_told() -> None:
    from orbitmq.spark.progress.listener import ProgressListener
    from orbitmq.spark.progress.metrics import prometheus_text

    page = "docs/spark-progress.md"
    served = re.findall(r"^# TYPE (\w+) ", prometheus_text(ProgressListener()), re.MULTILINE)
    assert names(page, "## Prometheus") == served


def test_the_formats_and_properties_of_decoding_are_those_told() -> None:
    from orbitmq.spark.bodies.decoding import FORMATS
    from orbitmq.spark.bodies.undecoded import ORIGIN, REASON

    told = names("docs/spark-decode.md")
    assert told == [*FORMATS, REASON, *ORIGIN.values()]


def test_the_arguments_of_process_are_those_told() -> None:
    from orbitmq.spark import process

    told = table_rows("docs/spark-listeners.md")
    arguments = [row[0].strip("`") for row in told if len(row) == 3]
    assert arguments == [*inspect.signature(process).parameters]


def test_the_options_of_a_pipeline_are_those_told() -> None:
    from orbitmq.cli import pipeline

    parser = argparse.ArgumentParser()
    pipeline.add_parser(parser.add_subparsers())
    page = (DOCS / "spark-pipelines.md").read_text("utf-8")
    told = re.findall(r"^\| `(--[a-z-]+)` \|", page, re.MULTILINE)
    assert told == [*options_of(parser)]


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of all its subcommands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from options_of(command)
        else:
            yield from (name for name in action.option_strings if name not in {"-h", "--help"})
