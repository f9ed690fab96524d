"""What a streaming query costs besides its rows, and how soon it has them.

Our source beside Spark's for Kafka, as in kafka_figures.py.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.brokers import generate
from benchmarks.plan import Plan
from benchmarks.results import Result, compare
from benchmarks.spark_sides import Bench, OrbitMQ, Side, bench, bodies

QUEUES = 4
MANY_QUEUES = 1000
BATCHES = 40
WARM_UP_BATCHES = 10
A_BATCH = 4
"""Messages of one: next to none, so that what is measured is what a batch costs without them."""
FLOOR_AIM = 1.1
IDLE_AIM = 0.01
IDLE_SECONDS = 10.0
PACED = 20_000
PACE_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_JAVA = Path(__file__).with_name("java") / "KafkaPace.java"


def floor_figures(rounds: int) -> Iterator[Result]:
    """How long a micro-batch of next to no messages takes, and its processor time."""
    with bench() as spark:
        sides: list[tuple[Side, str]] = [(side, "bench-floor") for side in spark.pair]
        sides.append((spark.orbitmq, "bench-many"))
        for side, topic in sides:
            side.make_topic(topic, MANY_QUEUES if topic == "bench-many" else QUEUES)
            side.write(bodies(spark.spark, A_BATCH * (BATCHES + WARM_UP_BATCHES) * 2, 100), topic)
        rows = []
        for number in range(rounds + 1):
            order = [0, 1, 2][:: -1 if number % 2 else 1]
            found = {index: batch_costs(spark, *sides[index]) for index in order}
            rows.append([found[index] for index in range(len(sides))])
        rows = rows[1:]  # the JVM compiles
    for index, cost in enumerate(("", ", processor time")):
        both = [[row[0][index], row[1][index]] for row in rows]
        aim = None if index else 1 / FLOOR_AIM
        yield compare(f"micro-batch floor{cost}", "ms", both, aim, less=True)
    yield Result(
        f"micro-batch floor, {MANY_QUEUES:,} queues", "ms", median(row[2][0] for row in rows)
    )


def batch_costs(spark: Bench, side: Side, topic: str) -> tuple[float, float]:
    """The median time of a micro-batch, and the mean processor time, in milliseconds."""
    frame = side.read_stream(topic, maxOffsetsPerTrigger=A_BATCH)
    with running(frame) as query:
        wait_for_batch(query, WARM_UP_BATCHES)
        before = spark.cpu_seconds()
        wait_for_batch(query, WARM_UP_BATCHES + BATCHES)
        spent = spark.cpu_seconds() - before
        took = [batch["durationMs"]["triggerExecution"] for batch in query.recentProgress]
    return median(took[WARM_UP_BATCHES:]), spent * 1000 / BATCHES


def idle_figures(rounds: int) -> Iterator[Result]:
    """The share of a core that a query takes which has read all there is."""
    rows = []
    with bench() as spark:
        for side in spark.pair:
            side.make_topic("bench-idle", QUEUES)
            side.write(bodies(spark.spark, 100, 100), "bench-idle")
        before = [share(spark)]
        for _ in range(rounds):
            rows.append([idle_share(spark, side) for side in spark.pair])
            before.append(share(spark))
    yield compare("idle query, share of a core", "%", rows, None, less=True)
    yield Result("the same session without a query", "%", median(before))


def idle_share(spark: Bench, side: Side) -> float:
    """The share of a core, in per cent, that Spark takes while the side's query is idle."""
    with running(side.read_stream("bench-idle")) as query:
        query.processAllAvailable()
        time.sleep(IDLE_SECONDS / 2)
        return share(spark)


def share(spark: Bench) -> float:
    """The share of a core, in per cent, that Spark takes now."""
    before, began = spark.cpu_seconds(), time.perf_counter()
    time.sleep(IDLE_SECONDS)
    return (spark.cpu_seconds() - before) / (time.perf_counter() - began) * 100


def latency_figures(rounds: int) -> Iterator[Result]:
    """From a send to foreachBatch, of 1,000 messages a second; the first half does not count."""
    with bench() as spark:
        rows = []
        for number in range(rounds):
            found = {}
            for index in (0, 1) if number % 2 else (1, 0):
                topic = f"bench-latency-{number}"
                spark.pair[index].make_topic(topic, QUEUES)
                found[index] = latencies(spark, spark.pair[index], topic)
            rows.append([found[0], found[1]])
    for index, name in enumerate(("p50", "p99")):
        both = [[side[index] for side in row] for row in rows]
        yield compare(f"stream at 1,000 messages/s, {name}", "ms", both, 1.0, less=True)


def latencies(
    spark: Bench, side: Side, topic: str, messages: int = PACED, seconds: float = PACE_SECONDS
) -> list[float]:
    """The median and the 99th percentile, in milliseconds."""
    took: list[float] = []

    def take(frame: DataFrame, _number: int) -> None:
        sent = [int.from_bytes(row.body[:8]) for row in frame.collect()]
        now = time.time_ns()
        took.extend((now - one) / 1e6 for one in sent)

    writer = side.read_stream(topic).writeStream.foreachBatch(take)
    with (
        tempfile.TemporaryDirectory() as checkpoint,
        ThreadPoolExecutor(1) as pool,
        stopping(writer.option("checkpointLocation", checkpoint).start()) as query,
    ):
        query.processAllAvailable()
        pace = pool.submit(send_evenly(spark, side, topic, messages, seconds))
        while len(took) < messages:
            if pace.done():
                pace.result()
            if error := query.exception():
                raise error
            time.sleep(_LOOK_SECONDS)
    shares = quantiles(took[messages // 2 :], n=100)
    return [shares[49], shares[98]]


def send_evenly(
    spark: Bench, side: Side, topic: str, messages: int, seconds: float
) -> Callable[[], Any]:
    """What sends so many messages in so many seconds; each begins with its time in ns."""
    if isinstance(side, OrbitMQ):
        plan = Plan("pace", side.address, topic, messages, seconds=seconds, queues=QUEUES)
        return lambda: generate(plan)
    release = spark.kafka_release
    classpath = ":".join([release.source_classpath, f"{release.broker}/*"])
    command = [release.java, "-cp", classpath, str(_JAVA), side.address, topic]
    return lambda: subprocess.run(
        [*command, str(messages), str(seconds)], check=True, stdout=sys.stderr
    )


@contextmanager
def running(frame: DataFrame) -> Iterator[StreamingQuery]:
    """A query that drops what it reads."""
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        with stopping(writer.start()) as query:
            yield query


@contextmanager
def stopping(query: StreamingQuery) -> Iterator[StreamingQuery]:
    """The query, which is stopped at the end."""
    try:
        yield query
    finally:
        query.stop()


def wait_for_batch(query: StreamingQuery, number: int) -> None:
    """Wait until a batch is done."""
    while (progress := query.lastProgress) is None or progress["batchId"] < number:
        if error := query.exception():
            raise error
        time.sleep(_LOOK_SECONDS)
