"""What the guarantees of the Spark sink cost, beside at_least_once, in the same rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from statistics import median
from typing import Any, Final

from benchmarks.brokers import RunningBroker, apache_broker, orbitmq_broker
from benchmarks.guaranteed_writes import QUEUES, Cost, Query, Shape, tasks
from benchmarks.load import create_topic
from benchmarks.results import Result
from tests.apache.jars import ApacheRelease

AIMS: Final = {"at_least_once": None, "idempotent": 1.3, "exactly_once": 2.0}
"""How many times what at_least_once takes."""
SHAPES: Final = (Shape(100_000, 100), Shape(100_000, 1024), Shape(100, 100), Shape(1, 100))
IN_SPARK: Final = (Shape(1_000_000, 100), Shape(250_000, 1024))
WARM_UP: Final = 2

Works = Mapping[str, Callable[[Shape], Cost]]


def guarantee_figures(
    apache: ApacheRelease | None,
    rounds: int,
    shapes: Sequence[Shape] = SHAPES,
    in_spark: Sequence[Shape] = IN_SPARK,
) -> Iterator[Result]:
    """The sink alone, on our broker and Apache's, and then under Spark."""
    with ExitStack() as running:
        ours = running.enter_context(orbitmq_broker("async"))
        brokers = {"": ours}
        if apache:
            brokers[" on Apache's"] = running.enter_context(apache_broker(apache, "async"))
        workers = running.enter_context(tasks())
        for where, broker in brokers.items():
            works = {}
            for guarantee in AIMS:
                topic = _topic(broker, guarantee)
                works[guarantee] = Query(broker.name_server, topic, guarantee, workers).run
            for shape in shapes:
                yield from _beside(f"sink alone{where}", shape, works, rounds)
        if in_spark:
            yield from _under_spark(ours, rounds, in_spark)


def _under_spark(broker: RunningBroker, rounds: int, shapes: Sequence[Shape]) -> Iterator[Result]:
    """``df.write`` of two tasks, with the processor time of the JVM and its Python workers."""
    from benchmarks.processes import ProcessTree
    from benchmarks.spark_sides import bodies
    from orbitmq.spark import local_session

    quiet = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "OFF"}
    with local_session("guarantees", master="local[2]", config=quiet) as spark:
        context: Any = spark.sparkContext
        processes = ProcessTree(context._gateway.proc.pid)

        def write(guarantee: str, shape: Shape) -> Cost:
            writer = bodies(spark, *shape).write.format("rocketmq").mode("append")
            writer = writer.option("nameServer", broker.name_server)
            writer = writer.option("deliveryGuarantee", guarantee)
            cpu, began = processes.cpu_seconds(), time.perf_counter()
            writer.option("topic", f"bench-{guarantee}").save()
            return Cost(time.perf_counter() - began, processes.cpu_seconds() - cpu)

        for shape in shapes:
            works = {guarantee: partial(write, guarantee) for guarantee in AIMS}
            yield from _beside("Spark", shape, works, rounds)


def _beside(where: str, shape: Shape, works: Works, rounds: int) -> Iterator[Result]:
    """Rows a second with at_least_once, and how many times as long the others take."""
    costs = _in_turn(shape, works, rounds)
    base, *others = AIMS
    name = f"{shape.rows:,} rows of {shape.size} B, {where}"
    rate = median(shape.rows / row[base].wall for row in costs)
    yield Result(f"{base}, {name}", "rows/s", rate, cpu=_cpu(costs, base, shape))
    for other in others:
        times = [row[other].wall / row[base].wall for row in costs]
        yield Result(
            f"{other}, {name}", "times", median(times),
            aim=AIMS[other], low=min(times), high=max(times), cpu=_cpu(costs, other, shape),
        )  # fmt: skip


def _in_turn(shape: Shape, works: Works, rounds: int) -> list[dict[str, Cost]]:
    """What each costs in each round; who goes first in one goes last in the next."""
    found = []
    for number in range(WARM_UP + rounds):
        order = list(works)[:: -1 if number % 2 else 1]
        found.append({guarantee: works[guarantee](shape) for guarantee in order})
    return found[WARM_UP:]


def _cpu(costs: Sequence[Mapping[str, Cost]], guarantee: str, shape: Shape) -> float:
    """Microseconds of processor time a row."""
    return median(row[guarantee].cpu for row in costs) * 1e6 / shape.rows


def _topic(broker: RunningBroker, guarantee: str) -> str:
    topic = f"bench-{guarantee}"
    create_topic(broker.address, topic, QUEUES)
    return topic
