"""A Spark driver in a process of its own: it copies topics until all is through, or it is killed.

    python -m tests.spark.crashes.copying SPEC      (JSON, see Spec)

A query that fails is started again on its checkpoint, as a supervisor would. Ends at once when its
stdin closes, and Spark's JVM ends with it.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PARQUET = "parquet"
"""The guarantee of a copy that goes to files instead of a topic."""

FAILURES = 6
"""How often a driver starts each of its queries again."""
GAVE_UP = 4
"""The exit code of a driver that did so in vain."""


class Copy(TypedDict):
    """One query. ``sink`` is a topic, or a directory with the guarantee PARQUET."""

    name: str
    name_server: str
    source: str
    sink: str
    guarantee: str
    checkpoint: str
    options: dict[str, str]


class Spec(TypedDict):
    """What a driver does, and where."""

    master: str
    home: str
    copies: list[Copy]


def mark(kind: str, value: object) -> None:
    """Print a line for MarkedProgram."""
    sys.stdout.write(f"@@ {kind} {json.dumps(value)}\n")
    sys.stdout.flush()


def main(spec: Spec) -> None:
    """Carry out all copies."""
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    from pyspark.errors import PySparkException

    spark = _session(spec)
    mark("ready", None)
    copies = {copy["name"]: copy for copy in spec["copies"]}
    left = dict.fromkeys(copies, FAILURES)
    running = {name: _start(spark, copy) for name, copy in copies.items()}
    while running:
        for name, query in [*running.items()]:
            try:
                ended = query.awaitTermination(0.2)  # type: ignore[arg-type]  # seconds
            except Exception as error:
                if not isinstance(error, PySparkException):
                    raise  # the JVM is gone
                mark("failed", [name, str(error)[:3000]])
                left[name] -= 1
                if not left[name]:
                    os._exit(GAVE_UP)
                running[name] = _start(spark, copies[name])
            else:
                if ended:
                    del running[name]
                    mark("copied", name)
    mark("done", None)
    spark.stop()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(3)


def _session(spec: Spec) -> SparkSession:
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
    from orbitmq.spark import local_session

    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
    session = local_session(
        "copying",
        master=spec["master"],
        memory="600m",
        config={
            "spark.driver.extraJavaOptions": f"{quick} -Dderby.system.home={spec['home']}",
            "spark.executor.extraJavaOptions": quick,
            "spark.executor.memory": "512m",
            "spark.local.dir": f"{spec['home']}/local",
            "spark.sql.warehouse.dir": f"{spec['home']}/warehouse",
            "spark.ui.showConsoleProgress": "false",
            # Nothing lives long enough to be worth compiling.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    return session


def _start(spark: SparkSession, copy: Copy) -> StreamingQuery:
    frame = (
        spark.readStream.format("rocketmq")
        .options(nameServer=copy["name_server"], topic=copy["source"], startingOffsets="earliest")
        .options(**copy["options"])
        .load()
    )
    if copy["guarantee"] == PARQUET:
        files = frame.select("queueId", "queueOffset", "body").writeStream.format("parquet")
        writer = files.option("path", copy["sink"])
    else:
        writer = (
            frame.select("body", "tags")
            .writeStream.format("rocketmq")
            .options(
                nameServer=copy["name_server"],
                topic=copy["sink"],
                deliveryGuarantee=copy["guarantee"],
            )
        )
    return (
        writer.queryName(copy["name"])
        .option("checkpointLocation", copy["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
