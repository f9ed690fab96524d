"""The demo's Spark pipeline: departure delays by carrier and hour, with a watermark."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from examples.flights.data import DELAYS_TOPIC, TOPIC

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS_A_BATCH = 120_000
ATTEMPTS = 4
_LATE_WORKER = "failed to connect back"


def departure_delays(spark: SparkSession, name_server: str, group: str) -> DataFrame:
    """Flights, departures and their delay in minutes, by carrier and scheduled hour (UTC).

    A stream: a window is final, and is emitted, once the watermark has passed it by two days. The
    query's progress shows as the consumer group's offsets.
    """
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    flights = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", TOPIC)
        .option("group", group)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", ROWS_A_BATCH)
        .load()
    )
    parsed = flights.select(
        F.from_json(
            F.col("body").cast("string"), "carrier string, time_hour timestamp, dep_delay double"
        ).alias("flight")
    ).select("flight.*")
    return (
        parsed.withWatermark("time_hour", "2 days")
        .groupBy(F.window("time_hour", "1 hour").alias("hour"), "carrier")
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departures"),
            F.sum("dep_delay").alias("delay"),
        )
        .select(F.col("hour.start").alias("hour"), "carrier", "flights", "departures", "delay")
    )


def write_parquet(delays: DataFrame, output: Path, checkpoint: Path) -> StreamingQuery:
    """Append the final windows to Parquet files."""
    return (
        delays.writeStream.format("parquet")
        .option("path", str(output))
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def send_delays(delays: DataFrame, name_server: str, checkpoint: Path) -> StreamingQuery:
    """Send the final windows to a topic of their own, one message each, tagged by carrier."""
    from pyspark.sql import functions as F  # noqa: N812 - Spark's own custom

    return (
        delays.select(
            F.to_json(F.struct("*")).alias("body"),
            F.col("carrier").alias("tags"),
            F.concat_ws("@", "carrier", F.date_format("hour", "yyyy-MM-dd'T'HH")).alias("keys"),
        )
        .writeStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", DELAYS_TOPIC)
        .option("checkpointLocation", str(checkpoint))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


def follow(
    start: Callable[[], StreamingQuery],
    on_rows: Callable[[int], None],
    on_lag: Callable[[int], None] | None = None,
) -> None:
    """Run a query to its end, reporting the input rows of its batches; raise what stopped it.

    After each it says to ``on_lag`` how many messages are still to be read.

    Spark gives a Python worker ten seconds to appear, whatever else the machine does; a query that
    failed for that is started again and goes on from its checkpoint.
    """
    from pyspark.errors import StreamingQueryException

    for attempts_left in reversed(range(ATTEMPTS)):
        query = start()
        try:
            _report(query, on_rows, on_lag)
            return
        except StreamingQueryException as error:
            if _LATE_WORKER not in str(error) or not attempts_left:
                raise


def _report(
    query: StreamingQuery, on_rows: Callable[[int], None], on_lag: Callable[[int], None] | None
) -> None:
    reported = 0
    running = True
    try:
        while running:
            running = not query.awaitTermination(1)
            reported += _advance(query, reported, on_rows)
            if on_lag is not None:
                _tell_lag(query, on_lag)
    except BaseException:
        _advance(query, reported, on_rows)
        raise


def _advance(query: StreamingQuery, reported: int, on_rows: Callable[[int], None]) -> int:
    """Report the rows beyond those reported; returns how many."""
    rows = max(0, sum(progress.numInputRows for progress in query.recentProgress) - reported)
    on_rows(rows)
    return rows


def _tell_lag(query: StreamingQuery, on_lag: Callable[[int], None]) -> None:
    from orbitmq.spark.progress.listener import query_progress

    report = query.lastProgress
    lag = None if report is None else query_progress(report).lag
    if lag is not None:
        on_lag(lag.messages)


def read_back(spark: SparkSession, name_server: str) -> pd.DataFrame:
    """The results as they stand in their topic."""
    import pandas  # noqa: ICN001 - only here

    rows = (
        spark.read.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", DELAYS_TOPIC)
        .load()
        .select("body")
        .collect()
    )
    records: list[dict[str, Any]] = [json.loads(row.body) for row in rows]
    return pandas.DataFrame.from_records(records)
