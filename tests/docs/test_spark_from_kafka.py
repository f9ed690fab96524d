"""docs/spark-from-kafka.md has every option of Spark's Kafka source and sink, and tells true."""

from __future__ import annotations

import json
import re

import pytest

from orbitmq.errors import ConfigError
from orbitmq.spark.kafka_names import RENAMED
from orbitmq.spark.sink.options import WRITE_NAMES, write_options
from orbitmq.spark.source.offsets import Position
from orbitmq.spark.source.options import READ_NAMES, read_options
from tests.docs.snippets import snippet, table_rows

PAGE = "docs/spark-from-kafka.md"
# KafkaSourceProvider of Spark 4.2, and the Kafka Integration Guide.
SOURCE = (
    "assign endingOffsets endingOffsetsByTimestamp endingTimestamp failOnDataLoss "
    "fetchOffset.numRetries fetchOffset.retryIntervalMs groupIdPrefix includeHeaders "
    "kafka.bootstrap.servers kafka.group.id kafkaConsumer.pollTimeoutMs maxOffsetsPerTrigger "
    "maxRecordsPerPartition maxTriggerDelay minOffsetsPerTrigger minPartitions startingOffsets "
    "startingOffsetsByTimestamp startingOffsetsByTimestampStrategy startingTimestamp subscribe "
    "subscribePattern"
).split()
LEAST = {"nameServer": "127.0.0.1:9876", "topic": "flights"}


def told(heading: str) -> dict[str, str]:
    """What is said to be here, by Kafka's name."""
    return {
        name: row[-2] if len(row) > 2 else row[1]
        for row in table_rows(PAGE, heading)
        for name in re.findall(r"`([\w.]+)`", row[0])
    }


def error_of(kafkas: str, *, writing: bool) -> str:
    options = {**LEAST, kafkas: "hush"}
    with pytest.raises(ConfigError) as caught:
        write_options(options) if writing else read_options(options, streaming=None)
    return str(caught.value)


def test_every_option_of_the_source_is_told() -> None:
    assert sorted(told("## Options of the source")) == SOURCE


@pytest.mark.parametrize(
    ("heading", "names", "writing"),
    [
        ("## Options of the source", READ_NAMES, False),
        ("## Options of the sink", WRITE_NAMES, True),
        ("## Settings of clients and of the cluster", READ_NAMES, False),
    ],
)
def test_options_are_called_as_told(heading: str, names: tuple[str, ...], *, writing: bool) -> None:
    rows = told(heading)
    assert len(rows) > 5
    for kafkas, ours in rows.items():
        if ours.startswith("the same"):
            assert kafkas in names
            continue
        error = error_of(kafkas, writing=writing)
        if kafkas in RENAMED and RENAMED[kafkas] in names:
            assert f"`{RENAMED[kafkas]}`" in ours
            assert f"here it is {RENAMED[kafkas]}, see {PAGE}" in error
        else:
            assert ours == "none needed"
            assert "a column properties is written" in error


def test_every_name_that_leads_to_ours_is_told() -> None:
    headings = ("source", "sink")
    known = {name for one in headings for name in told(f"## Options of the {one}")}
    assert RENAMED.keys() <= known | {*told("## Settings of clients and of the cluster")}


def test_other_settings_of_kafkas_clients_are_refused_and_no_secret_is_shown() -> None:
    error = error_of("kafka.max.poll.records", writing=False)
    assert f"settings of Kafka's clients mean nothing here, see {PAGE}" in error
    for name in ("kafka.sasl.jaas.config", "kafka.ssl.truststore.password"):
        assert "hush" not in error_of(name, writing=False)


def test_an_offset_in_a_checkpoint_looks_as_told() -> None:
    document = json.loads(snippet(PAGE, "seen", "json"))
    assert Position.from_json(document).to_json() == document
