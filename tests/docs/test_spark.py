"""The snippets and the table of options of docs/spark.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq import EmbeddedBroker, LitePullConsumer, Message, Producer
from orbitmq.testing.wait import wait_until
from tests.docs.snippets import ADDRESS, ROOT, snippets
from tests.spark.quick_java import QUICK_JAVA

SPARK = "docs/spark.md"


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_the_snippets_one_after_the_other(tmp_path: Path) -> None:
    code = snippets(SPARK)
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


def test_the_table_of_options_is_complete() -> None:
    from orbitmq.spark.options import READ_NAMES

    lines = (ROOT / SPARK).read_text().splitlines()
    told = " ".join(line.split("|")[1] for line in lines if line.startswith("| `"))
    for name in READ_NAMES:
        assert f"`{name}`" in told


def test_the_table_of_columns_is_complete() -> None:
    from orbitmq.spark.schema import ALL_COLUMNS

    text = (ROOT / SPARK).read_text()
    for field in ALL_COLUMNS:
        assert f"`{field.name}`" in text


def test_the_tables_of_writing_are_complete() -> None:
    from orbitmq.spark.write_options import WRITE_NAMES
    from orbitmq.spark.write_schema import WRITE_COLUMNS

    text = (ROOT / SPARK).read_text().partition("## Write")
    assert text[2]
    for name in WRITE_COLUMNS:
        assert f"`{name}`" in text[2].partition("### Options of a write")[0]
    for name in WRITE_NAMES:
        assert f"`{name}`" in "".join(text)
