"""What came through: topics and directories of files, counted a column at a time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import BinaryType, StructType

from orbitmq.spark.source.options import read_options
from orbitmq.spark.source.reader import RocketMQReader


def bodies(name_server: str, topic: str) -> Counter[str]:
    """How often each body is in ``topic``."""
    options = read_options({"nameServer": name_server, "topic": topic}, streaming=False)
    reader = RocketMQReader(StructType().add("body", BinaryType()), options)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return _counted(batch.column("body") for batch in batches)


def bodies_of_files(directory: Path) -> Counter[str]:
    """How often each is in the files that Spark has committed."""
    lines = [
        line
        for log in (directory / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    ]
    files = {Path(json.loads(line)["path"].removeprefix("file://")) for line in lines}
    return _counted(pq.read_table(file).column("body").combine_chunks() for file in files)


def _counted(columns: object) -> Counter[str]:
    found: Counter[str] = Counter()
    for column in columns:  # type: ignore[attr-defined]
        for pair in pa.array(column).value_counts().to_pylist():
            found[pair["values"].decode()] += pair["counts"]
    return found
