"""How many rows a second Spark reads from a topic, all columns, once warm."""

from __future__ import annotations

import time

from orbitmq.spark import local_session

WARM_UP = 3
ROUNDS = 3


def rows_a_second(name_server: str) -> float:
    """The best of some passes over the topic ``bench-spark``, after three to warm up."""
    with local_session("bench", master="local[2]") as spark:
        reader = spark.read.format("rocketmq").option("nameServer", name_server)
        frame = reader.option("topic", "bench-spark").load()
        rows = frame.count()
        best = 0.0
        for n in range(WARM_UP + ROUNDS):
            began = time.perf_counter()
            frame.write.format("noop").mode("overwrite").save()
            if n >= WARM_UP:
                best = max(best, rows / (time.perf_counter() - began))
    return best
