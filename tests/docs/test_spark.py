"""The snippets and the tables of docs/spark.md and the pages on reading and writing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.testing.wait import wait_until
from tests.docs.snippets import ADDRESS, ROOT, snippets
from tests.spark.quick_java import QUICK_JAVA

READ, WRITE = "docs/spark-read.md", "docs/spark-write.md"
PAGES = ("docs/spark.md", READ, WRITE, "docs/spark-guarantees.md")


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_snippets_one_after_the_other(tmp_path: Path) -> None:
    code = [code for page in PAGES for code in snippets(page)]
    assert len(code) == 4
    show = "print(spark.read.parquet('flights-parquet').count(), 'rows in parquet')"
    with EmbeddedBroker() as broker:
        with Producer("orders", name_server=broker.name_server) as producer:
            for carrier in ("UA", "AA", "B6"):
                producer.send(Message("flights", b"-", tags=carrier, keys=f"key-{carrier}"))
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
        with LitePullConsumer(
            "checker",
            name_server=broker.name_server,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        ) as consumer:
            consumer.subscribe("orders")
            bodies: list[bytes] = []

            def arrived() -> bool:
                bodies.extend(message.body for message in consumer.poll(timeout=1))
                return bool(bodies)

            wait_until(arrived, timeout=30)
    assert bodies == [b"one book"]


def first_cells(page: str, heading: str = "") -> set[str]:
    """The names in the first cells of the tables of a page, or below one of its headings."""
    text = (ROOT / page).read_text()
    if heading:
        text = text.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| `")]
    return {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


def test_all_that_can_be_read_is_told() -> None:
    from orbitmq.spark.options import READ_NAMES
    from orbitmq.spark.schema import ALL_COLUMNS

    assert first_cells(READ) == {*READ_NAMES, *ALL_COLUMNS.names}
    assert first_cells(READ, "## Columns") == {*ALL_COLUMNS.names}


def test_all_that_can_be_written_is_told() -> None:
    from orbitmq.spark.option_values import ACCESS_OPTIONS
    from orbitmq.spark.write_options import WRITE_NAMES
    from orbitmq.spark.write_schema import WRITE_COLUMNS

    assert first_cells(WRITE, "## Columns to write") == {*WRITE_COLUMNS}
    told = first_cells(WRITE, "## Options of a write")
    assert told == {*WRITE_NAMES} - {*ACCESS_OPTIONS}  # told once, among those of reading
