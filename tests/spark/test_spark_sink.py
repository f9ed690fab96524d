"""The sink's guarantees with Spark itself: a batch that is run again after the sink had it all."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.broker.embedded import EmbeddedBroker
from tests.spark.topics import Topic

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SECONDS = 120


@pytest.mark.parametrize("guarantee", ["idempotent", "exactly_once"])
def test_a_batch_that_spark_runs_again_leaves_each_row_once(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path, guarantee: str
) -> None:
    source, sink = Topic(broker), Topic(broker, 3)

    def run() -> None:
        query = (
            spark.readStream.format("rocketmq")
            .options(nameServer=broker.name_server, topic=source.name, startingOffsets="earliest")
            .load()
            .select("body", "tags")
            .writeStream.format("rocketmq")
            .options(nameServer=broker.name_server, topic=sink.name, deliveryGuarantee=guarantee)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(SECONDS)

    source.send("a", "b", "b", tags="UA")
    source.send("c", key="1")
    run()
    assert sink.bodies() == ["a", "b", "b", "c"]
    # As if Spark had been killed between the sink's commit and its own.
    (tmp_path / "commits" / "0").unlink()
    (tmp_path / "commits" / ".0.crc").unlink()
    run()
    assert sink.bodies() == ["a", "b", "b", "c"]
